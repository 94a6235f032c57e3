"""All classes simultaneously, and RDI, NRGC, FP, WCR and the aggregate, by every method of a fleet file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks.coverage.data import BOUND, CLASSES, LEVELS, SLACK, Classes, Floats, Ints, coin, margins, point, stacked
from benchmarks.coverage.joined import metric_intervals, one_sided
from benchmarks.coverage.judge import Cell, cell
from services.numerics.disparity import Disparity, disparity
from services.numerics.gap import gap
from services.numerics.intervals.disparity import aggregate_interval, weakest_interval
from services.numerics.intervals.means import Intervals, Method
from services.records.estimates import Estimate

PENALTY = 0.5
FUNCTIONS = ("rdi", "nrgc", "fp")
METHODS: tuple[Method, ...] = ("betting", "empirical-bernstein", "hoeffding")

STRATIFIED = (
    Classes("1 + 1 fixed", (1, 1), (margins(0.9), point(0.0))),
    Classes("5 + 15 fixed", (5, 15), (margins(0.9), margins(0.2))),
    Classes("50 + 50 fixed, all 0 and all 1", (50, 50), (point(0.0), point(1.0))),
    Classes("1 + 1 fixed, 0 or 1", (1, 1), (coin(0.9), point(0.0))),
    Classes("5 + 15 fixed, 0 or 1", (5, 15), (coin(0.9), coin(0.2))),
    *(
        Classes(f"1 + 50 fixed, 0 or 1, one of mean {p:g}", (1, 50), (coin(p), point(0.0)))
        for p in (0.01, 0.051, 0.1, 0.22)
    ),
)


@dataclass(frozen=True)
class Box:
    """Limits (runs, K) of the classes of many data sets, in the scores' unit."""

    low: Floats
    high: Floats

    @classmethod
    def of(cls, scores: Floats, groups: Ints, runs: int, alpha: float, method: Method) -> Box:
        """One-sided limits at `alpha` each; what `simultaneous` and `weakest_interval` take them from."""
        limits = one_sided(scores, groups, int(groups.max()) + 1, bound=BOUND, alpha=alpha, method=method)
        return cls(limits.low.reshape(runs, -1), limits.high.reshape(runs, -1))


def cells(runs: int) -> Iterator[Cell]:
    """Class metrics of every set of classes, aggregates and generalisation errors."""
    for index, classes in enumerate(CLASSES):
        for method in ("clopper-pearson",) if classes.binary else METHODS:
            yield from of_classes(classes, method, runs, np.random.default_rng([2, index]))
    for index, classes in enumerate(STRATIFIED):
        yield from of_aggregate(classes, runs, np.random.default_rng([3, index]))
        yield from of_whole(classes, 10 * runs if classes.binary else runs, np.random.default_rng([4, index]))
    yield from of_gaps(runs, np.random.default_rng(5))


def of_classes(classes: Classes, method: Method, runs: int, rng: np.random.Generator) -> Iterator[Cell]:
    """The box of all classes, the ranges of RDI, NRGC and FP over it, and WCR."""
    kept = np.flatnonzero(classes.defined)
    scores = BOUND * classes.draw(rng, runs)
    labels = np.searchsorted(kept, classes.labels)
    groups, means = stacked(labels, kept.size, runs), BOUND * classes.means[kept]
    truth = disparity(means, np.ones(kept.size, dtype=bool), penalty=PENALTY)
    setting = f"{classes.name}, {method}"

    def box(alpha: float) -> Box:
        return Box.of(scores.ravel(), groups, runs, alpha, method)

    for level in LEVELS:
        joint = box(level / (2 * kept.size))
        yield cell("all classes simultaneously", setting, level, missed(joint, means).any(axis=1))
        yield from _functions(setting, level, joint, class_means(scores, labels, kept.size), truth, method)
        low, high = box(level).low.min(axis=1), box(level / kept.size).high.min(axis=1)
        yield cell("WCR, lower limit", setting, level, low > means.min() + SLACK)
        yield cell("WCR, upper limit", setting, level, high < means.min() - SLACK)


def missed(box: Box, means: Floats) -> np.ndarray:
    """(runs, K) whether a class's mean lies outside its limits."""
    return (box.low > means + SLACK) | (box.high < means - SLACK)


def class_means(scores: Floats, labels: Ints, n_classes: int) -> Floats:
    """(runs, K) class means of scores (runs, N)."""
    return np.stack([scores[:, labels == k].mean(axis=1) for k in range(n_classes)], axis=1)


def _functions(setting: str, level: float, box: Box, means: Floats, truth: Disparity, method: Method) -> Iterator[Cell]:
    """RDI, NRGC and FP alone, and together; an undefined number cannot miss."""
    full = np.ones(means.shape[1], dtype=bool)
    outside = {name: np.zeros(len(means), dtype=bool) for name in FUNCTIONS}
    for run, (low, high, row) in enumerate(zip(box.low, box.high, means, strict=True)):
        limits = Intervals(low, high, full, full & False, method, level, BOUND)
        intervals = metric_intervals(
            disparity(row, full, penalty=PENALTY), limits, Estimate(None, reason="not asked for")
        )
        for name in FUNCTIONS:
            outside[name][run] = lies_outside(getattr(truth, name).value, getattr(intervals, name))
    for name in FUNCTIONS:
        yield cell(name.upper(), setting, level, outside[name])
    yield cell("RDI, NRGC and FP simultaneously", setting, level, np.logical_or.reduce(list(outside.values())))


def lies_outside(truth: float | None, found: Estimate) -> bool:
    """Whether the interval misses the truth."""
    if truth is None or found.low is None or found.high is None:
        return False
    return found.low > truth + SLACK or found.high < truth - SLACK


def of_aggregate(classes: Classes, runs: int, rng: np.random.Generator) -> Iterator[Cell]:
    """The mean of all samples where the class sizes were fixed in advance: independent, not of one mean."""
    scores = BOUND * classes.draw(rng, runs)
    truth = BOUND * float(classes.means[classes.labels].mean())
    for level in LEVELS:
        flags = [
            lies_outside(
                truth, aggregate_interval(row, bound=BOUND, delta=level, stratified=True, binary=classes.binary)
            )
            for row in scores
        ]
        yield cell("aggregate, class sizes fixed", classes.name, level, flags)


def of_whole(classes: Classes, runs: int, rng: np.random.Generator) -> Iterator[Cell]:
    """WCR over one group of an attribute that holds samples of several classes, the class sizes fixed."""
    scores = BOUND * classes.draw(rng, runs)
    truth, groups = BOUND * float(classes.means[classes.labels].mean()), np.zeros(classes.labels.size, dtype=np.int64)
    method: Method = "clopper-pearson" if classes.binary else "empirical-bernstein"
    rows, place = np.unique(np.sort(scores, axis=1), axis=0, return_inverse=True)
    for level in LEVELS:
        results = [
            weakest_interval(float(row.mean()), row, groups, 1, bound=BOUND, delta=level, method=method, mixed=True)
            for row in rows
        ]
        off = np.array([each.low is not None and each.low > truth + SLACK for each in results])[place.ravel()]
        yield cell("WCR over attributes, class sizes fixed, lower limit", classes.name, level, off)


def of_gaps(runs: int, rng: np.random.Generator) -> Iterator[Cell]:
    """Mean on training samples, drawn without replacement from those trained on, minus mean on test samples."""
    trained = rng.random(60) < 0.9
    for n in (1, 5, 30):
        train = np.stack([rng.permutation(trained)[:n] for _ in range(runs)]).astype(np.float64)
        test = (rng.random((runs, n)) < 0.7).astype(np.float64)
        truth = float(trained.mean()) - 0.7
        for level in LEVELS:
            flags = []
            for mine, other in zip(train, test, strict=True):
                sides = [aggregate_interval(x, bound=1.0, delta=level / 2, binary=True) for x in (mine, other)]
                flags.append(lies_outside(truth, gap(*sides, bound=1.0)))
            yield cell("generalisation error", f"{n} + {n}, 0 or 1", level, flags)
