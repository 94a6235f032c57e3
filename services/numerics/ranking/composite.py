"""One number for several metrics, and what that number hides: composite, its range, places, and the Pareto front.

A composite orders the models that are compared and says nothing else: add a model and every score may change.
Source: PRBench (arXiv 2511.01724), Fig. 6. Departures: a model that lacks a metric gets no score; scores have ranges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.numerics.arguments import Bools, Floats, fault
from services.records import Estimate

ALONE = "a composite compares, and there is nothing to compare with"
ALIKE = "the compared models are alike in every metric that counts"
_SAME = 1e-12
"""A spread below this share of the largest number is rounding: the metric counts as the same for all."""
_DIGITS = 12
"""Decimals of a composite that decide places; further ones depend on the order of summation."""


@dataclass(frozen=True)
class Composite:
    """Composite scores of N models over M metrics.

    Attributes:
        scores: value in [0, 1], with the range that it has while every metric moves within its interval and the ends of
            the scale stay. A limit is None where a metric that counts has no interval on that side, and it may leave
            [0, 1]. Undefined, with the reason, for a model that lacks a metric that counts.
        spread: (M,) whether the metric counts: its weight is positive and the compared models differ in it.
    """

    scores: tuple[Estimate, ...]
    spread: Bools


def composite(
    values: NDArray[Any],
    *,
    low: NDArray[Any],
    high: NDArray[Any],
    names: Sequence[str],
    weights: Sequence[float],
    lower_is_better: Sequence[bool],
) -> Composite:
    """``sum_j w_j s_ij / sum_j w_j`` with ``s_ij = (v_ij - min_j) / (max_j - min_j)``, reversed where lower is better.

    Min and max are taken over the compared models: those that have all metrics of positive weight. A metric in which
    these are all equal has no spread, separates no two of them, and is left out of both sums; so is one of weight 0.
    Scores do not change when a metric is measured in other units, or when all weights are multiplied by a number.

    Args:
        values, low, high: (N, M) numbers and their limits; NaN where missing.
        names: (M,) of the metrics, for reasons.
        weights: (M,) at least 0, not all 0.
        lower_is_better: (M,).

    Raises:
        MeasureError: shapes differ, a weight is negative or no number, all weights are 0, or a value is infinite.
    """
    wide = len(names)
    table, down, up = _table(values, wide, "values"), _table(low, wide, "low"), _table(high, wide, "high")
    weighed, reverse = check_weights(weights, wide), np.asarray(lower_is_better)
    missing = np.isnan(table) & (weighed > 0)
    compared = ~missing.any(axis=1)
    worst, best, counts = _ends(table[compared], weighed, reverse)
    down, up = np.where(reverse, up, down), np.where(reverse, down, up)
    sides = [_weighted(array, worst, best, weighed, counts) for array in (table, down, up)]
    empty = "" if counts.any() else ALONE if compared.sum() < 2 else ALIKE
    reasons = [_lacks(names, gaps) or empty for gaps in missing]
    scores = [
        Estimate(None, reason=reason) if reason else _estimate(*(side[index] for side in sides))
        for index, reason in enumerate(reasons)
    ]
    return Composite(tuple(scores), counts)


def places(scores: Sequence[Estimate]) -> tuple[int | None, ...]:
    """Place 1 is the largest score; equal ones share a place and the next is left out; None for an undefined one."""
    rounded = [None if score.value is None else round(score.value, _DIGITS) for score in scores]
    known = np.sort([-value for value in rounded if value is not None])
    return tuple(None if value is None else int(np.searchsorted(known, -value)) + 1 for value in rounded)


def with_leader(scores: Sequence[Estimate]) -> tuple[bool | None, ...]:
    """Whether each score's range reaches that of the first of the leaders: the numbers do not separate the two.

    None where either range is unknown, or the score is undefined.
    """
    order = places(scores)
    bar = scores[order.index(1)].low if 1 in order else None
    return tuple(
        True if place == 1 else None if place is None or bar is None or score.high is None else score.high >= bar
        for score, place in zip(scores, order, strict=True)
    )


def pareto_front(values: NDArray[Any], lower_is_better: Sequence[bool]) -> tuple[bool | None, ...]:
    """Whether no model is at least as good in all criteria and better in one; equal models stand on the front together.

    Args:
        values: (N, C); NaN where missing. A model that lacks a criterion is compared with none: None.
        lower_is_better: (C,).

    Raises:
        MeasureError: no criterion, or an infinite value.
    """
    table = _table(values, len(lower_is_better), "values")
    if table.shape[1] == 0:
        raise fault("criteria", "at least one", "none")
    signed = np.where(lower_is_better, -table, table)
    rivals = signed[~np.isnan(signed).any(axis=1)]
    return tuple(
        None if np.isnan(row).any() else not bool(((rivals >= row).all(axis=1) & (rivals > row).any(axis=1)).any())
        for row in signed
    )


def check_weights(weights: Sequence[float], n: int) -> Floats:
    """The weights (n,) as an array.

    Raises:
        MeasureError: another number of them, one that is negative, NaN or infinite, or none above 0.
    """
    array = np.asarray(weights, dtype=np.float64)
    if array.shape != (n,):
        raise fault("weights", f"{n} numbers, one a metric", f"shape {array.shape}")
    if not (np.isfinite(array).all() and (array >= 0).all()):
        raise fault("weights", "finite numbers of at least 0", str(array.tolist()))
    if not (array > 0).any():
        raise fault("weights", "at least one above 0", "none")
    return array


def _table(array: NDArray[Any], columns: int, where: str) -> Floats:
    table = np.asarray(array, dtype=np.float64)
    if table.ndim != 2 or table.shape[1] != columns:
        raise fault(where, f"shape (N, {columns})", f"shape {table.shape}")
    if np.isinf(table).any():
        raise fault(where, "finite numbers, or NaN where missing", "infinity")
    return table


def _ends(table: Floats, weights: Floats, reverse: Bools) -> tuple[Floats, Floats, Bools]:
    """What scores 0 and what scores 1 in each metric (M,), and whether it counts."""
    if not len(table):
        return weights, weights, np.zeros(weights.size, dtype=bool)
    bottom, top = table.min(axis=0), table.max(axis=0)
    counts = (weights > 0) & (top - bottom > _SAME * np.maximum(np.abs(top), np.abs(bottom)))
    return np.where(reverse, top, bottom), np.where(reverse, bottom, top), counts


def _weighted(array: Floats, worst: Floats, best: Floats, weights: Floats, counts: Bools) -> Floats:
    if not counts.any():
        return np.zeros(len(array))
    scaled = (array - worst)[:, counts] / (best - worst)[counts]
    return np.asarray(scaled @ weights[counts] / weights[counts].sum())


def _lacks(names: Sequence[str], gaps: Bools) -> str:
    lacking = [names[column] for column in np.flatnonzero(gaps).tolist()]
    return f"lacks {', '.join(lacking)}" if lacking else ""


def _estimate(value: float, low: float, high: float) -> Estimate:
    down, up = (None if np.isnan(limit) else float(limit) for limit in (low, high))
    return Estimate(float(value), down, up)
