"""Rank correlations and re-ranking tables."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.numerics.arguments import Floats, fault
from services.records import Estimate

MOST_IN_PAIRS = 32
"""Values of a row that are ranked by comparing each with each."""


def spearman_rows(first: NDArray[Any], second: NDArray[Any]) -> Floats:
    """(R,) Spearman correlation of each row of `first` (R, n) with the row of `second` (R, n) or (n,).

    Pearson correlation of the ranks, tied values share their mean rank; NaN where either row is constant.
    """
    ranks = [_ranks_of_rows(np.atleast_2d(rows)) for rows in (first, second)]
    left, right = (rank - (rank.shape[1] + 1) / 2.0 for rank in ranks)
    scale = np.sqrt((left**2).sum(axis=1) * (right**2).sum(axis=1))
    dot = (left * right).sum(axis=1)
    out = np.full(dot.shape, np.nan)
    np.divide(dot, scale, out=out, where=scale > 0)
    return out


def _ranks_of_rows(rows: NDArray[Any]) -> Floats:
    """`_mean_ranks` of each row (R, n); of short ones all pairs of values at once."""
    if rows.shape[1] > MOST_IN_PAIRS:
        return np.array([_mean_ranks(row) for row in rows])
    below = (rows[:, None, :] < rows[:, :, None]).sum(axis=2)
    level = (rows[:, None, :] == rows[:, :, None]).sum(axis=2)
    ranks: Floats = below + (level + 1) / 2.0
    ranks[np.isnan(rows).any(axis=1)] = np.nan
    return ranks


def _mean_ranks(values: NDArray[Any]) -> Floats:
    """(n,) the rank of each value from 1, tied ones their mean rank; all NaN if one is: `scipy.stats.rankdata`."""
    if np.isnan(values).any():
        return np.full(len(values), np.nan)
    ordered = np.sort(values)
    return (ordered.searchsorted(values, "left") + ordered.searchsorted(values, "right") + 1) / 2.0


def spearman(first: NDArray[Any], second: NDArray[Any]) -> Estimate:
    """Spearman's rank correlation of two samples (n,), in [-1, 1]; undefined for n < 3 or a constant sample.

    Raises:
        MeasureError: lengths differ, or a value is not finite.
    """
    a, b = np.asarray(first), np.asarray(second)
    if a.ndim != 1 or a.shape != b.shape:
        raise fault("spearman", "two arrays of one length", f"shapes {a.shape} and {b.shape}")
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise fault("spearman", "finite numbers", "NaN or infinity")
    if a.size < 3:
        return Estimate(None, reason=f"a rank correlation needs at least 3 values, there are {a.size}")
    value = float(spearman_rows(a, b)[0])
    return Estimate(None, reason="all values are alike") if np.isnan(value) else Estimate(value)


def ranks(values: Sequence[float | None], *, descending: bool) -> tuple[float | None, ...]:
    """Rank 1 is best; tied values share their mean rank; an undefined value has no rank."""
    known = [i for i, value in enumerate(values) if value is not None]
    there = np.array([values[i] for i in known])
    places: list[float | None] = [None] * len(values)
    for i, rank in zip(known, _mean_ranks(-there if descending else there), strict=True):
        places[i] = float(rank)
    return tuple(places)


def reranking(
    metrics: Mapping[str, Sequence[float | None]], *, lower_is_better: Collection[str]
) -> dict[str, tuple[float | None, ...]]:
    """Ranks of M models under each metric: how the order changes when fairness counts.

    Args:
        metrics: M values a metric name; "rdi" and "nrgc" rank the smallest first, all others the largest first.

    Raises:
        MeasureError: metrics of different lengths.
    """
    lengths = {len(values) for values in metrics.values()}
    if len(lengths) > 1:
        raise fault("metrics", "one value a model for every metric", f"lengths {sorted(lengths)}")
    return {name: ranks(values, descending=name not in lower_is_better) for name, values in metrics.items()}
