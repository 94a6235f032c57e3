"""How unequal a profile is: RDI, NRGC, WCR and FP of the group means (GF 3.3, eqs. 4 to 7).

RDI grows with the scale of the scores; NRGC does not (over GF's 17 CIFAR-10 models Spearman of the score with RDI is
+0.90 and with NRGC -0.81). So read them side by side, and conclude nothing from RDI alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.numerics.arguments import Floats, Ints, fault
from services.records import Estimate

NO_GROUP = "no group has samples"
ALL_ZERO = "all group means are 0, so the inequality is 0/0"

_TIE = 1e-12
"""Means this close (relative to the largest) are tied: summation leaves differences of that order."""


@dataclass(frozen=True)
class Disparity:
    """The four metrics of one profile, without intervals.

    Attributes:
        rdi: max - min of the group means, in [0, bound].
        nrgc: Gini coefficient of the group means, in [0, (K - 1) / K]; undefined when all are 0.
        wcr: the smallest group mean, in [0, bound].
        fp: unweighted mean of the group means minus `penalty` times RDI.
        worst, best: indices of the groups with the smallest and the largest mean, all that are tied.
        worst_first: indices of all defined groups, smallest mean first, ties by index.
        missing: indices of groups without samples; they enter no metric.
        penalty: lambda of FP.
    """

    rdi: Estimate
    nrgc: Estimate
    wcr: Estimate
    fp: Estimate
    worst: tuple[int, ...]
    best: tuple[int, ...]
    worst_first: tuple[int, ...]
    missing: tuple[int, ...]
    penalty: float


def nrgc(means: NDArray[Any]) -> float | None:
    """``sum_ij |m_i - m_j| / (2 K**2 mean)`` of K non-negative means, by sorting in O(K log K).

    The double sum equals ``2 * sum_i (2 i - K + 1) m_(i)`` over the sorted means, i from 0. None when K = 0 or all are
    0.
    """
    ordered = np.sort(np.asarray(means, dtype=np.float64))
    total = float(ordered.sum())
    if total <= 0.0:
        return None
    return max(0.0, float(rank_weights(ordered.size) @ ordered) / (ordered.size * total))


def rank_weights(size: int) -> Floats:
    """(K,) ``2 i - K + 1``, i from 0: the weight of the i-th smallest mean in NRGC's numerator."""
    return np.linspace(1.0 - size, size - 1.0, size)


def disparity(means: NDArray[Any], defined: NDArray[np.bool_], *, penalty: float = 0.5) -> Disparity:
    """RDI, NRGC, WCR and FP of means (K,), over the groups where `defined` (K,).

    Args:
        means: non-negative; entries that are not defined are ignored.
        penalty: lambda >= 0 of ``FP = mean_k - lambda * RDI`` (eq. 7; the mean over groups is unweighted).

    Raises:
        MeasureError: shapes differ, a defined mean is negative or not finite, or the penalty is negative.
    """
    values, mask = np.asarray(means, dtype=np.float64), np.asarray(defined, dtype=bool)
    _check(values, mask, penalty)
    index = np.flatnonzero(mask)
    missing = tuple(np.flatnonzero(~mask).tolist())
    if not index.size:
        none = Estimate(None, reason=NO_GROUP)
        return Disparity(none, none, none, none, (), (), (), missing, penalty)
    kept = values[index]
    low, high = float(kept.min()), float(kept.max())
    gini = nrgc(kept)
    return Disparity(
        rdi=Estimate(high - low),
        nrgc=Estimate(gini, reason=ALL_ZERO if gini is None else ""),
        wcr=Estimate(low),
        fp=Estimate(float(kept.mean()) - penalty * (high - low)),
        worst=_listed(index[kept <= low + _TIE * high]),
        best=_listed(index[kept >= high - _TIE * high]),
        worst_first=_listed(index[np.argsort(kept, stable=True)]),
        missing=missing,
        penalty=penalty,
    )


def _listed(indices: Ints) -> tuple[int, ...]:
    return tuple(int(i) for i in indices)


def _check(means: Floats, defined: NDArray[np.bool_], penalty: float) -> None:
    if means.ndim != 1 or means.shape != defined.shape:
        raise fault("means", "two arrays of shape (K,)", f"shapes {means.shape} and {defined.shape}")
    kept = means[defined]
    if not (np.isfinite(kept).all() and (kept >= 0).all()):
        raise fault("means", "finite numbers of at least 0", "negative or non-finite ones")
    if not penalty >= 0:
        raise fault("penalty", "a number of at least 0", str(penalty))
