"""Projection perturbation: how far each latent factor moves before a classifier changes its mind (APPS, Algorithm 1).

For sample s and dimension d the latent ``z_sd`` is put to the centre ``mu_d``, and from there moved to ``mu_d - sigma_d
m / M`` and ``mu_d + sigma_d m / M``, m = 1 .. M. The label to change is the one at the centre, m = 0, or one that is
given for each sample. All (sample, dimension, direction) triples go through the networks together; one that has flipped
is left out of the next step, so a dimension stops when all its samples have flipped.

Guarantee: every position reported as a flip is one at which an image was decoded and classified otherwise than the
label to change, or its logits were NaN or infinite; at every grid position before it the label was that one. Between
grid positions nothing is claimed: a label may flip and flip back within ``sigma_d / M``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from services.loading.mappers import decoded
from services.measures.attacks.margins import Network, passes

if TYPE_CHECKING:
    from services.loading.mappers import Decode

CHUNK_PIXELS = 1 << 16
CHUNK_LEAST, CHUNK_MOST = 64, 1024
"""Images per pass on a CPU: as many as keep a small network's activations in the cache; measured on 8x8 and 28x28."""
UNREAL = -1
"""Stands for the label of logits that are NaN or infinite."""


@dataclass(frozen=True)
class Axes:
    """Which latents are moved, from where and how far: D dimensions.

    Attributes:
        dimensions: (D,) int64 columns of the latents.
        centre, unit: (D,), mu and sigma > 0.
    """

    dimensions: torch.Tensor
    centre: torch.Tensor
    unit: torch.Tensor

    def to(self, device: torch.device) -> Axes:
        """On a device."""
        return Axes(self.dimensions.to(device), self.centre.to(device), self.unit.to(device))


@dataclass(frozen=True)
class Projected:
    """What the projection of n samples along D dimensions found.

    Attributes:
        moves: (n, D, 2) float64, distances from the centre down and up in units, each in [0, 1]: the first position
            with another label; 1 where there is none, 0 where the centre itself has another than the one given.
        censored: (n, D, 2), the label never changed in that direction.
        start: (n, D) labels at the centre, -1 where the logits there are not finite: those flip at 0.
        non_finite: (n,), some logit on the way was NaN or infinite.
        queries: (n,) images decoded and classified.
    """

    moves: NDArray[np.float64]
    censored: NDArray[np.bool_]
    start: NDArray[np.int64]
    non_finite: NDArray[np.bool_]
    queries: NDArray[np.int64]


def project(
    network: Network,
    decode: Decode,
    latents: torch.Tensor,
    axes: Axes,
    *,
    steps: int = 20,
    halvings: int = 0,
    chunk: int = CHUNK_LEAST,
    own: torch.Tensor | None = None,
) -> Projected:
    """Move every latent along every dimension, both ways.

    Args:
        network: images in [0, 1] to logits (n, K).
        latents: (n, L).
        steps: M; the position is known to 1/M of a unit.
        halvings: bisections between the last position with the centre's label and the first without, to
            ``1 / (M 2**halvings)`` of a unit; the position reported is the end that has flipped.
        chunk: images that pass through the networks together.
        own: (n,) int64 labels to change; None takes those at the centres.

    Raises:
        MeasureError: decoded images are not (n, C, H, W), or not in [0, 1].
    """
    with torch.no_grad():
        return _Search(network, decode, latents, axes.to(latents.device), chunk).run(steps, halvings, own)


def cached_chunk(pixels: int) -> int:
    """How many images of so many values go through a small network best on a CPU."""
    return min(max(CHUNK_PIXELS // max(pixels, 1), CHUNK_LEAST), CHUNK_MOST)


class _Search:
    """The state of one projection; triples are numbered ``(s * D + d) * 2 + direction``."""

    def __init__(self, network: Network, decode: Decode, latents: torch.Tensor, axes: Axes, chunk: int) -> None:
        self._network, self._decode, self._latents, self._axes, self._chunk = network, decode, latents, axes, chunk
        self._size, self._count = len(latents), len(axes.dimensions)
        self._queries = torch.zeros(self._size, dtype=torch.int64, device=latents.device)
        self._unreal = torch.zeros(self._size, dtype=torch.bool, device=latents.device)

    def run(self, steps: int, halvings: int, given: torch.Tensor | None) -> Projected:
        total, device = self._size * self._count * 2, self._latents.device
        pairs = torch.arange(self._size * self._count, device=device)
        start = self._labels(pairs * 2, torch.zeros(len(pairs), device=device, dtype=torch.float64))
        wanted = start if given is None else given.to(device).repeat_interleave(self._count)
        own = wanted.repeat_interleave(2)
        low = torch.zeros(total, dtype=torch.float64, device=device)
        lost = (wanted == UNREAL) | (start != wanted)
        high = torch.where(lost.repeat_interleave(2), 0.0, torch.inf).double()
        for step in range(1, steps + 1):
            alive = high.isinf().nonzero().squeeze(1)
            if not len(alive):
                break
            place = torch.full((len(alive),), step / steps, dtype=torch.float64, device=device)
            flipped = self._labels(alive, place) != own[alive]
            high[alive[flipped]], low[alive[~flipped]] = step / steps, step / steps
        self._bisect(own, low, high, halvings)
        shape = (self._size, self._count, 2)
        return Projected(
            moves=high.clamp(max=1.0).view(shape).cpu().numpy(),
            censored=high.isinf().view(shape).cpu().numpy(),
            start=start.view(shape[:2]).cpu().numpy(),
            non_finite=self._unreal.cpu().numpy(),
            queries=self._queries.cpu().numpy(),
        )

    def _bisect(self, own: torch.Tensor, low: torch.Tensor, high: torch.Tensor, halvings: int) -> None:
        rows = ((high > 0) & high.isfinite()).nonzero().squeeze(1)
        for _ in range(halvings if len(rows) else 0):
            middle = (low[rows] + high[rows]) / 2
            flipped = self._labels(rows, middle) != own[rows]
            high[rows], low[rows] = torch.where(flipped, middle, high[rows]), torch.where(flipped, low[rows], middle)

    def _labels(self, triples: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        """Labels (m,) of triples (m,) moved to places (m,) in [0, 1]; -1 where a logit is NaN or infinite."""
        starts = range(0, len(triples), self._chunk)
        parts = [self._part(triples[i : i + self._chunk], places[i : i + self._chunk]) for i in starts]
        return torch.cat(parts) if parts else triples.new_empty(0)

    def _part(self, triples: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        pair = triples // 2
        sample, which = pair // self._count, pair % self._count
        sign = (triples % 2).double() * 2 - 1
        moved = self._latents[sample]
        at = self._axes.centre[which].double() + sign * places * self._axes.unit[which].double()
        moved[torch.arange(len(moved), device=moved.device), self._axes.dimensions[which]] = at.to(moved.dtype)
        logits = passes(lambda latents: self._network(decoded(self._decode, latents)), moved)
        real = logits.isfinite().all(dim=1)
        self._queries += torch.bincount(sample, minlength=self._size)
        self._unreal[sample[~real]] = True
        return torch.where(real, logits.argmax(dim=1), UNREAL)
