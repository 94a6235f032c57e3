"""Not worse than before: the same samples scored in two audits.

The differences ``d_i = after_i - before_i`` lie in [-bound, bound], and for a model that hardly changed nearly all are
0: betting bounds on ``(d + bound) / (2 bound)`` adapt to that small variance, where two separate intervals would not.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.numerics.arguments import Floats, as_scores, check_bound, check_level, fault
from services.numerics.intervals.clusters import cluster_means
from services.numerics.intervals.means import Sample, limits
from services.records import Estimate

NO_PAIR = "no samples in common"


def mean_difference(
    before: NDArray[Any],
    after: NDArray[Any],
    *,
    bound: float,
    alpha: float,
    clusters: NDArray[np.integer[Any]] | None = None,
    seed: int | None = 0,
) -> Estimate:
    """The mean of after - before, scores (N,) in [0, bound] of the same samples in two audits.

    Each limit holds with probability at least 1 - alpha. Pairs must be independent with one mean difference.

    Args:
        clusters: (N,) which samples belong together: then a cluster's mean scores are a pair.
        seed: of the order in which betting takes the pairs.

    Raises:
        MeasureError: scores of different lengths or out of range.
    """
    check_level(alpha, "alpha")
    old, new = as_pairs(before, after, bound)
    if not old.size:
        return Estimate(None, reason=NO_PAIR)
    if clusters is not None:
        old, new = (cluster_means(side, np.zeros(side.size, dtype=np.int64), clusters)[0] for side in (old, new))
    scaled = (new - old + bound) / (2.0 * bound)
    sample = Sample.of(scaled, np.zeros(scaled.size, dtype=np.int64), 1, bound=1.0, seed=seed)
    sides = (sample.means, *limits(sample, alpha, "betting"))
    mean, low, high = (float(((2.0 * side - 1.0) * bound)[0]) for side in sides)
    return Estimate(mean, low, high, vacuous=low <= -bound and high >= bound)


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
