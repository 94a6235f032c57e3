"""The fast minimum-norm attack in L2 (Pintor et al. 2021, arXiv 2102.12827, algorithm 1), batched.

The radius of a ball is lowered while the sample is adversarial and raised while it is not, with steps of fixed and then
shrinking length along the gradient of the margin in between: it has no constant to search for and no scale to set.

Departure: until a first adversarial is found the radius is set a little beyond the linearised boundary, by the same
gamma, and not on it; on a nearly linear margin the original closes in on the boundary and never crosses it. And steps
take only the part of the gradient that stays in [0, 1]: on MNIST, most of it points into black pixels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from services.measures.attacks.balls import inwards, lengths_of, unit
from services.measures.attacks.margins import Network
from services.measures.attacks.tally import Tally, margin_and_slope


@dataclass(frozen=True, slots=True)
class FastMinimumNorm:
    """A minimal-norm `Seeker`.

    Attributes:
        limit: no point farther than this is tried.
        steps: forward and backward passes.
        longest, shortest: the step's length at the start and at the end, on a cosine.
        gamma: relative change of the radius at the start; 0.001 at the end.
    """

    limit: float
    steps: int = 100
    longest: float = 1.0
    shortest: float = 0.01
    gamma: float = 0.05

    def __call__(
        self, network: Network, images: torch.Tensor, labels: torch.Tensor, tally: Tally, rows: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        best, shift = images.clone(), torch.zeros_like(images)
        nearest = torch.full((len(images), 1, 1, 1), torch.inf, device=images.device)
        radius = nearest.clone()
        for number in range(self.steps):
            warmth = (1 + math.cos(math.pi * number / self.steps)) / 2
            gamma = 0.001 + (self.gamma - 0.001) * warmth
            points = images + shift
            margin, slope = margin_and_slope(network, points, labels, tally, rows)
            slope = inwards(slope, points)

            length, fell = lengths_of(shift), ~(margin > 0).view(-1, 1, 1, 1)
            closer = fell & (length < nearest)
            nearest, best = torch.where(closer, length, nearest), torch.where(closer, points, best)
            gap = torch.nan_to_num(margin.abs()).view(-1, 1, 1, 1) / lengths_of(slope).clamp(min=1e-12)
            wider = torch.where(nearest.isfinite(), radius * (1 + gamma), length + gap * (1 + gamma))
            radius = torch.where(fell, torch.minimum(radius * (1 - gamma), nearest), wider).clamp_(max=self.limit)

            shift += unit(slope) * (self.shortest + (self.longest - self.shortest) * warmth)
            shift *= (radius / lengths_of(shift).clamp(min=1e-30)).clamp_(max=1.0)
            shift = (images + shift).clamp_(0.0, 1.0) - images
        return best, nearest.isfinite().flatten()
