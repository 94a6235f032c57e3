"""Certified L2 radii by randomized smoothing (Cohen, Rosenfeld & Kolter 2019, arXiv 1902.02918).

The smoothed classifier g(x) = argmax_c P(f(x + N(0, sigma^2 I)) = c) is constant within L2 distance
R = sigma Phi^-1(pA) of x when the top class has probability at least pA > 1/2 (theorem 1 with pB = 1 - pA). A lower
confidence bound for pA gives a radius that exceeds the true one with probability at most alpha: a Clopper-Pearson bound
after a fixed number of draws (`certified_radius`), a confidence sequence at any stopping time (`sequential_radius`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from services.numerics.intervals.means import clopper_pearson
from services.numerics.intervals.sequential import lower_sequence, upper_sequence

Floats = NDArray[np.float64]


def lower_bound(successes: ArrayLike, draws: ArrayLike, alpha: float) -> Floats:
    """One-sided Clopper-Pearson lower bound for pA: at most pA with probability at least 1 - alpha, draws fixed."""
    hits, n = np.broadcast_arrays(np.asarray(successes), np.asarray(draws))
    return clopper_pearson(hits, n, alpha)[0]


def radius_of(p: ArrayLike, sigma: float) -> Floats:
    """sigma Phi^-1(p) for p > 1/2, else 0 (abstain); L2 distance in [0, 1] pixel units."""
    p = np.asarray(p, dtype=np.float64)
    return np.asarray(sigma * ndtri(np.clip(p, 0.5, 1.0 - 1e-16)))


def probability_at(radius: ArrayLike, sigma: float) -> Floats:
    """The pA = Phi(radius / sigma) that a certificate of this radius needs."""
    return np.asarray(ndtr(np.asarray(radius, dtype=np.float64) / sigma))


def certified_radius(successes: ArrayLike, draws: ArrayLike, *, sigma: float, alpha: float) -> Floats:
    """Radius after a fixed number of draws (CERTIFY), 0: abstain. Exceeds the true radius with probability <= alpha."""
    return radius_of(lower_bound(successes, draws, alpha), sigma)


def sequential_radius(successes: ArrayLike, draws: ArrayLike, *, sigma: float, alpha: float) -> tuple[Floats, Floats]:
    """(lower, upper) radius at any stopping time. P(lower ever exceeds the true radius) <= alpha; so for the upper."""
    n = np.asarray(draws)
    failures = n - np.asarray(successes)
    low = radius_of(1.0 - upper_sequence(n, failures, alpha), sigma)
    return low, radius_of(1.0 - lower_sequence(n, failures, alpha), sigma)


def largest_radius(draws: int, *, sigma: float, alpha: float) -> float:
    """sigma Phi^-1(alpha^(1/n)): what n successes in n draws certify, the upper end of the score's range."""
    return float(radius_of(alpha ** (1.0 / draws), sigma))
