"""How many samples would decide, if what was seen stays: `mixture`'s bounds read backwards.

The log capital of a fraction c after n samples is n times its mean gain ``log(1 - c + c x / m)`` so far. So the n at
which a mean is known to exceed m is where ``logsumexp_j(n gain_j) - log J`` reaches ``log(1 / alpha)``. An estimate of
what is to come, and no promise; the bounds that are looked at then hold whenever one looks.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from services.numerics.arguments import Floats
from services.numerics.intervals.mixture import FRACTIONS

MOST = 1e12
"""Samples beyond which no number is given."""


def gains(values: NDArray[np.floating], null: float) -> Floats:
    """(J,) mean log gains of values (n,) in [0, 1] against "the mean is at most `null`" in (0, 1]."""
    bets = np.array(FRACTIONS)[:, None]
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(1.0 - bets + bets * np.asarray(values)[None, :] / null).mean(axis=1))


def gains_of_share(share: float, null: float) -> Floats:
    """(J,) the same when a share of the samples are 1 and the others 0."""
    bets = np.array(FRACTIONS)
    return np.asarray(share * np.log1p(bets * (1.0 / null - 1.0)) + (1.0 - share) * np.log1p(-bets))


def samples_until(mean_gains: ArrayLike, alpha: float) -> int | None:
    """The least number of samples at which the mean is known to exceed the null at level alpha; None for no number."""
    rate, target = np.asarray(mean_gains, dtype=np.float64), -math.log(alpha)

    def reached(n: float) -> bool:
        return float(np.logaddexp.reduce(n * rate) - math.log(rate.size)) >= target

    if float(rate.max()) <= 0.0 or not reached(MOST):
        return None
    low, high = 0.0, MOST
    while high - low > max(1.0, 1e-3 * low):
        middle = 0.5 * (low + high) if low > 0 else high / 16
        low, high = (low, middle) if reached(middle) else (middle, high)
    return math.ceil(high)


def samples_to_exceed(values: NDArray[np.floating], threshold: float, alpha: float) -> int | None:
    """Samples like `values` (n,) in [0, 1] until their mean is known to lie above the threshold."""
    if threshold <= 0.0:
        return 0
    return samples_until(gains(values, threshold), alpha)


def samples_to_stay_below(values: NDArray[np.floating], threshold: float, alpha: float) -> int | None:
    """Samples like `values` (n,) in [0, 1] until their mean is known to lie below the threshold."""
    return samples_to_exceed(1.0 - np.asarray(values), 1.0 - threshold, alpha)
