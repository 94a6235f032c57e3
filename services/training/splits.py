"""Stratified, seeded splits: what is held out for selection, and subsets for small runs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from services.training.keys import Purpose, generator

Rows = NDArray[np.int64]


def holdout(labels: Rows, *, share: float, seed: int) -> tuple[Rows, Rows]:
    """Rows to train on and rows held out, both ascending: `share` of each class, rounded, at least 1, never all.

    A class of one sample stays in training. Each class is drawn by its own generator, keyed by (seed, class), so a
    change in one class moves no other.
    """
    held = [_draw(np.flatnonzero(labels == k), share, seed, int(k)) for k in np.unique(labels)]
    chosen = np.sort(np.concatenate(held)) if held else np.empty(0, np.int64)
    mask = np.ones(len(labels), bool)
    mask[chosen] = False
    return np.flatnonzero(mask), chosen


def subset(labels: Rows, *, per_class: int, seed: int) -> Rows:
    """Rows of at most `per_class` samples of each class, ascending; a larger draw contains a smaller one."""
    parts = [_order(np.flatnonzero(labels == k), seed, int(k))[:per_class] for k in np.unique(labels)]
    return np.sort(np.concatenate(parts)) if parts else np.empty(0, np.int64)


def _draw(members: Rows, share: float, seed: int, k: int) -> Rows:
    count = min(max(round(share * len(members)), 1), len(members) - 1)
    return _order(members, seed, k)[:count]


def _order(members: Rows, seed: int, k: int) -> Rows:
    return generator(seed, Purpose.SPLIT, k).permutation(members)
