"""Square attack (Andriushchenko et al. 2020, arXiv 1912.00049, algorithms 1 and 2) for Linf: scores only, no gradient.

A random search: a square of pixels is set to one of the two ends of the ball, a sign a channel, and kept when the
margin falls. What it breaks where gradient attacks fail is a sign of masked gradients. All random numbers of a sample
are drawn from its own stream, so its path does not depend on the batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from services.measures.attacks.balls import LinfBall
from services.measures.attacks.margins import Network, judged, passes
from services.measures.attacks.starts import generator
from services.measures.attacks.tally import Tally

HALVINGS = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)
"""Queries, of ten thousand, after which the share of pixels in a square halves (the paper's section 3.1)."""


def side(query: int, queries: int, *, share: float, pixels: int, longest: int) -> int:
    """Side of the square at one of `queries` queries: the schedule of 10,000, stretched to the budget."""
    halved = sum(query * 10_000 > limit * queries for limit in HALVINGS)
    return min(longest, max(1, round(math.sqrt(share * pixels / 2**halved))))


@dataclass(frozen=True)
class SquareSearch:
    """A budget of `queries` forward passes a sample at one radius: an `Attack`."""

    network: Network
    images: torch.Tensor
    labels: torch.Tensor
    ids: NDArray[np.int64]
    epsilon: float
    queries: int
    seed: int
    share: float = 0.8
    code: int = 1

    def __call__(self, rows: torch.Tensor, tally: Tally) -> torch.Tensor:
        ball = LinfBall.around(self.images.index_select(0, rows), self.epsilon)
        signs, draws = self._draws(rows)
        best = torch.where(signs, ball.upper, ball.lower)
        labels, alive = self.labels[rows], torch.arange(len(rows), device=rows.device)
        broken = torch.zeros(len(rows), dtype=torch.bool, device=rows.device)
        lowest = torch.full((len(rows),), torch.inf, device=rows.device)
        trial = best
        for query in range(self.queries):
            margin, rival = self._judged(trial, labels)
            tally.saw(rows[alive], margin)
            tally.fell(rows[alive], ~(margin > 0), rival, trial)
            better = ~(margin >= lowest)
            best = torch.where(better.view(-1, 1, 1, 1), trial, best)
            lowest = torch.where(better, margin, lowest)
            broken[alive[~(margin > 0)]] = True
            kept = (margin > 0).nonzero().squeeze(1)
            if not len(kept):
                break
            if len(kept) < len(best):
                alive, labels, ball, draws = alive[kept], labels[kept], ball.select(kept), draws[kept]
                best, lowest = best.index_select(0, kept), lowest[kept]
            trial = self._propose(best, ball, draws[:, query], query)
        return broken

    def _judged(self, points: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.no_grad():
            return judged(passes(self.network, points), labels)

    def _draws(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Signs of the vertical stripes (m, C, 1, W) to start from, and numbers in [0, 1) (m, queries, 2 + C)."""
        channels, _, width = self.images.shape[1:]
        signs, draws = [], []
        for sample in self.ids[rows.cpu().numpy()]:
            stream = generator(int(sample), seed=self.seed, draw=0)
            signs.append(stream.random((channels, 1, width)) < 0.5)
            draws.append(stream.random((self.queries, 2 + channels), dtype=np.float32))
        device = self.images.device
        return torch.from_numpy(np.stack(signs)).to(device), torch.from_numpy(np.stack(draws)).to(device)

    def _propose(self, best: torch.Tensor, ball: LinfBall, draws: torch.Tensor, query: int) -> torch.Tensor:
        height, width = best.shape[2:]
        length = side(query, self.queries, share=self.share, pixels=height * width, longest=min(height, width))
        inside = _span(draws[:, 0], height, length).unsqueeze(2) & _span(draws[:, 1], width, length).unsqueeze(1)
        ends = torch.where(draws[:, 2:, None, None] < 0.5, ball.lower, ball.upper)
        return torch.where(inside.unsqueeze(1), ends, best)


def _span(draw: torch.Tensor, size: int, length: int) -> torch.Tensor:
    """Which of `size` places lie in a span of `length` that starts at a random one, (m, size)."""
    first = (draw * (size - length + 1)).long().unsqueeze(1)
    places = torch.arange(size, device=draw.device)
    return (places >= first) & (places < first + length)
