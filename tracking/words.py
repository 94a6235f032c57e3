"""What the numbers mean, in plain sentences made from the numbers and from nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from services.records import AuditResult, CalibrationResult, Estimate, ModelResult, Outcome, SeriesResult
from tracking.names import shorten
from tracking.summary import find, lenses


def number(value: float | None) -> str:
    """Three significant digits at most four decimals: what a reader can take in."""
    if value is None:
        return "undefined"
    return f"{value:.3f}" if abs(value) >= 0.0995 or value == 0 else f"{value:.4f}"


def interval(estimate: Estimate) -> str:
    """``0.335 (0.301 to 0.352)``, with the sides that exist."""
    if estimate.value is None:
        return f"undefined ({estimate.reason})" if estimate.reason else "undefined"
    low, high = estimate.low, estimate.high
    if low is None and high is None:
        return number(estimate.value)
    if high is None:
        return f"{number(estimate.value)} (at least {number(low)})"
    if low is None:
        return f"{number(estimate.value)} (at most {number(high)})"
    return f"{number(estimate.value)} ({number(low)} to {number(high)})"


def fleet_words(audit: AuditResult) -> list[str]:
    """The paragraph at the head of a report: outcome, the class that suffers most, cautions about the fleet."""
    if len(audit.models) == 1:
        return [*_outcome(audit), *model_words(audit.models[0])]
    return [*_outcome(audit), *_shared_worst(audit), *_scale_caution(audit), *calibration_words(audit.calibration)]


def model_words(model: ModelResult) -> list[str]:
    """Sentences about one model: worst class, how sure, what is vacuous or saturated, and its own notes."""
    found = [sentence for result in model.series for sentence in series_words(result)]
    return [*found, *model.notes]


def series_words(result: SeriesResult) -> Iterator[str]:
    """Sentences about one series of one model."""
    title = result.series.title
    if not result.worst:
        yield f"{title}: no worst {_group(result)}, because {result.wcr.reason or 'nothing was scored'}."
        return
    yield f"{title}: {_worst(result)}{_certified(result)}."
    if len(result.worst) == 1 and result.not_separated:
        names = _names(result.not_separated)
        yield f"The samples do not separate {shorten(result.worst[0])} from {names}: any of them may be the weakest."
    vacuous = sum(group.score.vacuous for group in result.groups)
    if vacuous:
        yield f"{vacuous} of {len(result.groups)} intervals of {title} are vacuous: too few samples to say anything."
    if result.missing:
        yield f"No samples of {_names(result.missing)}: left out of every number of {title}, not counted as zero."
    yield from result.notes


def calibration_words(found: CalibrationResult) -> Iterator[str]:
    """What a reader must know before trusting the temperature."""
    if found.temperature is None:
        yield f"No temperature was chosen ({found.policy}): {found.reason or 'undefined'}."
        return
    if found.policy != "fixed":
        yield f"Temperature {found.temperature:g} was chosen by {found.policy}."
    if found.at_edge:
        yield "It lies at the edge of the grid, so the true optimum may lie outside; do not read it as an optimum."
    if found.plateau and found.plateau[1] > found.plateau[0]:
        yield f"Every temperature from {found.plateau[0]:g} to {found.plateau[1]:g} does equally well."
    if found.reference is not None and found.reference_before is not None:
        change = "lowers" if found.reference < found.reference_before else "does not lower"
        pair = f"{found.reference_before:.3f} before, {found.reference:.3f} after"
        yield f"Calibration {change} the rank correlation with the declared robust accuracies ({pair})."
        if found.reference_accuracy is not None and found.reference_accuracy >= found.reference:
            yield f"Clean accuracy alone correlates as well or better ({found.reference_accuracy:.3f})."
    yield from found.notes


def _outcome(audit: AuditResult) -> Iterator[str]:
    counts = [(sum(model.outcome is outcome for model in audit.models), outcome) for outcome in Outcome]
    parts = [f"{count} {outcome.value}" for count, outcome in counts if count]
    models = "1 model" if len(audit.models) == 1 else f"{len(audit.models)} models"
    yield f"{models} audited on {audit.samples.count:,} samples: {', '.join(parts) or 'none'}."


def _shared_worst(audit: AuditResult) -> Iterator[str]:
    for name in lenses(audit)[:1]:
        results = [result for model in audit.models if (result := find(model, name)) and result.worst]
        tally: dict[str, int] = {}
        for result in results:
            for worst in result.worst:
                tally[worst] = tally.get(worst, 0) + 1
        if len(results) < 2 or not tally:
            continue
        worst, count = max(tally.items(), key=lambda item: item[1])
        yield (
            f"By {results[0].series.title} the weakest {_group(results[0])} is {shorten(worst)} in {count} of "
            f"{len(results)} models."
        )


def _scale_caution(audit: AuditResult) -> Iterator[str]:
    """RDI grows with the scale of the scores, so it alone must not be read as unfairness."""
    for name in lenses(audit)[:1]:
        rows = [
            (result.aggregate.value, result.rdi.value, result.nrgc.value)
            for model in audit.models
            if (result := find(model, name))
        ]
        full = np.array([row for row in rows if None not in row], dtype=float)
        if len(full) < 3:
            continue
        rdi, nrgc = rank_correlation(full[:, 0], full[:, 1]), rank_correlation(full[:, 0], full[:, 2])
        if rdi is None or nrgc is None:
            continue
        yield f"Rank correlation of the score with RDI {rdi:+.2f}, with NRGC {nrgc:+.2f}."
        if rdi > 0 > nrgc:
            yield "RDI grows with the scale of the scores; relative to it (NRGC) the stronger models are more equal."


def rank_correlation(a: np.ndarray, b: np.ndarray) -> float | None:
    """Spearman's rank correlation with average ranks for ties; None when one side is constant."""
    ranks = [_average_ranks(side) for side in (a, b)]
    if min(np.ptp(rank) for rank in ranks) == 0:
        return None
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def _average_ranks(values: np.ndarray) -> np.ndarray:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return ((last - counts + 1 + last) / 2)[inverse]


def _group(result: SeriesResult) -> str:
    return "class" if result.grouping == "class" else f"group of {result.grouping}"


def _names(names: tuple[str, ...]) -> str:
    shown = ", ".join(shorten(name) for name in names[:5])
    return f"{shown} and {len(names) - 5} more" if len(names) > 5 else shown


def _worst(result: SeriesResult) -> str:
    if len(result.worst) > 1:
        return f"{_names(result.worst)} tie for the worst {_group(result)} at {number(result.wcr.value)}"
    return f"the worst {_group(result)} is {shorten(result.worst[0])} at {number(result.wcr.value)}"


def _certified(result: SeriesResult) -> str:
    low = result.wcr.low
    if low is None:
        return ""
    share = 100 * (1 - result.delta)
    if low <= 0:
        return f", and at {share:g} % confidence it may be as low as 0"
    return f", certified to be at least {number(low)} at {share:g} % confidence"
