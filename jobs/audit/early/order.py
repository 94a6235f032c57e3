"""In which order an audit that decides early takes samples, and how many of each class next."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

FIRST = 100
"""Samples of the first round, at least one a class."""
GROWTH = 1.5
"""Factor between rounds: fewer looks cost samples, more cost time between rounds."""


@dataclass(frozen=True)
class Order:
    """A random order of the samples of each class.

    Attributes:
        classes: for each of the K classes its rows, in the order in which they are taken.
    """

    classes: tuple[Ints, ...]

    @classmethod
    def of(cls, labels: Ints, n_classes: int, seed: int) -> Order:
        """Fixed by the seed and by which rows the class has; labels (N,) in [0, K)."""
        rows = np.argsort(labels, kind="stable")
        parts = np.split(rows, np.cumsum(np.bincount(labels, minlength=n_classes))[:-1])
        mixed = (np.random.default_rng([seed, k]).permutation(part) for k, part in enumerate(parts))
        return cls(tuple(part.astype(np.int64) for part in mixed))

    @cached_property
    def sizes(self) -> Ints:
        """(K,) samples of each class."""
        return np.array([len(rows) for rows in self.classes], dtype=np.int64)

    def prefix(self, counts: Ints) -> Ints:
        """The rows of the first `counts` (K,) samples of each class, class by class."""
        return np.concatenate([rows[:count] for rows, count in zip(self.classes, counts.tolist(), strict=True)])


def first_level(n_classes: int) -> int:
    """Samples a class of the first round."""
    return max(1, math.ceil(FIRST / n_classes))


def next_level(level: int) -> int:
    """Samples a class of the round after."""
    return max(level + 1, math.ceil(GROWTH * level))


def counts_at(level: int, counts: Ints, sizes: Ints, wanted: Bools, *, in_proportion: bool) -> Ints:
    """(K,) samples of each class after the next round: never fewer than before, never more than there are.

    Args:
        wanted: classes that gates still need, which get `level` samples.
        in_proportion: a gate needs the mean over all samples, so every class gets its share of as many.
    """
    target = np.where(wanted, level, 0)
    if in_proportion and sizes.sum():
        target = np.maximum(target, np.ceil(level * sizes.size * sizes / sizes.sum()).astype(np.int64))
    return np.asarray(np.minimum(np.maximum(counts, target), sizes))
