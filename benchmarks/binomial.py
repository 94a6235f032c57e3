"""Exact binomial tests of "the failure probability is below kappa", as published, that benchmarks compare with.

BIN (Zhang et al.) applies the exact test after every draw and stops at the first rejection. Each look has level alpha,
the run as a whole has not: `monitored_error` computes its error exactly. `services.numerics.intervals.sequential` has
the valid tests. BIN's eq. 5 must read P(z) = (P(w) - FPR) / (1 - FNR - FPR); with both rates somewhere in [0, alpha]

    (P(w) - alpha) / (1 - alpha) <= P(z) <= P(w) / (1 - alpha),

and P(w) = k'/n' is itself an estimate, so it enters by its Clopper-Pearson limits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats


def clopper_pearson(count: int, total: int, delta: float) -> tuple[float, float]:
    """Two-sided exact interval for a binomial proportion: covers with probability at least 1 - delta. 0..1 if empty."""
    low = 0.0 if count == 0 else float(stats.beta.ppf(delta / 2, count, total - count + 1))
    high = 1.0 if count == total else float(stats.beta.isf(delta / 2, count + 1, total - count))
    return low, high


@dataclass(frozen=True, slots=True)
class ShareBounds:
    """Interval [low, high] for the true share P(z) of points whose failure probability is below kappa."""

    low: float
    high: float


def true_share_bounds(certified: int, rejected: int, total: int, *, alpha: float, delta: float | None) -> ShareBounds:
    """Bounds on the true share of robust points in the population, from per-point verdicts that err with rate alpha.

    A share c of certified verdicts satisfies c <= P(z) + (1 - P(z)) alpha, one of rejected verdicts r satisfies
    r <= 1 - P(z) + P(z) alpha. Without undecided points (r = 1 - P(w)) that is BIN eq. 5, corrected. With `delta`, the
    shares enter by the Clopper-Pearson limits (each side delta/2): the interval misses with probability at most delta;
    with None, by their observed values.
    """
    low_share, high_share = certified / total, 1.0 - rejected / total
    if delta is not None:
        low_share = clopper_pearson(certified, total, delta)[0]
        high_share = 1.0 - clopper_pearson(rejected, total, delta)[0]
    return ShareBounds(max(0.0, (low_share - alpha) / (1 - alpha)), min(1.0, high_share / (1 - alpha)))


@dataclass(frozen=True, slots=True)
class MonitoredError:
    """Error of a test that is repeated after every draw, at p = kappa: wrong "below", wrong "above", and their sum."""

    below: float
    above: float

    @property
    def either(self) -> float:
        """Probability of any verdict; at p = kappa there is no right one."""
        return self.below + self.above


def monitored_error(
    kappa: float, alpha: float, horizon: int, *, sides: tuple[str, ...] = ("below", "above")
) -> MonitoredError:
    """Exact error of BIN's published procedure: the level-alpha exact test after every draw, no correction.

    Stops at the first n <= horizon with P(Bin(n, kappa) <= k) <= alpha ("below") or P(Bin(n, kappa) >= k) <= alpha
    ("above"). The distribution of the walk at p = kappa, stopped paths taken out; O(horizon^2 kappa).
    """
    k = np.arange(int(stats.binom.isf(1e-12, horizon, kappa)) + 3)
    walk = np.zeros(len(k))
    walk[0] = 1.0
    errors = {"below": 0.0, "above": 0.0}
    for n in range(1, horizon + 1):
        walk = walk * (1 - kappa) + np.concatenate(([0.0], walk[:-1])) * kappa
        stops = {"below": stats.binom.cdf(k, n, kappa) <= alpha, "above": stats.binom.sf(k - 1, n, kappa) <= alpha}
        for side in sides:
            errors[side] += float(walk[stops[side]].sum())
            walk[stops[side]] = 0.0
    return MonitoredError(**errors)


def fixed_sample_size(kappa: float, *, robust: float, vulnerable: float, alpha: float) -> int:
    """Least n at which one look of two exact level-alpha tests decides p = robust and p = vulnerable rightly.

    Both verdicts err with probability at most alpha for every p, and a point with p <= robust < kappa (or
    p >= vulnerable > kappa) is decided with probability at least 1 - alpha: what a test with one sample size for every
    point needs for the guarantee that the sequential test gives.
    """
    size = 1
    while not _powerful(size, kappa, robust, vulnerable, alpha):
        size *= 2
    low, high = size // 2, size
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _powerful(middle, kappa, robust, vulnerable, alpha) else (middle, high)
    return high


def _powerful(n: int, kappa: float, robust: float, vulnerable: float, alpha: float) -> bool:
    critical_low = int(stats.binom.ppf(alpha, n, kappa))
    critical_low -= int(stats.binom.cdf(critical_low, n, kappa) > alpha)
    critical_high = int(stats.binom.isf(alpha, n, kappa)) + 1
    accepts = stats.binom.cdf(critical_low, n, robust)
    return bool(accepts >= 1 - alpha and stats.binom.sf(critical_high - 1, n, vulnerable) >= 1 - alpha)
