"""What is held out for selection: a stratified, seeded split. Subsets: `services.loading.samples.selection`."""

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


def _draw(members: Rows, share: float, seed: int, k: int) -> Rows:
    count = min(max(round(share * len(members)), 1), len(members) - 1)
    return generator(seed, Purpose.SPLIT, k).permutation(members)[:count]
