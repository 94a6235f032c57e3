"""Traversal of a mapper's latents by one network, from the centre of all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from services.loading.mappers import decoded
from services.measures.attacks.margins import Network, passes
from services.measures.latent.boundaries import Axes, project
from services.storage.traversals import Traversal

if TYPE_CHECKING:
    from services.loading.mappers import LoadedMapper

POSITIONS = 11
MOST_DIMENSIONS = 64


def traverse(
    network: Network, mapper: LoadedMapper, centre: torch.Tensor, axes: Axes, *, steps: int, halvings: int
) -> Traversal:
    """Move each dimension of the latents `centre` (L,) through its range, the others resting.

    The flip points are those of `project` for these latents; at most `MOST_DIMENSIONS` are moved.
    """
    kept = Axes(*(part[:MOST_DIMENSIONS] for part in (axes.dimensions, axes.centre, axes.unit)))
    start = centre.float()[None]
    projected = project(network, mapper.decode, start, kept, steps=steps, halvings=halvings)
    positions = np.linspace(-1.0, 1.0, POSITIONS)
    rows = [_row(network, mapper, start, kept, d, positions) for d in range(len(kept.dimensions))]
    return Traversal(
        dimensions=kept.dimensions.cpu().numpy(),
        positions=positions,
        images=np.stack([images for images, _ in rows]),
        labels=np.stack([labels for _, labels in rows]),
        moves=projected.moves[0],
        censored=projected.censored[0],
    )


def _row(
    network: Network, mapper: LoadedMapper, start: torch.Tensor, axes: Axes, d: int, positions: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Images (S, H, W, C) uint8 and labels (S,) of one dimension at `positions`."""
    moved = start.repeat(len(positions), 1)
    steps = torch.from_numpy(positions).to(start.device)
    at = axes.centre[d].double().to(start.device) + steps * axes.unit[d].double().to(start.device)
    moved[:, int(axes.dimensions[d])] = at.to(moved.dtype)
    with torch.no_grad():
        images = passes(lambda latents: decoded(mapper.decode, latents), moved)
        logits = passes(network, images)
    labels = torch.where(logits.isfinite().all(dim=1), logits.argmax(dim=1), -1)
    pixels = (images.permute(0, 2, 3, 1) * 255.0).round().to(torch.uint8)
    return pixels.cpu().numpy(), labels.cpu().numpy()
