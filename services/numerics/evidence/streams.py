"""Many tests one after another: what level the next one may have so that the whole stays within its promise.

LOND (Javanmard & Montanari 2015): the t-th test of a stream is made at ``alpha_t = alpha gamma_t (D_{t-1} + 1)``, where
D counts the discoveries before it and the gamma_t sum to 1. The false discovery rate is then at most alpha, under any
dependence when gamma_t is divided by the harmonic number ``1 + 1/2 + ... + 1/t`` (their Theorem 2.7). While nothing was
discovered the levels add up to at most alpha, so the chance of any false discovery is bounded as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from scipy.special import zeta

from services.numerics.arguments import check_level, fault

POWER = 1.2
"""The slower the gamma_t fall, the more power is left after a year, and the less there is in the first nights."""
_SUM = float(zeta(POWER))


def gamma(t: int) -> float:
    """``t ** -1.2`` over its sum for all t."""
    return float(t**-POWER) / _SUM


def lond_level(alpha: float, discoveries: Sequence[bool]) -> float:
    """The level of the test that follows those whose outcomes are given, oldest first; under any dependence.

    Raises:
        MeasureError: alpha is no probability.
    """
    check_level(alpha, "alpha")
    t = len(discoveries) + 1
    harmonic = sum(1.0 / i for i in range(1, t + 1))
    return min(alpha, alpha * gamma(t) / harmonic * (sum(discoveries) + 1))


def false_alarm_bound(levels: Sequence[float]) -> float:
    """Of tests made at these levels: the chance of one or more false discoveries, at most (union bound).

    Raises:
        MeasureError: a level below 0.
    """
    if any(level < 0 for level in levels):
        raise fault("levels", "levels from 0", str(min(levels)))
    return min(1.0, math.fsum(levels))
