"""The fast minimum-norm attack in Linf (Pintor et al. 2021, arXiv 2102.12827), with steps of signs.

The radius of a ball is lowered to the distance found while the sample is adversarial and raised while it is not, as in
L2. Departures from the paper, all measured against its program (`benchmarks/attacks.py`): a step goes along the signs
of the gradient, averaged over the last ones, by a share of the radius that shrinks on a cosine: along the gradient
itself most pixels never reach the edge of the ball. Steps take only the part of the gradient that stays in [0, 1]. And
until a first adversarial is found the radius is set a little beyond the linearised boundary, and not on it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from services.measures.attacks.balls import inwards, lengths_of
from services.measures.attacks.margins import Network
from services.measures.attacks.tally import Tally, margin_and_slope


@dataclass(frozen=True, slots=True)
class FastMinimumLinf:
    """A minimal-norm `Seeker` in Linf.

    Attributes:
        limit: no point farther than this is tried.
        steps: forward and backward passes.
        longest, shortest: a step at the start and at the end, as shares of the radius.
        gamma: relative change of the radius at the start; 0.002 at the end.
        momentum: weight of the gradients before, each scaled to a sum of 1.
    """

    limit: float
    steps: int = 60
    longest: float = 1.0
    shortest: float = 0.02
    gamma: float = 0.2
    momentum: float = 0.5

    def __call__(
        self, network: Network, images: torch.Tensor, labels: torch.Tensor, tally: Tally, rows: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        best, shift, drift = images.clone(), torch.zeros_like(images), torch.zeros_like(images)
        nearest = torch.full((len(images), 1, 1, 1), torch.inf, device=images.device)
        radius = nearest.clone()
        for number in range(self.steps):
            warmth = (1 + math.cos(math.pi * number / self.steps)) / 2
            gamma = 0.002 + (self.gamma - 0.002) * warmth
            points = images + shift
            margin, slope = margin_and_slope(network, points, labels, tally, rows)
            slope = inwards(slope, points)

            length, fell = lengths_of(shift, "Linf"), ~(margin > 0).view(-1, 1, 1, 1)
            closer = fell & (length < nearest)
            nearest, best = torch.where(closer, length, nearest), torch.where(closer, points, best)
            total = slope.abs().sum(dim=(1, 2, 3), keepdim=True).clamp(min=1e-30)
            gap = torch.nan_to_num(margin.abs()).view(-1, 1, 1, 1) / total
            wider = torch.where(nearest.isfinite(), radius, length + gap) * (1 + gamma)
            radius = torch.where(fell, torch.minimum(radius * (1 - gamma), nearest), wider).clamp_(max=self.limit)

            drift = self.momentum * drift + slope / total
            reach = self.shortest + (self.longest - self.shortest) * warmth
            shift += drift.sign() * (reach * radius)
            shift = torch.maximum(torch.minimum(shift, radius), -radius)
            shift = (images + shift).clamp_(0.0, 1.0) - images
        return best, nearest.isfinite().flatten()
