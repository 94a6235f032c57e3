"""Projected gradient descent (Madry et al. 2018, arXiv 1706.06083) under either loss.

Departures from the textbook, all towards more broken samples for less work: every iterate counts, the start included,
and not only the last; a sample leaves the batch when it is broken; the logits of the gradient's own forward pass show
whether it is, so no pass is spent on asking.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from services.measures.attacks.balls import Ball, Norm, ball_around
from services.measures.attacks.margins import Loss, Network, ascent, gradient, judged, passes
from services.measures.attacks.survival import Survival, survive
from services.measures.attacks.tally import Tally

LOOK = {"cuda": 5}
"""Steps between looks at who is broken. On a GPU a look waits for the device, which costs more than small networks do,
so broken samples are carried along for a few steps and no longer counted; the columns are the same."""


@dataclass(frozen=True, slots=True)
class Descent:
    """How PGD moves: `steps` gradient steps of length `step` in a ball of radius `epsilon`, from `restarts` starts."""

    epsilon: float
    step: float
    steps: int
    restarts: int = 1
    norm: Norm = "Linf"
    loss: Loss = "ce"


@dataclass(frozen=True)
class Restart:
    """PGD from one random start, fixed by (seed, sample id, number of the restart): an `Attack`."""

    network: Network
    images: torch.Tensor
    labels: torch.Tensor
    ids: NDArray[np.int64]
    how: Descent
    draw: int
    seed: int

    @property
    def code(self) -> int:
        return self.draw + 1

    def __call__(self, rows: torch.Tensor, tally: Tally) -> torch.Tensor:
        ball = ball_around(self.images.index_select(0, rows), self.how.epsilon, self.how.norm)
        start = ball.start(self.ids[rows.cpu().numpy()], seed=self.seed, draw=self.draw)
        return descend(self.network, start, self.labels[rows], ball, self.how, tally, rows)


def descend(
    network: Network,
    points: torch.Tensor,
    labels: torch.Tensor,
    ball: Ball,
    how: Descent,
    tally: Tally,
    rows: torch.Tensor,
) -> torch.Tensor:
    """Attack all `points` (m, C, H, W) once and return which are broken, (m,). `rows` are their places in the tally."""
    broken = torch.zeros(len(points), dtype=torch.bool, device=points.device)
    alive, standing = torch.arange(len(points), device=points.device), ~broken
    look = LOOK.get(points.device.type, 1)
    for number in range(how.steps + 1):
        last = number == how.steps
        with torch.set_grad_enabled(not last):
            points = points.detach().requires_grad_(not last)
            logits = passes(network, points)
        margin, rival = judged(logits.detach(), labels)
        tally.saw(rows, margin, standing)
        tally.fell(rows, standing & ~(margin > 0), rival, points)
        standing = standing & (margin > 0)
        kept = standing.nonzero().squeeze(1) if number % look == 0 and not last else alive
        if last or not len(kept):
            break
        slope = gradient(logits, points, ascent(logits.detach(), labels, how.loss))
        tally.sloped(rows, slope, standing)
        if len(kept) < len(points):
            broken[alive] = ~standing
            alive, rows, labels, ball = alive[kept], rows[kept], labels[kept], ball.select(kept)
            points, slope = points.detach().index_select(0, kept), slope.index_select(0, kept)
            standing = standing[kept]
        points = ball.step(points, slope, how.step)
    broken[alive] = ~standing
    return broken


def attack_curve(
    network: Network,
    images: torch.Tensor,
    labels: torch.Tensor,
    ids: NDArray[np.int64],
    curve: tuple[Descent, ...],
    *,
    seed: int,
    keep: bool = False,
) -> Survival:
    """Run PGD at each point of a curve of rising epsilons; `broken_by` is the number of the restart, from 1."""
    attacks = [
        [Restart(network, images, labels, ids, how, draw, seed) for draw in range(how.restarts)] for how in curve
    ]
    return survive(network, images, labels, attacks, keep=keep)
