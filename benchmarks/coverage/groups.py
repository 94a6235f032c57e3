"""Gaps between groups, refuted shares, and tolerance to attributes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.coverage.data import LEVELS, SLACK, Floats, Ints
from benchmarks.coverage.judge import Cell, cell
from benchmarks.coverage.metrics import lies_outside
from jobs.audit.judging.assemble import Grouping
from jobs.audit.judging.attributes import fairness_results
from services.numerics.attributes.groupfair import METRICS, Gaps, GroupCounts, Metric, gaps
from services.numerics.attributes.tolerance import Boundaries, count, projection_metrics
from services.numerics.evidence.refutation import refute

NAMES = {"dp": "DP", "eopp": "EOpp", "eodd": "EOdd", "aodd": "AOdd"}
PEOPLE: dict[str, tuple[tuple[int, ...], Floats, Floats, Floats]] = {
    # name: group sizes, share with the truth Y+, true positive rate, false positive rate
    "1 and 1": ((1, 1), np.array([0.5, 0.5]), np.array([0.9, 0.4]), np.array([0.2, 0.1])),
    "3 and 60": ((3, 60), np.array([0.3, 0.6]), np.array([0.7, 0.7]), np.array([0.1, 0.3])),
    "5, 20, 20 and 100, all alike": ((5, 20, 20, 100), np.full(4, 0.2), np.full(4, 0.8), np.full(4, 0.1)),
    "40 and 40, none wrong": ((40, 40), np.array([0.5, 0.5]), np.ones(2), np.zeros(2)),
    "60, 60 and 30, the last of positives alone": (
        (60, 60, 30),
        np.array([0.5, 0.5, 1.0]),
        np.array([0.9, 0.7, 0.4]),
        np.array([0.1, 0.3, 0.5]),
    ),
    "200 and 30, rare truth": ((200, 30), np.array([0.02, 0.05]), np.array([0.6, 0.9]), np.array([0.01, 0.05])),
}


def cells(runs: int) -> Iterator[Cell]:
    """All of it."""
    for index, name in enumerate(PEOPLE):
        yield from of_gaps(name, 10 * runs, np.random.default_rng([6, index]))
    for sizes in ((1, 1), (3, 12), (12, 48), (150, 50)):
        yield from of_largest_gap(sizes, runs, np.random.default_rng([7, *sizes]))
    yield from of_refuted(runs, np.random.default_rng(8))
    for samples, dimensions in ((3, 2), (40, 3)):
        yield from of_projection(samples, dimensions, runs, np.random.default_rng([9, samples]))


def of_gaps(name: str, runs: int, rng: np.random.Generator) -> Iterator[Cell]:
    """DP, EOpp, EOdd and AOdd of one decision; the truth is that of the groups that have the rates."""
    sizes, share, tpr, fpr = PEOPLE[name]
    size = np.broadcast_to(np.array(sizes), (runs, len(sizes)))
    positive = rng.binomial(size, share)
    hits, alarms = rng.binomial(positive, tpr), rng.binomial(size - positive, fpr)
    counts = GroupCounts(size, positive, hits + alarms, hits, alarms)
    rates = {"dp": share * tpr + (1 - share) * fpr, "tpr": tpr, "fpr": fpr}
    for level in LEVELS:
        fairness = gaps(counts, delta=level)
        for metric in METRICS:
            off = outside(fairness[metric], true_gap(metric, rates, counts))
            yield cell(f"{NAMES[metric]} of one decision", name, level, off)


def true_gap(metric: Metric, rates: dict[str, Floats], counts: GroupCounts) -> Floats:
    """(runs,) the gap of the true rates (G,) of the groups that have them; NaN where it is undefined."""

    def gap(name: str, trials: Ints) -> Floats:
        known = trials > 0
        spread = np.where(known, rates[name], -np.inf).max(axis=-1) - np.where(known, rates[name], np.inf).min(axis=-1)
        return np.where(known.sum(axis=-1) >= 2, spread, np.nan)

    if metric == "dp":
        return gap("dp", counts.size)
    tpr, fpr = gap("tpr", counts.positive), gap("fpr", counts.negative)
    if metric == "eopp":
        return tpr
    first, two = np.where(np.isnan(tpr), fpr, tpr), np.where(np.isnan(fpr), tpr, fpr)
    return np.maximum(first, two) if metric == "eodd" else (first + two) / 2


def outside(found: Gaps, truth: Floats) -> np.ndarray:
    """Whether a defined gap's limits miss the truth."""
    with np.errstate(invalid="ignore"):
        return found.defined & ((found.low > truth + SLACK) | (found.high < truth - SLACK))


def of_largest_gap(sizes: tuple[int, int], runs: int, rng: np.random.Generator) -> Iterator[Cell]:
    """The largest DP and EOpp over all classes of a classifier, which is what a gate is judged on."""
    group, classes = np.repeat([0, 1], sizes), ("a", "b", "c")
    right = np.array([[0.9, 0.5, 0.7], [0.8, 0.8, 0.7]])
    wrong = (1 - right) / 2
    chance = (right + wrong.sum(axis=1, keepdims=True) - wrong) / 3
    labels = rng.integers(0, 3, (runs, group.size))
    hit = rng.random(labels.shape) < right[group, labels]
    predicted = np.where(hit, labels, (labels + rng.integers(1, 3, labels.shape)) % 3)
    grouping, setting = Grouping("sex", group, ("f", "m")), f"3 classes, {sizes[0]} and {sizes[1]} samples"
    observed = np.stack([[((labels == k) & (group == g)).any(axis=1) for k in range(3)] for g in (0, 1)]).all(axis=0)
    truth = {
        "dp": np.full(runs, np.abs(chance[0] - chance[1]).max()),
        "eopp": np.where(observed, np.abs(right[0] - right[1])[:, None], 0.0).max(axis=0),
    }
    for level in LEVELS:
        missed: dict[str, list[bool]] = {name: [] for name in truth}
        for run, (label, chosen) in enumerate(zip(labels, predicted, strict=True)):
            (result,) = fairness_results({"label": label, "clean:predicted": chosen}, [grouping], classes, level)
            for name in ("dp", "eopp"):
                missed[name].append(lies_outside(truth[name][run], result.worst[name]))
        for name, flags in missed.items():
            yield cell(f"largest {NAMES[name]} of all decisions", setting, level, flags)


def of_refuted(runs: int, rng: np.random.Generator) -> Iterator[Cell]:
    """The share of refuted claims in all, and of all classes simultaneously."""
    for name, sizes, share in (
        ("1, 2 and 3, none refuted", (1, 2, 3), np.zeros(3)),
        ("1, 5 and 60", (1, 5, 60), np.array([0.2, 0.5, 0.9])),
        ("40, 40 and 40, nearly all refuted", (40, 40, 40), np.array([1.0, 0.98, 0.95])),
    ):
        labels = np.repeat(np.arange(3), sizes)
        refuted = rng.random((runs, labels.size)) < share[labels]
        yield from _refuted(name, labels, refuted.astype(np.float64), share)


def _refuted(name: str, labels: Ints, refuted: Floats, share: Floats) -> Iterator[Cell]:
    ones, zeros = np.ones(labels.size), np.zeros(labels.size)
    truth = float(share[labels].mean())
    for level in LEVELS:
        results = [refute(ones, 1.5 - row, ones, zeros, labels, classes=3, delta=level) for row in refuted]
        yield cell("refuted share", name, level, [lies_outside(truth, each.overall) for each in results])
        flags = [any(lies_outside(p, e) for p, e in zip(share, each.classes, strict=True)) for each in results]
        yield cell("refuted shares of all classes simultaneously", name, level, flags)


STEPS = np.array([0.0, 0.25, 0.5, 1.0])
"""How far a factor moves before the label flips; 1 where it never does."""
SHARES = np.array([[0.1, 0.2, 0.3, 0.4], [0.4, 0.4, 0.2, 0.0], [0.0, 0.5, 0.0, 0.5]])
"""How often, by dimension."""


def of_projection(samples: int, dimensions: int, runs: int, rng: np.random.Generator) -> Iterator[Cell]:
    """Tol, Dev and Cou, and Tol and Dev of all dimensions simultaneously, of factors that move by `STEPS`."""
    size = (runs, samples, 2)
    moves = np.stack([rng.choice(STEPS, size, p=share) for share in SHARES[:dimensions]], axis=2)
    tol = 2 * SHARES[:dimensions] @ STEPS
    dev = np.array([share @ np.abs(STEPS[:, None] - STEPS) @ share / 2 for share in SHARES[:dimensions]])
    truth = {"tol": float(tol.mean()), "dev": float(dev.mean()), "cou": float(count(tol))}
    setting, zero, first = f"n = {samples}, {dimensions} dimensions", np.zeros(dimensions), np.ones(dimensions)
    for level in LEVELS:
        results = [
            projection_metrics(
                Boundaries.of(move * [-1.0, 1.0], move == 1.0, zero, first), delta=level, seed=run, draws=400
            )
            for run, move in enumerate(moves)
        ]
        for name, value in truth.items():
            missed = [lies_outside(value, getattr(each, name)) for each in results]
            title = name.capitalize() + (" (bootstrap)" if name == "cou" else "")
            yield cell(title, setting, level, missed, exact=name != "cou")
        for name, values in (("tol", tol), ("dev", dev)):
            rows = [getattr(each, f"{name}_by_dimension") for each in results]
            missed = [any(lies_outside(v, e) for v, e in zip(values, row, strict=True)) for row in rows]
            yield cell(f"{name.capitalize()} of all dimensions simultaneously", setting, level, missed)
