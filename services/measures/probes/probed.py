"""Samples of a network under probe."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from services.measures.attacks.balls import Ball, ball_around
from services.measures.attacks.margins import Network
from services.measures.probes.budget import Guard

FIRST_DRAW = 1 << 20
"""Draws of the probe's noise, which no restart of an attack uses."""


@dataclass(frozen=True)
class Probed:
    """m samples of a network under probe: images (m, C, H, W), labels and ids (m,)."""

    network: Network
    images: torch.Tensor
    labels: torch.Tensor
    ids: NDArray[np.int64]
    guard: Guard
    seed: int

    def select(self, rows: torch.Tensor) -> Probed:
        ids = self.ids[rows.cpu().numpy()]
        images = self.images.index_select(0, rows)
        return Probed(self.network, images, self.labels[rows], ids, self.guard, self.seed)

    @cached_property
    def ball(self) -> Ball:
        return ball_around(self.images, self.guard.epsilon, self.guard.norm)
