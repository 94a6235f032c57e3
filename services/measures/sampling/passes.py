"""Forward passes over pairs (row of the batch, draw id), packed into full passes whatever samples they belong to.

Memory is that of one pass: perturbed images, their noise and their logits live for one pass only, so it does not grow
with the number of draws.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from services.measures.sampling.noise import unit_noise
from services.measures.sampling.perturbation import Kind, perturb, unit_draws

Ints = NDArray[np.int64]
SMALLEST_PASS = 64
"""A pass holds as many images as the batch handed in, for the worker knows that so many fit, but at least these."""


@dataclass(frozen=True)
class Passes:
    """A network and a batch of samples on one device, ready to be drawn from.

    Attributes:
        network: images to logits.
        images: (n, C, H, W) in [0, 1].
        labels: (n,).
        ids: (n,) sample ids, the keys of the noise.
        seed: of the noise.
    """

    network: Callable[[torch.Tensor], torch.Tensor]
    images: torch.Tensor
    labels: torch.Tensor
    ids: Ints
    seed: int

    @property
    def size(self) -> int:
        """Images a pass."""
        return max(len(self.images), SMALLEST_PASS)

    @property
    def dimension(self) -> int:
        return int(self.images[0].numel())

    def logits(self, images: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            return self.network(images)

    def margins(self, images: torch.Tensor, rows: Ints) -> torch.Tensor:
        """z_y minus the largest other logit, (m,) float32; -inf where any logit is NaN or infinite (never robust)."""
        return margin(self.logits(images), self.labels[self.index(rows)])

    def index(self, rows: Ints) -> torch.Tensor:
        return torch.from_numpy(rows).to(self.images.device)

    def correct(self) -> NDArray[np.bool_]:
        """(n,) whether the clean sample is classified correctly; a tie for the top is not."""
        rows = np.arange(len(self.images))
        parts = [
            (self.margins(self.images[part], rows[part]) > 0).cpu().numpy() for part in _slices(len(rows), self.size)
        ]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=bool)

    def perturbed(self, kind: Kind, strengths: tuple[float, ...], rows: Ints, draws: Ints) -> Iterator[torch.Tensor]:
        """For at most one pass of pairs: the perturbed images at each strength, all from the same unit draws."""
        keys, threads = self.ids[rows], torch.get_num_threads()
        unit = unit_draws(kind, seed=self.seed, ids=keys, draws=draws, dimension=self.dimension, threads=threads)
        device_unit = torch.from_numpy(unit).to(self.images.device)
        images = self.images[self.index(rows)]
        for strength in strengths:
            yield perturb(kind, images, device_unit, strength)

    def gaussian(self, rows: Ints, draws: Ints) -> NDArray[np.float32]:
        """Standard normal noise (m, dimension), made on as many threads as the network may use."""
        keys, threads = self.ids[rows], torch.get_num_threads()
        return unit_noise("gaussian", seed=self.seed, ids=keys, draws=draws, dimension=self.dimension, threads=threads)

    def failed(self, kind: Kind, strengths: tuple[float, ...], rows: Ints, draws: Ints) -> NDArray[np.bool_]:
        """(len(strengths), m) whether f(perturbed) differs from the label, for each pair (rows[i], draws[i])."""
        out = np.empty((len(strengths), len(rows)), dtype=bool)
        for part in _slices(len(rows), self.size):
            for index, images in enumerate(self.perturbed(kind, strengths, rows[part], draws[part])):
                out[index, part] = ~(self.margins(images, rows[part]) > 0).cpu().numpy()
        return out

    def failures_at(self, kind: Kind, strength: float) -> Callable[[Ints, Ints], NDArray[np.bool_]]:
        """`failed` at one strength, as a function of pairs."""
        return lambda rows, draws: self.failed(kind, (strength,), rows, draws)[0]

    def smoothed_classes(self, sigma: float, rows: Ints, draws: Ints) -> Ints:
        """(m,) class of f(x + N(0, sigma^2 I)) for each pair, not clipped to [0, 1]; -1 for NaN or infinite logits."""
        out = np.empty(len(rows), dtype=np.int64)
        for part in _slices(len(rows), self.size):
            noise = self.gaussian(rows[part], draws[part])
            noise *= np.float32(sigma)
            images = self.images[self.index(rows[part])]
            logits = self.logits(images + torch.from_numpy(noise).to(images.device).view_as(images))
            classes = torch.where(torch.isfinite(logits).all(1), logits.argmax(1), -1)
            out[part] = classes.cpu().numpy()
        return out


def margin(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """z_y - max_{j != y} z_j (m,), -inf where a logit is NaN or infinite."""
    own = logits.gather(1, labels[:, None]).squeeze(1)
    other = logits.scatter(1, labels[:, None], -torch.inf).amax(1)
    return torch.where(torch.isfinite(logits).all(1), own - other, -torch.inf)


def _slices(total: int, size: int) -> Iterator[slice]:
    for start in range(0, total, size):
        yield slice(start, min(start + size, total))


def pairs(rows: Ints, first: NDArray[Any], counts: Ints) -> tuple[Ints, Ints]:
    """Pairs of row rows[i] with draws first[i] .. first[i] + counts[i] - 1, flat, a sample's draws side by side."""
    total = int(counts.sum())
    offsets = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(rows, counts), np.repeat(first, counts) + offsets
