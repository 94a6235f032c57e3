"""Extra samples, generated ones or others' labels, that make up a fixed share of every batch.

An epoch is one pass over the data set's own samples. Gowal et al. 2021 (Improving Robustness using Generated Data) and
Wang et al. 2023 (Better Diffusion Models Further Improve Adversarial Training) take shares of 0.5 to 0.8.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from services.loading.samples.duplicates import fingerprints
from services.training.data.images import Labelled
from services.training.keys import Purpose, generator


@dataclass(frozen=True)
class Extra:
    """Samples beside those of the data set, and their share of each batch, in (0, 1)."""

    data: Labelled
    share: float

    def count(self, own: int) -> int:
        """Extra samples in an epoch of so many of the data set's own: ``own * share / (1 - share)``, one at least."""
        return max(1, round(own * self.share / (1 - self.share)))

    def order(self, own: int, seed: int, epoch: int) -> NDArray[np.int64]:
        """Rows of an epoch, the extra ones behind the own: each own one once, extra ones as often as they must be.

        Any window of rows has its part of extra ones, up to one: their share of a batch is fixed.
        """
        count, have = self.count(own), len(self.data.labels)
        draws = [generator(seed, Purpose.EXTRA, epoch, turn).permutation(have) for turn in range(-(-count // have))]
        ends = np.arange(1, own + count + 1) * count // (own + count)
        taken = np.diff(ends, prepend=0).astype(bool)
        rows = np.empty(own + count, np.int64)
        rows[~taken] = generator(seed, Purpose.SHUFFLE, epoch).permutation(own)
        rows[taken] = own + np.concatenate(draws)[:count]
        return rows

    def after(self, own: Labelled) -> Labelled:
        """The data set's samples with the extra ones behind them."""
        first, more = alike(own.images, self.data.images)
        return Labelled(np.concatenate([first, more]), np.concatenate([own.labels, self.data.labels]), own.classes)

    def totals(self, own: Labelled) -> tuple[int, ...]:
        """Samples of each class that an epoch has, on average and rounded."""
        mine, more = (np.bincount(part.labels, minlength=own.classes) for part in (own, self.data))
        weight = self.count(len(own.labels)) / len(self.data.labels)
        return tuple(int(n) for n in np.rint(mine + weight * more))


def alike(one: NDArray[np.generic], other: NDArray[np.generic]) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
    """Images of one type: float32 in [0, 1] where one of them is."""
    if one.dtype == other.dtype:
        return one, other
    first, second = (
        part.astype(np.float32) / np.float32(255) if part.dtype == np.uint8 else part for part in (one, other)
    )
    return first, second


def copies(images: NDArray[np.generic], among: NDArray[np.generic]) -> int:
    """How many images are, pixel by pixel, among others."""
    known = set(fingerprints(among))
    return sum(image in known for image in fingerprints(images))
