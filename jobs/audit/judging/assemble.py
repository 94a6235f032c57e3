"""From per-sample scores to profiles, disparity, intervals and sentences: the same for every series and grouping."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from jobs.audit.plan import ModelPlan, Taken
from jobs.fleetfile.inputs import crossed
from jobs.fleetfile.tree import FleetConfig
from services.errors import MeasureError, Problem
from services.loading.protocols import Samples
from services.measures.measure import Measure
from services.metrics import Profiled, estimates, joint_estimates
from services.numerics.disparity import Disparity, disparity
from services.numerics.intervals.balanced import balanced_part, shifted, weighted_mean
from services.numerics.intervals.clusters import cluster_means
from services.numerics.intervals.disparity import aggregate_interval, not_separated
from services.numerics.intervals.means import Intervals, Method, simultaneous
from services.numerics.profile import Profile
from services.records import Estimate, GroupScore, Series, SeriesResult
from tracking.bundle.scores import CLUSTER, Scores, columns_beside

SATURATED_SHARE = 0.01
OFFSET_SHIFT = 0.1
NONE_CORRECT = "no correctly classified samples"


@dataclass(frozen=True)
class Grouping:
    """A partition of the samples: codes (N,) in [0, K) and K names."""

    name: str
    codes: NDArray[np.int64]
    names: tuple[str, ...]

    def at(self, rows: NDArray[np.int64]) -> Grouping:
        """The partition of some of the samples."""
        return replace(self, codes=self.codes[rows])


def groupings(samples: Samples, columns: Sequence[str]) -> list[Grouping]:
    """The classes, and each column or crossing of two columns asked for."""
    single = {"class": Grouping("class", samples.labels, tuple(samples.classes))}
    made = [single["class"]]
    for column in columns:
        sides = crossed(column)
        for side in sides:
            if side not in single:
                single[side] = _by_column(samples, side)
        made.append(single[column] if len(sides) == 1 else crossing(column, *(single[side] for side in sides)))
    return made


def crossing(name: str, rows: Grouping, columns: Grouping) -> Grouping:
    """Every pair of a group of one and a group of the other: a cell without samples stays, as an undefined group."""
    names = tuple(f"{row} / {column}" for row in rows.names for column in columns.names)
    return Grouping(name, rows.codes * len(columns.names) + columns.codes, names)


def _by_column(samples: Samples, column: str) -> Grouping:
    """A value of the source that no selected sample has stays, as an undefined group."""
    values = samples.groups[column]
    names = np.unique([*samples.group_names.get(column, ()), *np.unique(values)])
    return Grouping(column, np.searchsorted(names, values).astype(np.int64), tuple(str(name) for name in names))


def series_results(
    item: ModelPlan,
    scores: Scores,
    groups: Sequence[Grouping],
    config: FleetConfig,
    taken: Mapping[str, Taken] | None = None,
) -> Iterator[SeriesResult]:
    """One result a series of the model's measures and a grouping.

    Args:
        taken: the part of each table that an early decision rests on, by the table's key. Other groupings than the
            classes need all samples: classes were not sampled in proportion.
    """
    taken = taken or {}
    for table in item.tables:
        if table.measure is None:
            continue
        extras, part = extras_of(scores, table.measure), taken.get(table.key)
        for series in table.measure.series():
            for grouping in groups:
                if grouping.name == "class" or part is None:
                    rows = None if part is None else part.rows
                    yield series_result(
                        series, scores[series.key], extras, grouping, config, rows=rows, clusters=scores.get(CLUSTER)
                    )
                elif len(part.rows) == len(grouping.codes):
                    yield series_result(series, scores[series.key], extras, grouping, config)


def series_result(
    series: Series,
    values: NDArray[Any],
    extras: Scores,
    grouping: Grouping,
    config: FleetConfig,
    *,
    rows: NDArray[np.int64] | None = None,
    clusters: NDArray[np.int64] | None = None,
    times: float = 1.0,
) -> SeriesResult:
    """Profile, disparity and intervals of scores (N,) by group (N,).

    A conditional series counts the correctly classified samples only; both counts are kept.

    Args:
        rows: (n,) the samples that were measured in an audit that decides early, those of a class in the order in which
            they were taken. The limits then hold at every stopping time.
        clusters: (N,) which samples belong together; None where all are independent. The cluster is then the unit.
        times: how often each sample counts, to plan by.
    """
    whole = grouping
    if rows is not None:
        values, extras = values[rows], {name: column[rows] for name, column in extras.items()}
        grouping = grouping.at(rows)
    counted = _counted(series, values, extras)
    whole_scores = scores = values[counted]
    codes, n_groups = grouping.codes[counted], len(grouping.names)
    how = options_of(series, config, early=rows is not None, clustered=clusters is not None)
    how["times"] = times
    pooled: Options = {**how}
    if clusters is not None:
        whole_scores, _ = cluster_means(scores, np.zeros_like(codes), clusters[counted])
        scores, codes = cluster_means(scores, codes, clusters[counted])
    mixed = _stratified(config) and "class" not in crossed(grouping.name)
    if how["method"] == "betting" and mixed:
        how["method"] = "empirical-bernstein"  # so many of each class: no one mean in a group, which betting asks for
    profile = Profile.from_scores(scores, codes, n_groups, bound=series.bound)
    spread = disparity(profile.means, profile.defined, penalty=config.fp_lambda)
    box = simultaneous(scores, codes, n_groups, **how)
    data = Profiled(
        scores=scores,
        codes=codes,
        whole=whole_scores,
        means=profile.means,
        defined=profile.defined,
        disparity=spread,
        box=box,
        mixed=mixed,
        stratified=_stratified(config),
        how={**how},
        pooled={**pooled},
    )
    metrics = estimates(data)
    if rows is not None:
        metrics["aggregate"] = _in_proportion(values, grouping.codes, counted, whole, pooled)
    metrics["aggregate"] = aggregate = _with_reason(series, metrics["aggregate"])
    joint: dict[str, Estimate] = {}
    if (chosen_of := len(config.models)) > 1 and grouping.name == "class":
        share = how["delta"] / chosen_of
        joint = joint_estimates(replace(data, how={**how, "delta": share}, pooled={**pooled, "delta": share}))
        if rows is not None:
            joint["aggregate"] = _in_proportion(values, grouping.codes, counted, whole, {**pooled, "delta": share})
    near = not_separated(box, spread.worst[0]) if spread.worst else ()
    totals = _totals(series, values, counted, extras)
    return SeriesResult(
        series=series,
        grouping=grouping.name,
        metrics=metrics,
        worst=tuple(grouping.names[k] for k in spread.worst),
        not_separated=tuple(grouping.names[k] for k in near),
        missing=tuple(grouping.names[k] for k in spread.missing),
        groups=tuple(_rows(profile, box, _extra_means(extras, grouping), grouping, series)),
        method=box.method,
        delta=how["delta"],
        extras=totals,
        notes=(
            *(() if rows is None else (_early_note(len(rows), len(whole.codes)),)),
            *_notes(series, spread, box, aggregate, totals, grouping),
        ),
        measured=None if rows is None else len(rows),
        joint=joint,
    )


def _in_proportion(
    values: NDArray[Any], codes: NDArray[np.int64], counted: NDArray[np.bool_], whole: Grouping, pooled: Options
) -> Estimate:
    """The mean over all samples from a part in which classes have other shares."""
    sizes = np.bincount(whole.codes, minlength=len(whole.names))
    part, shift = balanced_part(codes, sizes)
    estimate = aggregate_interval(values[part & counted], **pooled)
    mean = weighted_mean(values, codes, sizes) if counted.all() else None
    return shifted(estimate, mean, shift, pooled["bound"])


def over_all_samples(series: Series, values: NDArray[Any], extras: Scores) -> tuple[Series, NDArray[Any]]:
    """A conditional series as one over all samples: those that are not counted score 0 (accuracy-weighted)."""
    return replace(series, conditional=False), np.where(_counted(series, values, extras), values, 0.0)


def aggregate_of(
    series: Series,
    values: NDArray[Any],
    extras: Scores,
    config: FleetConfig,
    *,
    delta: float,
    clusters: NDArray[np.int64] | None = None,
) -> tuple[Estimate, int]:
    """Mean of the scores that count, with its interval at level delta, and how many those are."""
    counted = _counted(series, values, extras)
    scores = values[counted]
    how: Options = {**options_of(series, config, clustered=clusters is not None), "delta": delta}
    if clusters is not None:
        scores, _ = cluster_means(scores, np.zeros(len(scores), dtype=np.int64), clusters[counted])
    estimate = aggregate_interval(scores, stratified=_stratified(config), **how)
    return _with_reason(series, estimate), len(scores)


def _with_reason(series: Series, estimate: Estimate) -> Estimate:
    return replace(estimate, reason=NONE_CORRECT) if estimate.value is None and series.conditional else estimate


def _stratified(config: FleetConfig) -> bool:
    """Whether the numbers of samples a class were fixed in advance."""
    return config.samples.per_class is not None or config.samples.limit is not None


def extras_of(scores: Scores, measure: Measure) -> Scores:
    """A measure's columns besides its series whose means say something, as it named them."""
    columns = columns_beside(scores, measure.series()[0].key)
    return {name: values for name, values in columns.items() if measure.column(name).averaged and values.ndim == 1}


class Options(TypedDict):
    """What all intervals of a series have in common."""

    bound: float
    delta: float
    method: Method | None
    binary: bool
    seed: int
    times: float


def options_of(series: Series, config: FleetConfig, *, early: bool = False, clustered: bool = False) -> Options:
    """How sure, for a series; of samples in clusters, whose means are no longer 0 or the bound."""
    binary = series.binary and not clustered
    fixed: Method | None = None if binary else config.intervals.method
    return {
        "bound": series.bound,
        "delta": config.intervals.delta,
        "method": "anytime" if early or config.intervals.anytime else fixed,
        "binary": binary,
        "seed": config.seed,
        "times": 1.0,
    }


def _totals(
    series: Series, values: NDArray[Any], counted: NDArray[np.bool_], extras: Scores
) -> dict[str, float | None]:
    """Means of the extra columns over all samples; of a conditional series also its mean with 0 where it is wrong."""
    totals = {name: _mean(column) for name, column in _numeric(extras)}
    if series.conditional:
        totals["accuracy_weighted"] = float(np.where(counted, values, 0.0).mean()) if len(values) else None
    return totals


def _counted(series: Series, values: NDArray[Any], extras: Scores) -> NDArray[np.bool_]:
    if not series.conditional:
        return np.ones(len(values), dtype=bool)
    if "correct" not in extras:
        place = f"{series.key} (conditional)"
        raise MeasureError(Problem(place, "a column `correct` beside it", ", ".join(sorted(extras)) or "none"))
    return extras["correct"].astype(bool)


def _rows(
    profile: Profile, box: Intervals, means: dict[str, list[float | None]], grouping: Grouping, series: Series
) -> Iterator[GroupScore]:
    n_all = np.bincount(grouping.codes, minlength=len(grouping.names))
    absent = NONE_CORRECT if series.conditional else "no samples"
    scores = profile.means  # a property: once, and not for each of 1,000 classes
    for k, name in enumerate(grouping.names):
        n = int(profile.counts[k])
        estimate = (
            Estimate(
                float(scores[k]),
                float(box.low[k]),
                float(box.high[k]),
                "the interval covers the whole range" if box.vacuous[k] else "",
                bool(box.vacuous[k]),
            )
            if n
            else Estimate(None, reason=absent if n_all[k] else "no samples")
        )
        yield GroupScore(k, name, n, int(n_all[k]), estimate, {key: column[k] for key, column in means.items()})


def _numeric(extras: Scores) -> Iterator[tuple[str, NDArray[np.float64]]]:
    for name, column in extras.items():
        if column.dtype.kind in "bfiu":
            yield name, column.astype(np.float64)


def _mean(column: NDArray[np.float64]) -> float | None:
    """Mean of the finite values; None when there are none."""
    finite = column[np.isfinite(column)]
    return float(finite.mean()) if finite.size else None


def _extra_means(extras: Scores, grouping: Grouping) -> dict[str, list[float | None]]:
    size = len(grouping.names)
    means: dict[str, list[float | None]] = {}
    for name, column in _numeric(extras):
        finite = np.isfinite(column)
        counts = np.bincount(grouping.codes[finite], minlength=size)
        sums = np.bincount(grouping.codes[finite], weights=column[finite], minlength=size)
        means[name] = [float(s / n) if n else None for s, n in zip(sums, counts, strict=True)]
    return means


def _early_note(measured: int, samples: int) -> str:
    part = f"{measured:,} of {samples:,} samples" if measured < samples else f"all {samples:,} samples"
    return f"Measured on {part}, in rounds: the limits hold at every stopping time."


def _notes(
    series: Series,
    spread: Disparity,
    box: Intervals,
    aggregate: Estimate,
    totals: dict[str, float | None],
    grouping: Grouping,
) -> Iterator[str]:
    """Plain sentences that a reader of the numbers must know."""
    saturated, correct = totals.get("saturated"), totals.get("correct")
    if saturated and correct and saturated / correct > SATURATED_SHARE:
        yield (
            f"{saturated / correct:.0%} of the correct samples' margins saturate: "
            "their scores tie, and a small disparity may only say so."
        )
    shifted = totals.get("offset_free")
    if shifted is not None and aggregate.value and abs(shifted - aggregate.value) > OFFSET_SHIFT * aggregate.value:
        yield (
            f"Removing each sample's mean logit moves the score from {aggregate.value:.4g} to {shifted:.4g}: "
            "compare sigmoid scores of models with different offsets with care."
        )
    vacuous = int(box.vacuous.sum())
    if vacuous:
        yield f"{vacuous} of {int(box.defined.sum())} groups have vacuous intervals: too few samples to say anything."
    if spread.missing:
        yield f"{len(spread.missing)} of {len(grouping.names)} groups are undefined and in no metric."
    if len(spread.worst) > 1:
        yield f"{len(spread.worst)} groups tie for the worst."
    finite = totals.get("finite")
    if finite is not None and finite < 1.0:
        yield f"{1.0 - finite:.2%} of the samples have NaN or infinite logits and count as wrong."
