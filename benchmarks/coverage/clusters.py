"""Samples in clusters: every interval, gate metric and comparison of an audit whose samples say what they belong to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from benchmarks.coverage.data import LEVELS, SLACK, Floats, Ints
from benchmarks.coverage.judge import Cell, cell
from benchmarks.coverage.metrics import lies_outside
from benchmarks.decide import fleet_config, truth
from jobs.audit.judging.assemble import Grouping, series_result
from jobs.audit.judging.attributes import fairness_results
from jobs.fleetfile.tree import FleetConfig
from services.numerics.change import changes, decide
from services.numerics.intervals.clusters import one_of_each
from services.records import Estimate, Series, SeriesResult

CLASSES = 4
LAYOUTS: dict[str, tuple[int, int, bool]] = {
    # clusters a class, samples of each at most, whether a cluster has samples of every class
    "30 of up to 5": (30, 5, False),
    "60 of up to 20": (60, 20, False),
    "60 of up to 20, of all classes": (60, 20, True),
    "200 of 2": (200, 2, False),
}
KINDS = ("0 or 1", "in [0, 1]", "conditional")
NAMES = tuple(map(str, range(CLASSES)))
PROMISES = (
    ("wcr", ", lower limit"),
    ("wcr", ", upper limit"),
    *((metric, "") for metric in ("aggregate", "rdi", "nrgc", "fp")),
)
LIKENESS = 0.5
"""Sum of the parameters of the beta distribution of a cluster's rate: its samples are nearly all alike."""


def cells(runs: int) -> Iterator[Cell]:
    """Metrics by class, of plain and conditional series; false flags of comparisons; gaps between groups."""
    for index, layout in enumerate(LAYOUTS):
        for kind in KINDS:
            yield from of_metrics(layout, kind, runs // 5, np.random.default_rng([16, index, len(kind)]))
        yield from of_flags(layout, runs // 5, np.random.default_rng([17, index]))
        yield from of_gaps(layout, runs // 5, np.random.default_rng([18, index]))
    yield from of_metrics([*LAYOUTS][1], "0 or 1", runs // 5, np.random.default_rng(19), clustered=False)


def drawn(layout: str, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Classes and clusters of samples: clusters have 1 to so many of a class, all sizes alike."""
    count, most, everywhere = LAYOUTS[layout]
    sizes = rng.integers(1, most + 1, (CLASSES, count)) if most > 2 else np.full((CLASSES, count), most)
    labels = np.repeat(np.arange(CLASSES), sizes.sum(axis=1))
    names = np.arange(count) if everywhere else np.arange(CLASSES * count)
    return labels, np.repeat(np.resize(names, CLASSES * count), sizes.ravel())


def rates(means: Floats, labels: Ints, clusters: Ints, rng: np.random.Generator) -> Floats:
    """Of each sample, the rate of its cluster in its class."""
    pairs, place = np.unique(np.stack([labels, clusters]), axis=1, return_inverse=True)
    mean = means[pairs[0]]
    return np.asarray(rng.beta(LIKENESS * mean, LIKENESS * (1 - mean))[place.ravel()])


def of_metrics(
    layout: str, kind: str, runs: int, rng: np.random.Generator, *, clustered: bool = True
) -> Iterator[Cell]:
    """The limits of each metric by class, through the function that judges; without the clusters for comparison."""
    means = np.linspace(0.6, 0.9, CLASSES)
    truths = {metric: float(means.mean()) if metric == "aggregate" else truth(metric, means) for metric, _ in PROMISES}
    configs = {level: fleet_config(level) for level in LEVELS}
    missed = {(*promise, level): list[bool]() for promise in PROMISES for level in LEVELS}
    for _ in range(runs):
        labels, clusters = drawn(layout, rng)
        rate = rates(means, labels, clusters, rng)
        scores = (rng.random((1 if kind == "0 or 1" else 2, rate.size)) < rate).mean(axis=0)
        for level, config in configs.items():
            result = profile(scores, labels, clusters if clustered else None, kind, config, rng)
            for metric, side in PROMISES:
                found = result.metric(metric)
                missed[metric, side, level].append(lies_outside(truths[metric], _sides(found, side)))
    name = "clusters" if clustered else "samples in clusters, without the column"
    for (metric, side, level), flags in missed.items():
        yield cell(f"{metric}{side} of {name}, {kind}", layout, level, flags, exact=clustered)


def _sides(found: Estimate, side: str) -> Estimate:
    """Both limits, or one of them with the other out of the way."""
    if not side:
        return found
    return replace(found, high=1.0) if side == ", lower limit" else replace(found, low=0.0)


def profile(
    scores: Floats, labels: Ints, clusters: Ints | None, kind: str, config: FleetConfig, rng: np.random.Generator
) -> SeriesResult:
    """Of one simulated audit. A conditional series counts four samples in five."""
    series = Series("s", "s", 1.0, binary=kind == "0 or 1", conditional=kind == "conditional")
    extras = {"correct": (rng.random(labels.size) < 0.8).astype(float)}
    classes = Grouping("class", labels, NAMES)
    return series_result(series, scores, extras, classes, config, clusters=clusters)


def of_flags(layout: str, runs: int, rng: np.random.Generator) -> Iterator[Cell]:
    """Two audits of equal models: any class flagged."""
    means, flagged = np.linspace(0.6, 0.9, CLASSES), {level: list[bool]() for level in LEVELS}
    for _ in range(runs):
        labels, clusters = drawn(layout, rng)
        before, after = ((rng.random(labels.size) < rates(means, labels, clusters, rng)).astype(float) for _ in "ab")
        for level, flags in flagged.items():
            found = changes(before, after, labels, CLASSES, bound=1.0, alpha=level, binary=True, clusters=clusters)
            flags.append(any(flag != "not separated" for flag, _ in decide([*found.worse], [*found.better], level)))
    for level, flags in flagged.items():
        yield cell("any false flag between two audits of clusters", layout, level, flags)


def of_gaps(layout: str, runs: int, rng: np.random.Generator) -> Iterator[Cell]:
    """The gap in how often a class is missed, between two groups that are alike: one sample of each cluster."""
    missed = {level: list[bool]() for level in LEVELS}
    for _ in range(runs):
        labels, clusters = drawn(layout, rng)
        right = rng.random(labels.size) < rates(np.full(CLASSES, 0.7), labels, clusters, rng)
        people = Grouping("sex", (clusters % 2).astype(np.int64), ("f", "m"))
        rows = one_of_each(clusters, int(rng.integers(2**31)))
        scores = {"label": labels[rows], "clean:predicted": np.where(right, labels, (labels + 1) % CLASSES)[rows]}
        for level, flags in missed.items():
            (found,) = fairness_results(scores, [people.at(rows)], NAMES, level)
            flags.append((found.worst["eopp"].low or 0.0) > SLACK)
    for level, flags in missed.items():
        yield cell("EOpp of clusters", layout, level, flags)
