"""What to do next, in sentences from the record's numbers: how many samples decide, where to look, what to drop."""

from __future__ import annotations

import re
from collections.abc import Iterator

from services.metrics import METRICS
from services.records import AuditResult, Estimate, GateResult, ModelResult, Outcome
from tracking.bundle.headline import deciding_gates, is_refuted
from tracking.bundle.reasons.why import class_words, headline_confusion
from tracking.bundle.summary import find, worst_first
from tracking.bundle.words import share_words
from tracking.names import series_key, shorten

MOST = 5
"""Sentences."""
MOST_MODELS = 2
"""That get a sentence of each kind."""
BARE = 0.05
"""Upper limit of the share that an attack leaves, below which a model has no robustness to speak of."""
MOST_TIMES = 100
"""As many samples; beyond that a sentence would name a number that nobody collects."""


def next_steps(audit: AuditResult) -> list[str]:
    """At most five: attacks that say nothing, labels to look at, samples that decide, claims that are refuted."""
    judged = worst_first([model for model in audit.models if model.outcome is not Outcome.ERROR])
    failed = [model for model in judged if model.outcome is Outcome.FAIL][:MOST_MODELS]
    open_ones = [model for model in judged if model.outcome is Outcome.UNDECIDED]
    steps = [*_faults(audit), *_inadequate(judged)]
    bare = {model.spec.name: step for model in failed for step in _without_robustness(model)}
    for model in failed:
        steps += [bare[model.spec.name]] if model.spec.name in bare else _look(audit, model)
    steps += [line for model in failed[:1] if model.spec.name not in bare for line in _repair(model)]
    steps += [line for model in open_ones for line in _decide(audit, model)][:MOST_MODELS]
    steps += _claims(judged)
    return steps[:MOST]


def _faults(audit: AuditResult) -> Iterator[str]:
    broken = [model for model in audit.models if model.outcome is Outcome.ERROR]
    if broken:
        yield f"Fix {_names(broken)}, which could not be audited; the reasons are below, model by model."


def _inadequate(models: list[ModelResult]) -> Iterator[str]:
    weak: dict[str, list[ModelResult]] = {}
    for model in models:
        for attack in model.attacks:
            if attack.adequacy == "inadequate":
                weak.setdefault(attack.name, []).append(model)
    for name, hit in weak.items():
        yield (
            f"Attack {_names(hit)} by another attack than {name}, which was inadequate there: by `square`, which needs "
            "no gradients, or by `autoattack`."
        )


def _without_robustness(model: ModelResult) -> Iterator[str]:
    """What helps a model of which an attack left next to nothing: neither single classes nor labels are its fault."""
    limits = [gate.threshold for gate in deciding_gates(model.gates) if gate.threshold is not None]
    results = [result for limit in limits if (result := find(model, series_key(limit.measure, limit.grouping)))]
    attacked = (result for result in results if result.series.attack and result.series.binary)
    bare = next((result for result in attacked if (high := result.aggregate.high) is not None and high <= BARE), None)
    if bare is not None:
        yield (
            f"{shorten(model.spec.name, 40)}: it has next to no robustness in any class, {share_words(bare.aggregate)} "
            f"under {bare.series.title}. Train it against attacks, as `classwise train` does; better labels or more "
            "samples of single classes do not give it that."
        )


def _look(audit: AuditResult, model: ModelResult) -> Iterator[str]:
    confusion = headline_confusion(model)
    if confusion is None or not confusion.pairs:
        return
    pair, names = confusion.pairs[0], audit.samples.classes
    one, other = class_words(names, pair.label), class_words(names, pair.predicted)
    yield (
        f"{shorten(model.spec.name, 40)}: look at the {pair.count:,} samples of {one} that go to {other}. Where their "
        f"labels are right, more training samples of {one} that resemble {other} are what it lacks."
    )


def _repair(model: ModelResult) -> Iterator[str]:
    """The cheapest remedy, where a worst class failed."""
    worst = [gate.threshold for gate in deciding_gates(model.gates) if gate.threshold is not None]
    weakest = {metric.name for metric in METRICS.values() if metric.weakest is not None}
    able = [limit for limit in worst if limit.grouping == "class" and limit.metric in weakest]
    series = next((find(model, series_key(limit.measure, "class")) for limit in able), None)
    if series is not None and series.series.can_be_fitted:
        name = model.spec.name
        plain = name if re.fullmatch(r"\w[\w.-]{0,39}", name, re.ASCII) else "NAME"  # a shell reads others otherwise
        yield (
            f"{shorten(name, 40)}: `classwise repair FLEET_FILE --model {plain} --under {series.series.key}` tries "
            "class offsets, the cheapest remedy, and shows on samples kept apart what they do; `--propose` lists more."
        )


def _decide(audit: AuditResult, model: ModelResult) -> Iterator[str]:
    """How many samples would decide the gate that is open, if the score stays as it is."""
    for gate in deciding_gates(model.gates):
        if gate.wanted:
            yield f"{shorten(model.spec.name, 40)}: {gate.text} is open; {gate.wanted}."
            return
        if _is_undercut(model, gate):
            yield (
                f"{shorten(model.spec.name, 40)}: {gate.text} is open, because a probe broke more samples than the "
                "gate can spare. Measure it by an attack that finds them: `autoattack`, or more steps and restarts."
            )
            return
        needed = samples_that_decide(model, gate)
        if needed is not None and not gate.objected:
            now, then, place = needed
            who = class_words(audit.samples.classes, place)
            yield (
                f"{shorten(model.spec.name, 40)}: a new audit on about {_rounded(then):,} samples of {who} instead of "
                f"{now:,} would decide {gate.text}, if its score stays; to add them step by step, set `decide: early`."
            )
            return


def _is_undercut(model: ModelResult, gate: GateResult) -> bool:
    """Whether the limit of an adequate attack clears the gate, and what its probe broke keeps it from a pass."""
    limit, low = gate.threshold, gate.estimate.low
    if limit is None or limit.sign != ">=" or low is None or low < limit.value:
        return False
    mine = [attack for attack in model.attacks if limit.measure in attack.series]
    return gate.outcome is Outcome.UNDECIDED and any(attack.adequacy == "adequate" for attack in mine)


def samples_that_decide(model: ModelResult, gate: GateResult) -> tuple[int, int, int] | None:
    """Samples of the weakest class now, about as many as would decide a gate on it, and its index.

    The distance between score and limit falls with the square root of the samples, so it falls to the distance between
    score and threshold with ``n (limit distance / threshold distance)^2`` of them. None for other metrics, for a score
    on the threshold, and where that is over a hundred times as many.
    """
    limit, estimate = gate.threshold, gate.estimate
    if limit is None or limit.metric != "wcr" or limit.grouping != "class" or estimate.value is None:
        return None
    result = find(model, series_key(limit.measure, limit.grouping))
    group = next((g for g in result.groups if g.name in result.worst), None) if result else None
    gap, width = abs(estimate.value - limit.value), _width(estimate, limit.value)
    if group is None or width is None or not group.n or gap == 0:
        return None
    times = (width / gap) ** 2
    return (group.n, max(group.n + 1, round(group.n * times)), group.index) if 1 < times <= MOST_TIMES else None


def _width(estimate: Estimate, threshold: float) -> float | None:
    """From the score to the limit that is to pass the threshold."""
    if estimate.value is None:
        return None
    side = estimate.high if estimate.value < threshold else estimate.low
    return None if side is None else abs(side - estimate.value)


def _rounded(count: int) -> int:
    """Two digits that count."""
    return int(float(f"{count:.2g}"))


def _claims(models: list[ModelResult]) -> Iterator[str]:
    false = [model for model in models if any(is_refuted(claim.overall) for claim in model.refuted)]
    if false:
        yield f"Do not rely on the GREAT score of {_names(false)}: attacks refuted it. Gate on survival of an attack."


def _names(models: list[ModelResult]) -> str:
    shown = ", ".join(shorten(model.spec.name, 30) for model in models[:3])
    return shown if len(models) <= 3 else f"{shown} and {len(models) - 3} more"
