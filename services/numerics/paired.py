"""Not worse than before: the same samples scored in two audits.

The differences ``d_i = after_i - before_i`` lie in [-bound, bound], and for a model that hardly changed nearly all are
0: betting bounds on ``(d + bound) / (2 bound)`` adapt to that small variance, where two separate intervals would not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.numerics.checks import Floats, as_scores, check_bound, check_level, fault
from services.numerics.intervals import betting
from services.numerics.intervals.means import Sample, limits
from services.records import Estimate

NO_PAIR = "no samples in common"


@dataclass(frozen=True)
class Paired:
    """Mean differences after - before.

    Attributes:
        overall: over all pairs; low and high each hold with probability at least 1 - alpha.
        groups: per group; all lower limits hold jointly with probability at least 1 - alpha (Bonferroni), and all upper
            ones likewise. A group without pairs is undefined.
        p_values: per group, of "the mean difference is at most -margin"; None without pairs.
        adjusted: the same by Holm's step-down over the groups: rejecting those <= alpha errs with probability <= alpha.
        margin, alpha: as asked.
    """

    overall: Estimate
    groups: tuple[Estimate, ...]
    p_values: tuple[float | None, ...]
    adjusted: tuple[float | None, ...]
    margin: float
    alpha: float

    @property
    def non_inferior(self) -> bool | None:
        """Overall: True when the lower limit clears -margin, False when the upper one is below it, else None."""
        low, high = self.overall.low, self.overall.high
        if low is None or high is None:
            return None
        return True if low >= -self.margin else False if high < -self.margin else None


def paired(
    before: NDArray[Any],
    after: NDArray[Any],
    groups: NDArray[np.integer[Any]],
    n_groups: int,
    *,
    bound: float,
    alpha: float,
    margin: float = 0.0,
    seed: int | None = 0,
) -> Paired:
    """Compare scores (N,) in [0, bound] of the same samples in two audits, overall and by group (N,).

    Pairs must be independent with one mean difference a group; overall, their mixture counts as one group.

    Args:
        margin: the loss that is acceptable, >= 0, in the score's unit.
        seed: of the order in which betting takes the pairs.

    Raises:
        MeasureError: scores of different lengths or out of range, or a negative margin.
    """
    check_level(alpha, "alpha")
    old, new = as_pairs(before, after, bound)
    if not 0.0 <= margin < bound:
        raise fault("margin", f"a number in [0, {bound:.6g})", str(margin))
    scaled = (new - old + bound) / (2.0 * bound)
    sample = Sample.of(scaled, groups, n_groups, bound=1.0, seed=seed)
    whole = Sample.of(scaled, np.zeros(scaled.size, dtype=np.int64), 1, bound=1.0, seed=seed)
    level = alpha / max(1, int((sample.counts > 0).sum()))
    p_values = _p_values(sample, (bound - margin) / (2.0 * bound), level)
    return Paired(
        _estimates(whole, alpha, bound)[0], _estimates(sample, level, bound), p_values, holm(p_values), margin, alpha
    )


def as_pairs(before: NDArray[Any], after: NDArray[Any], bound: float) -> tuple[Floats, Floats]:
    """Scores of the same samples in [0, bound], checked.

    Raises:
        MeasureError: scores of different lengths or out of range.
    """
    check_bound(bound)
    old, new = as_scores(before, bound, "before"), as_scores(after, bound, "after")
    if old.shape != new.shape:
        raise fault("after", f"{old.size} scores as before", str(new.size), "pair the audits by sample id")
    return old, new


def _estimates(sample: Sample, alpha: float, bound: float) -> tuple[Estimate, ...]:
    low, high = limits(sample, alpha, "betting")
    mean, low, high = ((2.0 * side - 1.0) * bound for side in (sample.means, low, high))
    return tuple(
        Estimate(float(m), float(a), float(b), vacuous=bool(a <= -bound and b >= bound))
        if n
        else Estimate(None, reason=NO_PAIR)
        for m, a, b, n in zip(mean, low, high, sample.counts, strict=True)
    )


def _p_values(sample: Sample, null: float, alpha: float) -> tuple[float | None, ...]:
    logs = np.zeros(sample.counts.size)
    for block, values, mask in sample.blocks():
        logs[block] = betting.log_p_value(values, mask, np.full(block.size, null), alpha)
    return tuple(float(np.exp(log)) if n else None for log, n in zip(logs, sample.counts, strict=True))


def holm(p_values: tuple[float | None, ...]) -> tuple[float | None, ...]:
    """Holm's adjusted p-values ``max_{j <= i} min(1, (m - j + 1) p_(j))`` (Holm 1979); undefined ones stay out of m."""
    known = [i for i, p in enumerate(p_values) if p is not None]
    values: Floats = np.array([p_values[i] for i in known])
    order = np.argsort(values)
    stepped = np.maximum.accumulate(np.minimum(1.0, values[order] * np.arange(len(known), 0, -1)))
    adjusted: list[float | None] = [None] * len(p_values)
    for place, value in zip(order, stepped, strict=True):
        adjusted[known[place]] = float(value)
    return tuple(adjusted)
