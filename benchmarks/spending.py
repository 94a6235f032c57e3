"""Exact operating characteristics of a stopping boundary, and the alpha-spending alternative to the mixtures.

Under a fixed p the failures are a binomial walk, so error rates, power and expected draws follow exactly from the
distribution of the walk with the stopped paths taken out. An alpha-spending schedule (Lan & DeMets 1983) uses the same
recursion to choose, look by look, the largest critical value whose cumulative crossing probability at p = kappa stays
within what may be spent by then; it is exact, but fixed to its looks and horizon.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from services.numerics.intervals.sequential import Boundary


@dataclass(frozen=True, slots=True)
class Characteristics:
    """What a boundary does at one p: probabilities of the verdicts and the expected number of draws."""

    accept: float
    reject: float
    undecided: float
    expected_draws: float


def characteristics(boundary: Boundary, p: float) -> Characteristics:
    """Exact verdict probabilities of a boundary monitored after every draw, under failure probability p."""
    size = len(boundary.accept_at)
    k = np.arange(size)
    walk = np.zeros(size)
    walk[0], accept, reject, expected = 1.0, 0.0, 0.0, 0.0
    for n in range(1, boundary.horizon + 1):
        expected += float(walk.sum())
        walk = walk_step(walk, p)
        verdict = boundary.decide(np.full(size, n), k)
        accept += float(walk[verdict > 0].sum())
        reject += float(walk[verdict < 0].sum())
        walk[verdict != 0] = 0.0
    return Characteristics(accept, reject, float(walk.sum()), expected)


def walk_step(walk: NDArray[np.float64], p: float) -> NDArray[np.float64]:
    moved = walk * (1.0 - p)
    moved[1:] += walk[:-1] * p
    return moved


def spending_boundary(kappa: float, alpha: float, looks: tuple[int, ...]) -> Boundary:
    """Exact alpha-spending tests at the given increasing looks, spending alpha evenly over them on each side.

    Each side spends its own alpha, for only one of the two verdicts can be wrong. The other side's stops are ignored,
    which can only lower the error.
    """
    size = int(stats.binom.isf(1e-12, looks[-1], kappa)) + 2
    below = critical_values(kappa, alpha, looks, size)
    above = critical_values(kappa, alpha, looks, size, upper=True)
    k = np.arange(size)
    times = np.asarray(looks)
    accept_at = np.array([min(times[below >= j], default=looks[-1] + 1) for j in k])
    reject_until = np.array([max(times[above <= j], default=-1) for j in k])
    return Boundary(kappa, alpha, looks[-1], accept_at, reject_until)


def critical_values(
    kappa: float, alpha: float, looks: tuple[int, ...], size: int, *, upper: bool = False
) -> NDArray[np.int64]:
    """At each look the critical count: accept at or below it (-1: never), or reject at or above it (size: never)."""
    k, walk = np.arange(size), np.zeros(size)
    walk[0], spent, previous = 1.0, 0.0, 0
    values = []
    for index, look in enumerate(looks):
        walk = np.convolve(walk, stats.binom.pmf(k, look - previous, kappa))[:size]
        budget = alpha * (index + 1) / len(looks) - spent
        tail = np.cumsum(walk[::-1] if upper else walk)
        crossed = int(np.searchsorted(tail, budget, side="right"))
        stop = k >= size - crossed if upper else k < crossed
        spent += float(walk[stop].sum())
        walk[stop] = 0.0
        values.append(size - crossed if upper else crossed - 1)
        previous = look
    return np.asarray(values)
