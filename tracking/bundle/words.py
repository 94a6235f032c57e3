"""What the numbers mean, in plain sentences made from the numbers and from nothing else."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from services.errors import counted
from services.metrics import METRICS
from services.records import (
    WORST_FIRST,
    AuditResult,
    CalibrationResult,
    Estimate,
    Evidence,
    GateResult,
    ModelResult,
    Outcome,
    SeriesResult,
    Threshold,
)
from tracking.bundle.headline import deciding_gates, is_refuted
from tracking.bundle.summary import find, in_reading_order, is_sound, lens, lenses, refuted, tied, worst_first
from tracking.names import series_key, shorten

FEWEST_RANKED = 5
"""Models from which a rank correlation is a finding: of three, two orders in six agree or oppose entirely."""

MOST_EARLY = 20
"""Models that are named with the samples they were measured on."""
MOST_ADVICE = 3
"""Models that get a sentence for who decides."""
NOT_TESTED = "no attack that could have refuted this claim was adequate"
DIFFERS = 5e-4
"""Least difference between two limits that a sentence mentions."""

_RANKING = re.compile("spearman|rank correlation", re.IGNORECASE)
_SMALLEST = 0.00005


def number(value: float | None) -> str:
    """Three significant digits at most four decimals: what a reader can take in."""
    if value is None:
        return "undefined"
    if 0 < abs(value) < _SMALLEST:
        return "<0.0001" if value > 0 else ">-0.0001"
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


def verdict_words(audit: AuditResult) -> str:
    """The outcome of the audit as a sentence: ``8 of 14 models fail, 1 is undecided, 5 pass.``"""
    kinds = [_NOT_JUDGED if _not_judged(model) else _VERBS[model.outcome] for model in audit.models]
    if kinds and set(kinds) == {_NOT_JUDGED}:
        return "Not judged: no gates."
    if len(kinds) == 1:
        return f"The model {kinds[0][0]}."
    counts = Counter(kinds)
    listed = [(counts[verb], verb) for verb in (*map(_VERBS.__getitem__, WORST_FIRST), _NOT_JUDGED) if counts[verb]]
    parts = [f"{count} {singular if count == 1 else plural}" for count, (singular, plural) in listed]
    parts[:1] = [part.replace(" ", f" of {len(kinds)} models ", 1) for part in parts[:1]]
    return f"{', '.join(parts)}." if parts else "No model was audited."


def _not_judged(model: ModelResult) -> bool:
    """Measured without a fault, and nothing was asked of it."""
    return model.outcome is Outcome.PASS and not model.gates


def gate_words(audit: AuditResult, gate: GateResult) -> str:
    """A threshold gate spelled out: ``clean accuracy, worst class: at least 0.5``; "" where that adds nothing."""
    limit = gate.threshold
    if limit is None or limit.metric not in METRICS:
        return ""
    series = (result.series for model in audit.models for result in model.series)
    title = next((each.title for each in series if each.key == limit.measure), limit.measure)
    bound = "at least" if limit.sign == ">=" else "at most"
    return f"{title}, {_phrase(limit)}: {bound} {limit.value:g}"


def _phrase(limit: Threshold) -> str:
    by_class = limit.grouping == "class"
    group, groups = ("class", "classes") if by_class else (f"group of {limit.grouping}", f"groups of {limit.grouping}")
    metric = METRICS.get(limit.metric)  # a bundle of a newer version may have others
    return metric.phrase.format(group=group, groups=groups) if metric else limit.metric


def share_words(estimate: Estimate) -> str:
    """A share in per cent with its interval: ``12.3 % (10.1 to 14.8 %)``."""
    if estimate.value is None:
        return interval(estimate)
    low, high = estimate.low, estimate.high
    limits = "" if low is None or high is None else f" ({100 * low:.1f} to {100 * high:.1f} %)"
    return f"{100 * estimate.value:.1f} %{limits}"


def advice_words(audit: AuditResult) -> list[str]:
    """A sentence for who decides: ``Do not ship resnet: cat falls to 5.0 % under PGD-20 (Linf 0.03137).``

    The models that fail first, at most three; none where nothing was judged.
    """
    judged = [model for model in audit.models if model.gates and model.outcome is not Outcome.ERROR]
    first = worst_first(judged)[:MOST_ADVICE]
    return [
        f"{_ADVICE[model.outcome].format(shorten(model.spec.name))}: {_because(model)}{_overruled(model)}."
        for model in first
    ]


def _overruled(model: ModelResult) -> str:
    names = dict.fromkeys(name for gate in model.gates for name in gate.overruled)
    return f"; the fleet file overruled {', '.join(names)}" if names else ""


def _because(model: ModelResult) -> str:
    """What the gate that decided found, in the words of its measure; of several rather one that is on no claim."""

    def last(gate: GateResult) -> tuple[bool, float]:
        result = _series_of(model, gate)
        claim = result is not None and result.series.evidence is Evidence.CLAIM
        return claim, 1.0 if gate.estimate.value is None else gate.estimate.value

    gate = min(deciding_gates(model.gates), key=last)
    limit, result = gate.threshold, _series_of(model, gate)
    if limit is None or result is None or gate.estimate.value is None:
        return f"{gate.text}, {gate.reason}"
    who = _tied(result) if limit.metric == "wcr" and result.worst else ""
    share = result.series.binary and limit.metric in METRICS and METRICS[limit.metric].monotone
    amount = share_words(gate.estimate) if share else interval(gate.estimate)
    what = who or _phrase(limit)
    verb = "keep" if " and " in who else "keeps"
    title = result.series.title.replace(" accuracy (", " (")
    under = f"under {title}" if result.series.evidence is Evidence.ATTACK else f"by {result.series.title}"
    needed = "at least" if limit.sign == ">=" else "at most"
    wanted = f"{100 * limit.value:g} %" if share else f"{limit.value:g}"
    found = f"{what} {verb if who else 'is'} {amount} {under}, where {needed} {wanted} is asked"
    return f"{found}{_open(model, gate, limit.measure)}" if gate.outcome is Outcome.UNDECIDED else found


def _series_of(model: ModelResult, gate: GateResult) -> SeriesResult | None:
    limit = gate.threshold
    return find(model, series_key(limit.measure, limit.grouping)) if limit else None


def _open(model: ModelResult, gate: GateResult, key: str) -> str:
    """Why a gate is undecided: the samples leave it open, or what they show does not count."""
    if not gate.objected:
        return ", and these samples do not decide it"
    judged = {attack.adequacy for attack in model.attacks if key in attack.series}
    briefly = gate.objected.partition(": ")[0]  # the reasons name each sign and the remedy
    return f", but {next((_NO_EVIDENCE[each] for each in _NO_EVIDENCE if each in judged), briefly)}"


def fleet_words(audit: AuditResult) -> list[str]:
    """What the fleet's numbers mean: the class that suffers most, the temperature, cautions. Every sentence once."""
    notes = audit.notes
    if len(audit.models) < FEWEST_RANKED:
        notes = tuple(note for note in notes if not _RANKING.search(note))
    lines = [*_shared_worst(audit), *_refuted_claims(audit), *calibration_words(audit.calibration), *notes]
    if len(audit.models) == 1:
        lines = [*model_words(audit.models[0]), *calibration_words(audit.calibration), *notes]
    return list(dict.fromkeys(lines))


def model_words(model: ModelResult) -> list[str]:
    """A paragraph a series, the headline first, what was refuted, and the model's own notes.

    No conclusion rests on a claim that attacks refuted, nor on an attack that was inadequate.
    """
    results = in_reading_order(model)
    lines = [" ".join(series_words(result)) for result in results if is_sound(model, result)]
    lines += [_unsound_claim(model, result) for result in results if not is_sound(model, result)]
    repeated = {note for result in model.series for note in result.notes}
    return [*filter(None, lines), *(note for note in model.notes if note not in repeated)]


def _unsound_claim(model: ModelResult, result: SeriesResult) -> str:
    """The finding in place of a conclusion; of an inadequate attack the model's notes speak."""
    if result.series.evidence is not Evidence.CLAIM:
        return ""
    tested = refuted(model, lens(result))
    if tested is None or not is_refuted(tested.overall):
        return f"{result.series.title}: {NOT_TESTED}, so nothing is concluded from it."
    counts = f"{tested.refuted:,} of {tested.counted:,} correctly classified samples"
    return f"{result.series.title}: attacks refuted this claim for {counts}, so nothing is concluded from it."


def _refuted_claims(audit: AuditResult) -> Iterator[str]:
    """Claims that attacks refuted, and in how many models."""
    titles = [
        result.series.title
        for model in audit.models
        for result in model.series
        if result.grouping == "class" and (tested := refuted(model, lens(result))) and is_refuted(tested.overall)
    ]
    for title, times in Counter(titles).items():
        models = f"{times} of {counted(len(audit.models), 'model')}"
        yield f"{title}: attacks refuted this claim in {models}, so nothing is concluded from it."


def series_words(result: SeriesResult) -> Iterator[str]:
    """Sentences about one series of one model, its notes among them."""
    title = result.series.title
    if not result.worst:
        yield f"{title}: no worst {_group(result)}, because {result.wcr.reason or 'nothing was scored'}."
    else:
        yield f"{title}: {_worst(result)}{_limit(result)}."
    if len(result.worst) == 1 and result.not_separated:
        names = _names(result.not_separated)
        yield f"The samples do not separate {_name(result.worst[0])} from {names}: any of them may be the weakest."
    yield from _missing(result)
    yield from result.notes


def _missing(result: SeriesResult) -> Iterator[str]:
    """Groups without a score: those without samples, and those of a conditional series of which no sample counts."""
    counts = {group.name: group.n_all * result.series.conditional for group in result.groups}
    wrong = tuple(name for name in result.missing if counts.get(name))
    if without := tuple(name for name in result.missing if not counts.get(name)):
        yield f"No samples of {_names(without)}: left out, not counted as zero."
    if wrong:
        yield (
            f"No sample of {_names(wrong)} is classified correctly: left out here, and counted as zero by gates, "
            "which judge all samples."
        )


def early_words(audit: AuditResult) -> Iterator[str]:
    """On how many samples an audit that decides early has measured each model, a sentence a measure."""
    taken: dict[str, list[tuple[str, int]]] = {}
    for model in audit.models:
        for result in model.series:
            if result.measured is not None:
                taken.setdefault(result.series.label, []).append((model.spec.name, result.measured))
    for label, each in taken.items():
        models = list(dict(each).items())
        named = ", ".join(f"{shorten(name, 30)} on {count:,}" for name, count in models[:MOST_EARLY])
        more = f" and {len(models) - MOST_EARLY} more" if len(models) > MOST_EARLY else ""
        yield (
            f"{label} was measured until the gates were decided, of {audit.samples.count:,} samples {named}{more}; "
            "its limits hold at every stopping time."
        )


def calibration_words(calibration: CalibrationResult) -> Iterator[str]:
    """Which temperature was chosen and how; what to think of it is in the calibration's notes."""
    if calibration.temperature is None and calibration.policy != "fixed":
        yield f"No temperature was chosen ({calibration.policy}): {calibration.reason or 'undefined'}."
    elif calibration.temperature is not None and calibration.policy != "fixed":
        others = ""
        if calibration.resampled is not None:
            low, high = calibration.resampled
            others = f"; 95 % of other samples of this size would choose between {low:g} and {high:g}"
        yield f"Temperature {calibration.temperature:g} was chosen by {calibration.policy}{others}."


def _shared_worst(audit: AuditResult) -> Iterator[str]:
    for name in lenses(audit)[:1]:
        pairs = [(model, result) for model in audit.models if (result := find(model, name)) and result.worst]
        results = [result for model, result in pairs if is_sound(model, result)]
        tally: dict[str, int] = {}
        for result in results:
            for worst in result.worst:
                tally[worst] = tally.get(worst, 0) + 1
        if len(results) < 2 or not tally:
            continue
        count = max(tally.values())
        most = [name for name, times in tally.items() if times == count]
        by, models = f"By {results[0].series.title}", f"in {count} of {len(results)} models"
        if count == 1:
            yield f"{by} no two models share their weakest {_group(results[0])}."
        elif len(most) > 1:
            yield f"{by} {_with_group(results[0], most)} are among the weakest {models}, each as often."
        elif _bare(most[0]):
            yield f"{by} {_group(results[0])} {most[0]} is the weakest {models}."
        else:
            yield f"{by} the weakest {_group(results[0])} is {shorten(most[0])} {models}."


def _group(result: SeriesResult) -> str:
    return "class" if result.grouping == "class" else f"group of {result.grouping}"


def _several(result: SeriesResult) -> str:
    return "classes" if result.grouping == "class" else f"groups of {result.grouping}"


def _name(name: str) -> str:
    """Quoted where it is several words: a group may be called `from 2.31`."""
    return f'"{shorten(name)}"' if " " in name else shorten(name)


def _names(names: tuple[str, ...]) -> str:
    shown = ", ".join(_name(name) for name in names[:5])
    return f"{shown} and {len(names) - 5} more" if len(names) > 5 else shown


def _bare(name: str) -> bool:
    """Whether a group is called by a number alone, which a sentence takes for an amount."""
    return name.replace(".", "", 1).isdecimal()


def _tied(result: SeriesResult) -> str:
    return _with_group(result, result.worst)


def _with_group(result: SeriesResult, groups: Sequence[str]) -> str:
    """`tied`, with the word class before a bare number: ``class 1 and 2 more``."""
    names = tied(groups, len(groups))
    return f"{_group(result)} {names}" if _bare(groups[0]) else names


def _worst(result: SeriesResult) -> str:
    if len(result.worst) > 1:
        return f"{_tied(result)} tie for the worst {_group(result)} at {number(result.wcr.value)}"
    return f"the worst {_group(result)} is {_name(result.worst[0])} at {number(result.wcr.value)}"


def _limit(result: SeriesResult) -> str:
    """The worst group's own limit, and the one that it has together with those of all groups where that is lower."""
    low = result.wcr.low
    if low is None:
        return ""
    share = 100 * (1 - result.delta)
    if low <= 0:
        return f", and at {share:g} % confidence it may be as low as 0"
    text = f", at least {number(low)} at {share:g} % confidence"
    lows = [group.score.low for group in result.groups if group.name == result.worst[0] and group.score.low is not None]
    if lows and low - lows[0] > DIFFERS:
        text += f" (at least {number(lows[0])} where the limits of all {_several(result)} hold together)"
    return text


_ADVICE = {
    Outcome.FAIL: "Do not ship {}",
    Outcome.UNDECIDED: "Do not ship {} yet",
    Outcome.PASS: "{} meets what was asked",
}
_NO_EVIDENCE = {
    "inadequate": "the attack was inadequate on this model, so that is no evidence",
    "unknown": "nothing could be checked of the attack, so that is no evidence",
}
_VERBS = {
    Outcome.ERROR: ("could not be judged", "could not be judged"),
    Outcome.FAIL: ("fails", "fail"),
    Outcome.UNDECIDED: ("is undecided", "are undecided"),
    Outcome.PASS: ("passes", "pass"),
}
_NOT_JUDGED = ("is not judged: no gates", "are not judged: no gates")
