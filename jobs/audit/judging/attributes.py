"""From per-sample scores to what is said of attributes: gaps between groups, and tolerance to latent factors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from jobs.audit.judging.assemble import Grouping
from jobs.audit.plan import ModelPlan
from jobs.fleetfile.inputs import crossed
from jobs.fleetfile.tree import FleetConfig
from services.measures.latent.columns import boundaries_of, dimensions_of
from services.measures.projection import Projection
from services.numerics.attributes.groupfair import METRICS, Gaps, GroupCounts, Metric, class_counts, gaps
from services.numerics.attributes.tolerance import Boundaries, ProjectionMetrics, metrics_by_group, projection_metrics
from services.records import Estimate
from services.records.fairness import FairnessResult, LatentDimension, ProjectedGroup, ProjectionResult, TaskGaps
from tracking.bundle.scores import Scores, columns_beside

PREDICTED = "clean:predicted"
"""The column of decisions; the measure `clean` writes it."""
MOST_TASKS = 100
"""Decisions kept in the record of an attribute, those with the largest EOdd."""
PARTS = 10
"""Equal parts of the range in which flips are counted."""


def attribute_groupings(groups: Sequence[Grouping]) -> list[Grouping]:
    """Those that divide people or things otherwise than by class: a decision is not judged by what it decides."""
    return [grouping for grouping in groups if "class" not in crossed(grouping.name)]


def fairness_results(
    scores: Scores, groups: Sequence[Grouping], classes: Sequence[str], delta: float
) -> tuple[FairnessResult, ...]:
    """Group metrics of a model's decisions by each attribute; empty where `clean` was not measured.

    Args:
        scores: the model's columns, (N,) each.
        classes: K names; one decision each.
        delta: for each attribute and metric the intervals of all K decisions hold jointly (Bonferroni).
    """
    if PREDICTED not in scores:
        return ()
    return tuple(
        _fairness(scores["label"], scores[PREDICTED], grouping, classes, delta)
        for grouping in attribute_groupings(groups)
    )


def _fairness(
    labels: NDArray[np.int64], predicted: NDArray[np.int64], grouping: Grouping, classes: Sequence[str], delta: float
) -> FairnessResult:
    counts = class_counts(labels, predicted, grouping.codes, n_classes=len(classes), n_groups=len(grouping.names))
    by_metric = gaps(counts, delta=delta / len(classes))
    worst = {metric: _largest(by_metric[metric], classes) for metric in METRICS}
    order = np.argsort(-np.nan_to_num(by_metric["eodd"].value, nan=-1.0), kind="stable")[:MOST_TASKS]
    return FairnessResult(
        grouping=grouping.name,
        groups=grouping.names,
        sizes=tuple(counts.size[0].tolist()),
        worst={metric: estimate for metric, (estimate, _) in worst.items()},
        worst_task={metric: task for metric, (_, task) in worst.items()},
        tasks=tuple(_task(int(k), classes, counts, by_metric, grouping.names) for k in sorted(order)),
        n_tasks=len(classes),
        delta=delta,
        notes=tuple(_notes(grouping, by_metric["eodd"])),
        missing={metric: tuple(_missing(by_metric[metric], grouping.names, classes)) for metric in METRICS},
    )


def _missing(gap: Gaps, names: Sequence[str], classes: Sequence[str]) -> Iterator[str]:
    """Groups that lack a rate of the metric: "f (class cat and 2 more)"."""
    for group, name in enumerate(names):
        lacking = np.flatnonzero(gap.missing[:, group])
        if lacking.size == len(classes):
            yield f"{name} (all classes)"
        elif lacking.size:
            more = f" and {lacking.size - 1} more" if lacking.size > 1 else ""
            yield f"{name} (class {classes[lacking[0]]}{more})"


def _task(
    k: int, classes: Sequence[str], counts: GroupCounts, by_metric: dict[Metric, Gaps], names: tuple[str, ...]
) -> TaskGaps:
    estimates: dict[str, Estimate] = {metric: by_metric[metric].estimate(names, (k,)) for metric in METRICS}
    return TaskGaps(k, classes[k], int(counts.positive[k].sum()), estimates)


def _largest(gap: Gaps, classes: Sequence[str]) -> tuple[Estimate, str]:
    """The largest gap of all decisions, its interval where all of theirs hold, and the class it is about."""
    if not gap.defined.any():
        return Estimate(None, reason="no decision has two groups with the samples that it needs"), ""
    place = int(np.nanargmax(gap.value))
    low, high = float(np.nanmax(gap.low)), float(np.nanmax(gap.high))
    undefined = int((~gap.defined).sum())
    reason = f"{undefined} of {len(classes)} decisions are undefined and not in it" if undefined else ""
    vacuous = low <= 0.0 and high >= 1.0
    return Estimate(float(gap.value[place]), low, high, reason, vacuous), classes[place]


def _notes(grouping: Grouping, eodd: Gaps) -> Iterator[str]:
    if len(grouping.names) < 2:
        yield f"{grouping.name} has one group only: there is nothing to compare."
        return
    lacking = eodd.missing.sum(axis=0)
    for name, count in zip(grouping.names, lacking.tolist(), strict=True):
        if count:
            left_out = f"{count} of {len(eodd.missing)} decisions"
            yield f"{grouping.name} {name} lacks a rate in {left_out}: no samples of the class, or none of the others."


def projection_results(
    item: ModelPlan, scores: Scores, groups: Sequence[Grouping], config: FleetConfig
) -> tuple[ProjectionResult, ...]:
    """Tol, Dev and Cou of a model for each projection that was measured."""
    measures = [table.measure for table in item.tables if isinstance(table.measure, Projection)]
    return tuple(_projection(measure, scores, groups, config) for measure in measures)


def _projection(
    measure: Projection, scores: Scores, groups: Sequence[Grouping], config: FleetConfig
) -> ProjectionResult:
    (series,) = measure.series()
    columns = columns_beside(scores, series.key)
    which = dimensions_of(columns, measure.dimensions)
    boundaries, delta = boundaries_of(columns, which), config.intervals.delta
    overall = projection_metrics(boundaries, delta=delta, seed=config.seed)
    return ProjectionResult(
        series=series.key,
        label=series.label,
        overall=_group("all", overall),
        dimensions=tuple(_dimensions(measure, which, boundaries, overall)),
        groups={grouping.name: tuple(_by_group(boundaries, grouping, config)) for grouping in groups},
        delta=delta,
    )


def _by_group(boundaries: Boundaries, grouping: Grouping, config: FleetConfig) -> Iterator[ProjectedGroup]:
    metrics = metrics_by_group(
        boundaries, grouping.codes, len(grouping.names), delta=config.intervals.delta, seed=config.seed
    )
    return (_group(name, group) for name, group in zip(grouping.names, metrics, strict=True))


def _group(name: str, metrics: ProjectionMetrics) -> ProjectedGroup:
    return ProjectedGroup(name, metrics.samples, metrics.tol, metrics.dev, metrics.cou, metrics.censored)


def _dimensions(
    measure: Projection, which: Sequence[int], boundaries: Boundaries, metrics: ProjectionMetrics
) -> Iterator[LatentDimension]:
    names = dict(measure.names)
    for place, d in enumerate(which):
        down, up = (_histogram(boundaries, place, side) for side in (0, 1))
        yield LatentDimension(
            index=d,
            name=names.get(d, f"d{d:03d}"),
            tol=metrics.tol_by_dimension[place],
            dev=metrics.dev_by_dimension[place],
            lean=metrics.lean_by_dimension[place],
            censored=metrics.censored_by_dimension[place],
            down=down,
            up=up,
        )


def _histogram(boundaries: Boundaries, place: int, side: int) -> tuple[int, ...]:
    """How many samples flip in each part of the way; a flip at the end of a part belongs to it."""
    moves = boundaries.moves[:, place, side][~boundaries.censored[:, place, side]]
    parts = np.clip(np.ceil(np.round(moves * PARTS, 9)).astype(np.int64) - 1, 0, PARTS - 1)
    return tuple(np.bincount(parts, minlength=PARTS).tolist())


def gate_estimate(results: Sequence[FairnessResult], grouping: str, metric: str) -> Estimate:
    """What a gate on dp, eopp, eodd or aodd is judged on: the largest gap of all decisions."""
    result = next((result for result in results if result.grouping == grouping), None)
    if result is None:
        return Estimate(None, reason=f"{metric} needs the measure clean and an attribute in groups")
    estimate = result.worst[metric]
    return replace(estimate, reason="") if estimate.value is not None else estimate


def gate_missing(results: Sequence[FairnessResult], grouping: str, metric: str) -> tuple[str, ...]:
    """Groups without a number that a gate on the metric needs."""
    result = next((result for result in results if result.grouping == grouping), None)
    return () if result is None else result.missing.get(metric, ())
