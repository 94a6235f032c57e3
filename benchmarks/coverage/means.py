"""One mean: every method of `services.numerics.intervals.means`, two-sided, on each side alone, and at every look."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.coverage.data import BOUND, LEVELS, SHAPES, SIZES, SLACK, Shape
from benchmarks.coverage.joined import one_sided
from benchmarks.coverage.judge import Cell, cell
from services.numerics.intervals.means import Method

METHODS: tuple[Method, ...] = ("betting", "empirical-bernstein", "hoeffding", "clopper-pearson")
CHEAP = 10
"""Methods without bisection take so many times the data sets."""


def cells(runs: int) -> Iterator[Cell]:
    """All methods, shapes and sizes."""
    for index, shape in enumerate(SHAPES):
        for n in SIZES:
            for method in METHODS:
                if method != "clopper-pearson" or shape.binary:
                    many = runs if method == "betting" else CHEAP * runs
                    rng = np.random.default_rng([1, index, n])
                    yield from of_method(method, shape, n, many, rng)


def of_method(method: Method, shape: Shape, n: int, runs: int, rng: np.random.Generator) -> Iterator[Cell]:
    """One method on `runs` data sets of n samples; each data set is a group of one call."""
    scores = BOUND * shape.draw(rng, runs * n)
    groups, truth, setting = np.repeat(np.arange(runs), n), BOUND * shape.mean, f"n = {n}, {shape.name}"

    def missed(alpha: float, anytime: bool = False) -> tuple[np.ndarray, np.ndarray]:
        limits = one_sided(scores, groups, runs, bound=BOUND, alpha=alpha, method=method, anytime=anytime)
        return limits.low > truth + SLACK, limits.high < truth - SLACK

    for level in LEVELS:
        low, high = missed(level / 2)
        yield cell(f"a mean, {method}", setting, level, low | high)
        low, high = missed(level)
        yield cell(f"lower limit of a mean, {method}", setting, level, low)
        yield cell(f"upper limit of a mean, {method}", setting, level, high)
        if method == "betting":
            low, high = missed(level / 2, anytime=True)
            yield cell("a mean, betting, looked at after every sample", setting, level, low | high)
