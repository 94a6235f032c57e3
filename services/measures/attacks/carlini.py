"""The L2 attack of Carlini and Wagner (2017, arXiv 1608.04644, section V.A), batched.

``|x - x0|^2 + c max(z_y - max_{j != y} z_j, 0)`` is minimised by Adam over ``x = (tanh w + 1) / 2``, for constants c
that a binary search chooses sample by sample.

Three departures make it quick: the first c comes from the clean margin m and its gradient g, for if the margin were
linear, any ``c >= 2 m / |g|^2`` would lead to the boundary, at distance ``m / |g|``; Adam's step size is a multiple of
that distance a pixel, so that images near the boundary and far from it are both reached in few steps; and a sample
leaves the batch, for this c, as soon as a tenth of the steps has not lowered its own objective.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from services.measures.attacks.balls import lengths_of
from services.measures.attacks.margins import Network, ascent, gradient, margins, passes
from services.measures.attacks.tally import Tally, margin_and_slope

MARGIN = 0.001
"""How far from its ends the range of w starts. At the usual 1e-6 a black pixel needs hundreds of steps to move."""

RATES = (0.003, 0.1)
"""Smallest and largest first step size of Adam."""


@dataclass(frozen=True, slots=True)
class CarliniWagner:
    """A minimal-norm `Seeker`.

    Attributes:
        searches: constants tried for each sample.
        steps: Adam steps for each constant at most.
        rate: Adam's step size for the first constant, over the distance of a linear margin a pixel, ``m / |g|`` over
            the root of the number of pixels; half of it for the next constant, and so on.
    """

    searches: int = 5
    steps: int = 100
    rate: float = 3.0

    def __call__(
        self, network: Network, images: torch.Tensor, labels: torch.Tensor, tally: Tally, rows: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        margin, slope = _linear(network, images, labels, tally, rows)
        state = Search(images, labels, (4 * margin / slope.square()).clamp(1e-6, 1e6))
        rates = (self.rate * margin / slope / images[0].numel() ** 0.5).clamp(*RATES)
        for number in range(self.searches):
            state.narrow(self._descend(network, state, rates / 2**number, tally, rows))
        return state.best, state.nearest.isfinite()

    def _descend(
        self, network: Network, state: Search, rates: torch.Tensor, tally: Tally, rows: torch.Tensor
    ) -> torch.Tensor:
        """Minimise the objective for the constants of `state`; return which samples flipped on the way, (n,)."""
        flipped = torch.zeros(len(state.images), dtype=torch.bool, device=state.images.device)
        alive = torch.arange(len(state.images), device=state.images.device)
        adam = Adam(state.origin.clone(), rates.view(-1, 1, 1, 1))
        checked = torch.full((len(alive),), torch.inf, device=state.images.device)
        block = max(1, self.steps // 10)
        for number in range(self.steps):
            weight = adam.values.detach().requires_grad_()
            with torch.enable_grad():
                points = (weight.tanh() + 1) / 2
                logits = passes(network, points)
            margin = margins(logits.detach(), state.labels[alive])
            tally.saw(rows[alive], margin)
            flipped[alive[state.improve(alive, points.detach(), margin)]] = True

            shift = points.detach() - state.images.index_select(0, alive)
            hinge = (state.constants[alive] * (margin > 0)).unsqueeze(1)
            margin_slope = ascent(logits.detach(), state.labels[alive], "margin") * hinge
            slope = gradient((logits, points), weight, (-margin_slope, 2 * shift))
            adam.step(slope)
            if number % block == 0:
                objective = shift.square().sum(dim=(1, 2, 3)) + state.constants[alive] * margin.clamp(min=0.0)
                kept = (objective < 0.9999 * checked).nonzero().squeeze(1)
                alive, checked = alive[kept], objective[kept]
                adam.select(kept)
                if not len(kept):
                    break
        return flipped


class Search:
    """The state of n binary searches over the constant, and the nearest adversarial of each sample."""

    def __init__(self, images: torch.Tensor, labels: torch.Tensor, constants: torch.Tensor) -> None:
        self.images, self.labels, self.constants = images, labels, constants
        self.origin = torch.atanh((2 * images - 1) * (1 - MARGIN))
        self.lower, self.upper = torch.zeros_like(constants), torch.full_like(constants, torch.inf)
        self.best, self.nearest = images.clone(), torch.full_like(constants, torch.inf)

    def improve(self, alive: torch.Tensor, points: torch.Tensor, margin: torch.Tensor) -> torch.Tensor:
        """Keep points (m, C, H, W) of samples `alive` (m,) that are adversarial and nearer; return the adversarial."""
        fell = ~(margin > 0)
        length = lengths_of(points - self.images.index_select(0, alive)).flatten()
        closer = fell & (length < self.nearest[alive])
        self.best[alive[closer]], self.nearest[alive[closer]] = points[closer], length[closer]
        return fell

    def narrow(self, flipped: torch.Tensor) -> None:
        """Choose the next constants: ten times larger until one flips the label, then half way."""
        self.upper = torch.where(flipped, self.constants, self.upper)
        self.lower = torch.where(flipped, self.lower, self.constants)
        self.constants = torch.where(self.upper.isinf(), self.constants * 10, (self.lower + self.upper) / 2)


class Adam:
    """Adam (Kingma & Ba 2015) on a batch that may shrink, with a step size for each sample, (n, 1, 1, 1)."""

    def __init__(self, values: torch.Tensor, rates: torch.Tensor) -> None:
        self.values, self.rates, self.number = values, rates, 0
        self.mean, self.square = torch.zeros_like(values), torch.zeros_like(values)

    def step(self, slope: torch.Tensor) -> None:
        """One step against the gradient."""
        self.number += 1
        self.mean.lerp_(slope, 0.1)
        self.square.mul_(0.999).addcmul_(slope, slope, value=0.001)
        spread = (self.square / (1 - 0.999**self.number)).sqrt_().add_(1e-8)
        self.values = self.values.addcdiv(self.mean * self.rates, spread, value=-1 / (1 - 0.9**self.number))

    def select(self, rows: torch.Tensor) -> None:
        """Keep some samples only."""
        if len(rows) < len(self.values):
            self.values, self.rates, self.mean, self.square = (
                part.index_select(0, rows) for part in (self.values, self.rates, self.mean, self.square)
            )


def _linear(
    network: Network, images: torch.Tensor, labels: torch.Tensor, tally: Tally, rows: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The margin and the length of its gradient at the images, (n,) each, both finite, the length above 0."""
    margin, slope = margin_and_slope(network, images, labels, tally, rows)
    return torch.nan_to_num(margin).clamp(min=0.0), lengths_of(slope).flatten().clamp(min=1e-6)
