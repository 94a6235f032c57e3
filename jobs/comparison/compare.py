"""An audit against an earlier one of its fleet: a paired test a class, series and model, with one error rate for all.

The two audits' kept scores are read one model at a time, and of it only what is compared; what stays in memory is a few
numbers a class.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from jobs.comparison.comparable import incomparable, measured, paired_rows, unpaired
from jobs.comparison.drift import drift
from jobs.comparison.moved_pairs import moved_pairs
from services.errors import MeasureError, StorageError
from services.numerics.change import Changes, Flag, changes, decide
from services.numerics.evidence.unpaired import unpaired_changes
from services.numerics.paired import NO_PAIR
from services.records import AuditResult, Estimate, Series
from tracking.bundle.comparison import OVERALL, Comparison, GroupChange, ModelChange, MovedPair, SeriesChange
from tracking.bundle.reasons.confusions import read_confusions
from tracking.bundle.scores import CLUSTER, Scores, read_kept_scores

UNPAIRED = "unpaired"
MOST_LISTED = 20_000
"""Classes listed in all; beyond it those without a flag are counted only."""


@dataclass(frozen=True)
class Kept:
    """An audit and the folder of its bundle."""

    result: AuditResult
    folder: str


@dataclass(frozen=True)
class _Pair:
    """A model in both audits, with its place in each."""

    name: str
    accepted: int
    now: int


@dataclass(frozen=True)
class _Tested:
    """What was found of one series: the classes, and all samples as a group of its own."""

    classes: Changes
    whole: Changes


@dataclass(frozen=True)
class _ModelTests:
    """A model in both audits: why a series was not compared, and what was found of the others."""

    name: str
    reasons: Mapping[str, str]
    tested: Mapping[str, _Tested]


def compare(accepted: Kept, now: Kept, *, level: float | None = None, nights: Sequence[Kept] = ()) -> Comparison:
    """Compare two audits.

    A series is compared when both audits measured it in the same way: in pairs on the same samples, unpaired where the
    samples are others; else the reason stands in its place. All samples in both count, those of a conditional series
    with 0 when misclassified. Level and seed are those of the audit `now`: the limits of all differences hold together
    with probability at least 1 - delta, and one or more flags are false with probability at most delta.

    Args:
        level: in place of the audit's delta, for one of many comparisons.
        nights: earlier audits whose scores of the same versions, on further samples, are added where samples changed.
    """
    pairs, alpha = list(_pairs(accepted.result, now.result)), level or delta_of(now.result)
    reasons = {pair.name: _reasons(accepted.result, now.result, pair) for pair in pairs}
    share = alpha / (2 * max(1, _most(now.result, pairs, reasons)))
    tests = [_model(accepted, now, pair, reasons[pair.name], share, nights) for pair in pairs]
    tested = [test for model in tests for test in model.tested.values()]
    flags = decide(_joined(tested, "worse"), _joined(tested, "better"), alpha)
    listed = sum(test.classes.counts.size for test in tested) <= MOST_LISTED
    taken = iter(flags)
    models = tuple(
        replace(_changes(model, now.result, taken, listed), moved=_moved(accepted, now, pair, alpha))
        for model, pair in zip(tests, pairs, strict=True)
    )
    return _summed(accepted.result, now.result, models, alpha)


def _summed(accepted: AuditResult, now: AuditResult, models: tuple[ModelChange, ...], alpha: float) -> Comparison:
    series = [change for model in models for change in model.series]
    whole = [change.overall.flag for change in series if change.overall is not None]
    worse, better = sum(change.worse for change in series), sum(change.better for change in series)
    classes = worse + better + sum(change.not_separated for change in series)
    return Comparison(
        fleet=now.fleet,
        audit_id=now.audit_id,
        compared_with=accepted.audit_id,
        started=now.started,
        compared_started=accepted.started,
        alpha=alpha,
        comparisons=classes + len(whole),
        worse=worse + whole.count("worse"),
        better=better + whole.count("better"),
        not_comparable=sum(bool(change.reason) for change in series),
        models=models,
        drift=drift(accepted, now),
        left_out=classes - sum(len(change.groups) for change in series),
    )


# --- what can be compared -----------------------------------------------------------------------------------------


def _pairs(accepted: AuditResult, now: AuditResult) -> Iterator[_Pair]:
    places = {model.spec.name: index for index, model in enumerate(accepted.models)}
    for index, model in enumerate(now.models):
        if model.spec.name in places:
            yield _Pair(model.spec.name, places[model.spec.name], index)


def _reasons(accepted: AuditResult, now: AuditResult, pair: _Pair) -> dict[str, str]:
    """For each series of a model in either audit why it cannot be compared in pairs, "" when it can."""
    before, after = measured(accepted, pair.accepted), measured(now, pair.now)
    keys = dict.fromkeys((*after.series, *before.series))
    return {key: UNPAIRED if unpaired(before, after, key) else incomparable(before, after, key) for key in keys}


def _most(now: AuditResult, pairs: Sequence[_Pair], reasons: Mapping[str, Mapping[str, str]]) -> int:
    """At most so many comparisons: known before any score is read, for the limits' level depends on it."""
    classes = sum(count > 0 for count in now.samples.counts)
    return (classes + 1) * sum(reason in ("", UNPAIRED) for pair in pairs for reason in reasons[pair.name].values())


def delta_of(result: AuditResult) -> float:
    """The level of an audit's intervals."""
    return float(result.config.get("intervals", {}).get("delta", 0.05))


def _moved(accepted: Kept, now: Kept, pair: _Pair, alpha: float) -> tuple[MovedPair, ...]:
    """Confusions that are others than before; none where a bundle has no table of them, or a damaged one."""
    try:
        earlier = read_confusions(accepted.folder, pair.accepted, accepted.result.models[pair.accepted].spec)
        today = read_confusions(now.folder, pair.now, now.result.models[pair.now].spec)
    except StorageError:
        return ()
    same = accepted.result.samples.classes == now.result.samples.classes
    return moved_pairs(earlier, today, accepted.result.samples.classes, alpha) if same else ()


# --- one model ----------------------------------------------------------------------------------------------------


def _model(
    accepted: Kept, now: Kept, pair: _Pair, reasons: dict[str, str], share: float, nights: Sequence[Kept]
) -> _ModelTests:
    keys = [key for key, reason in reasons.items() if not reason]
    apart = [key for key, reason in reasons.items() if reason == UNPAIRED]
    try:
        tested = _series(accepted, now, pair, keys, share) if keys else {}
        tested |= _unpaired(accepted, now, pair, apart, share, nights) if apart else {}
        fault = "" if tested else NO_PAIR
    except (StorageError, MeasureError) as error:
        tested, fault = {}, f"its scores cannot be compared: {error}"
    known = {key: "" if reason == UNPAIRED else reason for key, reason in reasons.items()}
    return _ModelTests(pair.name, {key: reason or fault for key, reason in known.items()}, tested)


def _series(accepted: Kept, now: Kept, pair: _Pair, keys: Sequence[str], share: float) -> dict[str, _Tested]:
    """What was found of each series; nothing without a sample in both audits."""
    before, after = _paired_scores(accepted, now, pair, keys)
    series = measured(now.result, pair.now).series
    if not after["label"].size:
        return {}
    return {key: _tested(series[key], before[key], after, now.result, share) for key in keys}


def _unpaired(
    accepted: Kept, now: Kept, pair: _Pair, keys: Sequence[str], share: float, nights: Sequence[Kept]
) -> dict[str, _Tested]:
    """What was found of each series on other samples than before, together with those of earlier nights."""
    before = _kept_columns(accepted, pair.accepted, keys)
    parts = [_kept_columns(each, place, keys) for each, place in _same_version(accepted, now, pair, keys, nights)]
    after = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    series, changes = measured(now.result, pair.now).series, {}
    for key in keys:

        def against(groups: tuple[NDArray[Any], NDArray[Any]], count: int, key: str = key) -> Changes:
            clusters = (before[CLUSTER], _apart(parts)) if CLUSTER in before and CLUSTER in after else None
            how: dict[str, Any] = {"bound": series[key].bound, "binary": series[key].binary, "clusters": clusters}
            return unpaired_changes(before[key], after[key], groups, count, alpha=share, **how)

        labels = before["label"], after["label"]
        whole = against((np.zeros_like(labels[0]), np.zeros_like(labels[1])), 1)
        changes[key] = _Tested(against(labels, len(now.result.samples.classes)), whole)
    return changes


def _apart(parts: Sequence[Scores]) -> NDArray[np.int64]:
    """Clusters of several audits: those of one are none of another."""
    starts = np.cumsum([0, *(int(part[CLUSTER].max()) + 1 for part in parts)])
    return np.concatenate([part[CLUSTER] + start for part, start in zip(parts, starts, strict=False)])


def _kept_columns(audit: Kept, place: int, keys: Sequence[str]) -> Scores:
    columns = ["id", "label", *keys, *([CLUSTER] if audit.result.samples.intake.clusters else [])]
    return read_kept_scores(audit.folder, place, audit.result.models[place].spec, columns)


def _same_version(
    accepted: Kept, now: Kept, pair: _Pair, keys: Sequence[str], nights: Sequence[Kept]
) -> list[tuple[Kept, int]]:
    """The audit itself, and those nights that measured the same series of the same weights on samples of their own."""
    own, chosen = measured(now.result, pair.now), [(now, pair.now)]
    contents = {own.content, accepted.result.samples.content}
    for night in nights:
        place = next((i for i, model in enumerate(night.result.models) if model.spec.name == pair.name), None)
        if place is None or not own.weights:
            continue
        other = measured(night.result, place)
        if (
            other.weights == own.weights
            and other.content not in contents
            and all(unpaired(other, own, k) for k in keys)
        ):
            chosen.append((night, place))
            contents.add(other.content)
    return chosen


def _paired_scores(accepted: Kept, now: Kept, pair: _Pair, keys: Sequence[str]) -> tuple[Scores, Scores]:
    """The columns of both audits, row by row of one sample; clusters are those of the later one."""
    old, new = _kept_columns(accepted, pair.accepted, keys), _kept_columns(now, pair.now, keys)
    old_rows, new_rows = paired_rows(old, new)
    return {k: v[old_rows] for k, v in old.items()}, {k: v[new_rows] for k, v in new.items()}


def _tested(
    series: Series,
    before: NDArray[Any],
    scores: Scores,
    now: AuditResult,
    share: float,
) -> _Tested:
    samples, seed = now.config.get("samples", {}), int(now.config.get("seed", 0))
    stratified = samples.get("per_class") is not None or samples.get("limit") is not None

    def against(groups: NDArray[np.int64], count: int, mixed: bool) -> Changes:
        return changes(
            before,
            scores[series.key],
            groups,
            count,
            bound=series.bound,
            alpha=share,
            binary=series.binary,
            stratified=mixed,
            clusters=scores.get(CLUSTER),
            seed=seed,
        )

    labels = scores["label"]
    return _Tested(against(labels, len(now.samples.classes), False), against(np.zeros_like(labels), 1, stratified))


# --- records ------------------------------------------------------------------------------------------------------


def _joined(tested: Sequence[_Tested], side: Literal["worse", "better"]) -> list[float]:
    """The p-values of all comparisons in the order in which `_changes` takes their flags."""
    return [float(p) for test in tested for part in (test.classes, test.whole) for p in getattr(part, side)]


def _changes(model: _ModelTests, now: AuditResult, flags: Iterator[tuple[Flag, float]], listed: bool) -> ModelChange:
    known = {result.series.key: result.series for each in now.models for result in each.series}
    names = now.samples.classes
    series = []
    for key, reason in model.reasons.items():
        title = known[key].title if key in known else key
        if (tested := model.tested.get(key)) is None:
            series.append(SeriesChange(key, title, reason))
            continue
        classes = list(_groups(tested.classes, names, flags))
        overall = next(_groups(tested.whole, (OVERALL,), flags))
        kinds = [change.flag for change in classes]
        series.append(
            SeriesChange(
                key,
                title,
                tests=tuple(dict.fromkeys((tested.classes.test, tested.whole.test))),
                overall=replace(overall, index=-1),
                groups=tuple(change for change in classes if listed or change.flag != "not separated"),
                worse=kinds.count("worse"),
                better=kinds.count("better"),
                not_separated=kinds.count("not separated"),
                bound=known[key].bound,
            )
        )
    return ModelChange(model.name, tuple(series), "" if series else "no scores in either audit")


def _groups(changes: Changes, names: Sequence[str], flags: Iterator[tuple[Flag, float]]) -> Iterator[GroupChange]:
    """One change a group that has pairs; every group takes its flag."""
    for k, (name, (flag, p)) in enumerate(zip(names, flags, strict=False)):
        if changes.counts[k]:
            difference = Estimate(float(changes.difference[k]), float(changes.low[k]), float(changes.high[k]))
            yield GroupChange(
                k, name, int(changes.counts[k]), float(changes.before[k]), float(changes.after[k]), difference, p, flag
            )
