"""Training images on a device, and the batches of an epoch: shuffled and augmented as a function of (seed, epoch)."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from services.training.data.images import unit
from services.training.keys import Purpose, generator

RESIDENT_BYTES = 2 << 30
"""Images up to this size live on the device; larger ones stay on the host and travel by batch."""


class Images:
    """(N, C, H, W) uint8, or float32 in [0, 1], with labels (N,) int64 on the device."""

    def __init__(self, images: NDArray[Any], labels: NDArray[np.int64], device: torch.device) -> None:
        self._resident = images.nbytes <= RESIDENT_BYTES
        self._pixels = _tensor(images).to(device) if self._resident else None
        self._host, self._device = images, device
        self.labels = _tensor(labels.astype(np.int64, copy=False)).to(device)

    def __len__(self) -> int:
        return len(self.labels)

    def rows(self, rows: NDArray[np.int64]) -> Tensor:
        """Rows as float32 in [0, 1] on the device."""
        if self._pixels is not None:
            return unit(self._pixels[torch.from_numpy(rows).to(self._device)])
        return unit(torch.from_numpy(np.ascontiguousarray(self._host[rows])).to(self._device))


def _tensor(values: NDArray[Any]) -> Tensor:
    """The values without a copy; of read-only ones (an object store's) torch warns, but nothing writes to them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return torch.from_numpy(np.ascontiguousarray(values))


class Epoch:
    """The batches of one epoch.

    The order, where none is given, is a permutation keyed by (seed, epoch); crop and flip of a sample are keyed by
    (seed, epoch, row) and do not change with the batch size. A last batch of one sample is joined to the one before:
    batch norm has no variance of one. With `part` (r, w) the batches are those of the r-th of w workers: equal parts of
    the same batches, the last of which has at least two samples a worker.
    """

    def __init__(
        self,
        data: Images,
        *,
        batch: int,
        seed: int,
        epoch: int,
        crop: int,
        flip: bool,
        part: tuple[int, int] = (0, 1),
        order: NDArray[np.int64] | None = None,
    ) -> None:
        self._data, self._batch, self._crop, self._part = data, batch, crop, part
        self._order = generator(seed, Purpose.SHUFFLE, epoch).permutation(len(data)) if order is None else order
        draws = generator(seed, Purpose.AUGMENT, epoch)
        self._shifts = draws.integers(0, 2 * crop + 1, (2, len(data))) if crop else None
        self._flips = draws.random(len(data)) < 0.5 if flip else None

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return self.after(0)

    def after(self, steps: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches that follow so many of them."""
        rank, workers = self._part
        for whole in self.slices()[steps:]:
            rows = np.array_split(whole, workers)[rank]
            labels = self._data.labels[torch.from_numpy(rows).to(self._data.labels.device)]
            yield self._augmented(self._data.rows(rows), rows), labels

    def __len__(self) -> int:
        return len(self.slices())

    def slices(self) -> list[NDArray[np.int64]]:
        """The rows of each batch, of all workers."""
        starts = list(range(0, len(self._order), self._batch))
        if len(starts) > 1 and len(self._order) - starts[-1] < 2 * self._part[1]:
            starts.pop()
        return np.split(self._order, starts[1:])

    def _augmented(self, images: Tensor, rows: NDArray[np.int64]) -> Tensor:
        if self._shifts is not None:
            images = cropped(images, *self._shifts[:, rows], padding=self._crop)
        if self._flips is not None:
            mirror = torch.from_numpy(self._flips[rows]).to(images.device)
            images = torch.where(mirror.view(-1, 1, 1, 1), images.flip(3), images)
        return images


def cropped(images: Tensor, down: NDArray[np.int64], right: NDArray[np.int64], *, padding: int) -> Tensor:
    """Windows of the images' own size, cut from them after zero padding, at (down, right), each (n,)."""
    n, _, height, width = images.shape
    padded = F.pad(images, (padding,) * 4)
    vertical = torch.from_numpy(down[:, None] + np.arange(height)).to(images.device)
    horizontal = torch.from_numpy(right[:, None] + np.arange(width)).to(images.device)
    first = torch.arange(n, device=images.device).view(n, 1, 1)
    return (
        padded.permute(0, 2, 3, 1)[first, vertical[:, :, None], horizontal[:, None, :]].permute(0, 3, 1, 2).contiguous()
    )
