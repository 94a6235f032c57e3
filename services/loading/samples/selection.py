"""Which rows of a source an audit takes: stratified by class, seeded, nested."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]


def apportioned(counts: NDArray[np.int64], limit: int, *, least: int = 1) -> NDArray[np.int64]:
    """Split `limit` over classes: `least` of each class first, then in proportion to `counts`; sums to min(limit, N).

    Every sample is a seat with the key (s + 1/2) / n_k, s = 0, 1, ... its place in class k, and the seats with the
    smallest keys are taken (Webster's or Sainte-Lague's method, Balinski & Young, Fair Representation, 1982; no class
    gets less in a larger `limit`, which largest remainders do not promise). The first `least` seats of every class come
    before all others, those of larger classes first. Of seats alike the class that comes first takes its own.
    """
    if limit >= counts.sum():
        return counts.copy()
    owner = np.repeat(np.arange(len(counts)), counts)
    place = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    keys = (place + 0.5) / counts[owner]
    keys = np.where(place < least, place - least - counts[owner] / (counts.max() + 1), keys)
    last = np.partition(keys, limit - 1)[limit - 1] if limit > 0 else -np.inf
    quota = np.bincount(owner[keys < last], minlength=len(counts))
    level = owner[keys == last][: limit - int(quota.sum())]
    return (quota + np.bincount(level, minlength=len(counts))).astype(np.int64)


def select(labels: Rows, classes: int, *, per_class: int | None, limit: int | None, seed: int, least: int = 1) -> Rows:
    """Rows of a stratified draw, ascending.

    Each class is shuffled by its own generator, keyed by (seed, class), and the first rows are taken: a larger draw
    with the same seed contains the smaller one, and a change in one class does not move another. `limit` is split in
    proportion to the classes after `per_class` has cut them, with at least `least` of each class that has so many
    (`apportioned`): a class of which a draw holds nothing would be in no metric.
    """
    counts = np.bincount(labels, minlength=classes).astype(np.int64)
    quota = counts if per_class is None else np.minimum(counts, per_class)
    quota = quota if limit is None else apportioned(quota, limit, least=least)
    if np.array_equal(quota, counts):
        return np.arange(len(labels), dtype=np.int64)
    members = np.split(np.argsort(labels, kind="stable"), np.cumsum(counts)[:-1])
    chosen = [_draw(members[k], int(quota[k]), (seed, k)) for k in range(classes) if quota[k]]
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


RESERVE_SEED = 16
"""The reserve is drawn once: no seed of a fleet file moves it."""


def part_of(labels: Rows, clusters: NDArray[np.generic] | None, *, share: float, reserve: bool) -> Rows:
    """Rows of the reserve, `share` of each class, or those of the others; whole clusters where samples have any."""
    if not share:
        return np.arange(len(labels), dtype=np.int64)
    side = "train" if reserve else "test"
    if clusters is None:
        return split_half(labels, part=side, seed=RESERVE_SEED, share=share)
    names, codes = np.unique(clusters, return_inverse=True)
    chosen = split_half(np.zeros(len(names), dtype=np.int64), part=side, seed=RESERVE_SEED, share=share)
    return np.flatnonzero(np.isin(codes, chosen)).astype(np.int64)


def _draw(members: Rows, count: int, key: tuple[int, int]) -> Rows:
    return np.random.default_rng(key).permutation(members)[:count]
