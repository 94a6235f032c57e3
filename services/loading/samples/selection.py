"""Which rows of a source an audit takes: stratified by class, seeded, nested."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]


def proportional(counts: NDArray[np.int64], limit: int) -> NDArray[np.int64]:
    """Split `limit` over classes in proportion to `counts` by largest remainders; sums to min(limit, total)."""
    total = int(counts.sum())
    if limit >= total:
        return counts.copy()
    share = counts * limit
    quota = share // total
    order = np.lexsort((np.arange(len(counts)), -(share % total)))
    quota[order[: limit - int(quota.sum())]] += 1
    return quota


def select(labels: Rows, classes: int, *, per_class: int | None, limit: int | None, seed: int) -> Rows:
    """Rows of a stratified draw, ascending.

    Each class is shuffled by its own generator, keyed by (seed, class), and the first rows are taken: a larger draw
    with the same seed contains the smaller one, and a change in one class does not move another. `limit` is split in
    proportion to the classes after `per_class` has cut them.
    """
    counts = np.bincount(labels, minlength=classes).astype(np.int64)
    quota = counts if per_class is None else np.minimum(counts, per_class)
    quota = quota if limit is None else proportional(quota, limit)
    if np.array_equal(quota, counts):
        return np.arange(len(labels), dtype=np.int64)
    chosen = [_draw(np.flatnonzero(labels == k), int(quota[k]), (seed, k)) for k in range(classes) if quota[k]]
    return np.sort(np.concatenate(chosen)) if chosen else np.empty(0, np.int64)


def split_half(labels: Rows, *, part: str, seed: int, share: float = 0.5) -> Rows:
    """Rows of the "train" or "test" part of a stratified split that puts `share` of each class in "train"."""
    rows = []
    for k in np.unique(labels):
        members = np.flatnonzero(labels == k)
        order = np.random.default_rng([seed, int(k)]).permutation(members)
        cut = round(len(members) * share)
        rows.append(order[:cut] if part == "train" else order[cut:])
    return np.sort(np.concatenate(rows)).astype(np.int64)


def _draw(members: Rows, count: int, key: tuple[int, int]) -> Rows:
    return np.random.default_rng(key).permutation(members)[:count]
