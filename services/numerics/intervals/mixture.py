"""Bounds on a mean that hold at every number of samples: betting with a mixture over fractions of the capital.

A gambler who stakes the fraction c of its capital on "the mean exceeds m" has after n samples x_i in [0, 1]

::

    K(m) = sum_j w_j prod_{i <= n} (1 - c_j + c_j x_i / m),   c_j fixed, w_j = 1 / J

Each product is a non-negative supermartingale while the mean is at most m, so K is one, and by Ville's inequality it
*ever* reaches 1 / alpha with probability at most alpha: ``L_n = sup {m : K_n(m) >= 1 / alpha}`` is a lower bound for
all n jointly, whenever and for whatever reason one stops. K falls in m, so bisection finds L; the end returned is the
rejected side.

Fixed fractions (the diversified Kelly bets of WSR, arXiv 2010.09686, appendix B) know nothing of the order of samples,
and allow samples of *different* means: if every m_i is a mean of a stratum and their average is at most m, the
expectation of a product is at most ``(1 - c + c mean(m_i) / m)^n <= 1`` (arithmetic over geometric mean). So the bound
holds for the mean over strata wherever these are sampled in proportion. docs/statistics.md compares other bets.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from services.numerics.arguments import Bools, Floats

FRACTIONS = (0.01, 0.03, 0.06, 0.10, 0.16, 0.24, 0.34, 0.46, 0.58, 0.72, 0.86, 0.97)
"""c_j: small ones for a mean just above m, large ones for one far above; equal weights."""

_STEPS = 20
"""Halvings of [0, 1]: the bound is at most 1e-6 wider than the exact one."""
_FACTORS = 16
"""Factors multiplied before a logarithm: each lies in [0.03, 1e6], so no product leaves the range of a float."""


def log_evidence(values: Floats, mask: Bools, null: Floats, *, times: float = 1.0) -> Floats:
    """(G,) log K of rows of values (G, n) in [0, 1] against "the row's mean is at most `null`" (G,) in (0, 1].

    Args:
        mask: (G, n) which cells are samples.
        times: how often each counts.
    """
    filled = -(-values.shape[1] // _FACTORS) * _FACTORS
    ratio = np.ones((len(values), filled))
    ratio[:, : values.shape[1]] = np.where(mask, values / null[:, None], 1.0)
    ratio = ratio.reshape(len(values), -1, _FACTORS)
    total = np.full(null.shape, -np.inf)
    for fraction in FRACTIONS:
        gain = np.log((1.0 - fraction + fraction * ratio).prod(axis=2)).sum(axis=1)
        total = np.logaddexp(total, times * gain)
    return np.asarray(total - np.log(len(FRACTIONS)))


def log_evidence_of_counts(successes: ArrayLike, counts: ArrayLike, null: ArrayLike) -> Floats:
    """log K of `successes` ones among `counts` samples that are 0 or 1; broadcasts."""
    k, n, m = (np.asarray(part, dtype=np.float64)[..., None] for part in (successes, counts, null))
    bets = np.array(FRACTIONS)
    gains = k * np.log1p(bets * (1.0 / m - 1.0)) + (n - k) * np.log1p(-bets)
    return np.asarray(np.logaddexp.reduce(gains, axis=-1) - np.log(bets.size))


def lower_bound(values: Floats, mask: Bools, alpha: float, *, times: float = 1.0) -> Floats:
    """(G,) one-sided lower bounds on the means of rows, each with confidence 1 - alpha at all sample sizes jointly."""
    return _largest_rejected(lambda null: log_evidence(values, mask, null, times=times), len(values), alpha)


def lower_bound_of_counts(successes: Floats, counts: Floats, alpha: float) -> Floats:
    """(G,) the same for samples that are 0 or 1, from their counts (G,).

    Groups with the same counts have the same bound: of 1,000 classes after few samples there are few different ones.
    """
    (k, n), place = np.unique(np.stack([successes, counts]), axis=1, return_inverse=True)
    lowest = _largest_rejected(lambda null: log_evidence_of_counts(k, n, null), len(n), alpha)
    return lowest[place.reshape(-1)]


def _largest_rejected(evidence: Callable[[Floats], Floats], groups: int, alpha: float) -> Floats:
    target = -np.log(alpha)
    low, high = np.zeros(groups), np.ones(groups)
    for _ in range(_STEPS):
        middle = 0.5 * (low + high)
        rejected = evidence(middle) >= target
        low, high = np.where(rejected, middle, low), np.where(rejected, high, middle)
    return low
