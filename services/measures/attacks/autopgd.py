"""Auto-PGD (Croce & Hein 2020, arXiv 2003.01690, Algorithm 1) on losses that do not know the scale of the logits.

Departures from the paper and its package. A sample leaves the batch at the iterate that breaks it. The cross-entropy is
that of logits divided by their own spread on the clean image, in float64 and without the part that saturates (`Aim`).
Target classes are ranked once, on the clean image. A random start is keyed by (seed, sample id, run) and uniform in the
ball.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from services.measures.attacks.balls import Ball, Norm, ball_around, unit
from services.measures.attacks.descent import LOOK
from services.measures.attacks.margins import Network, gradient, judged, passes
from services.measures.attacks.survival import Survival, survive
from services.measures.attacks.tally import Tally

Loss = Literal["ce", "dlr-t", "dlr"]

CODES: dict[Loss, int] = {"ce": 1, "dlr-t": 2, "dlr": 3}
"""What `broken_by` says of the samples that each loss broke."""

MOMENTUM, RHO, SHARPNESS = 0.75, 0.75, 4.0
"""Weight of the newest step; the share of steps that must rise, or the step size is halved; how many standard
deviations of the logits are one unit of the soft-max."""


@dataclass(frozen=True, slots=True)
class Climb:
    """How one run moves: `steps` steps in a ball of radius `epsilon`, up one loss."""

    epsilon: float
    steps: int
    norm: Norm = "Linf"
    loss: Loss = "ce"


@dataclass(frozen=True, slots=True)
class Aim:
    """The loss of m samples.

    "ce":    ``log sum_{j != y} exp(s z_j) - s z_y``, which rises with the cross-entropy of ``s z`` and does not
             saturate; s is one number a sample.
    "dlr-t": ``(z_t - z_y) / (z_(1) - (z_(3) + z_(4)) / 2)``, eq. 7 of the paper; needs K >= 4.
    "dlr":   ``(max_{j != y} z_j - z_y) / (z_(1) - z_(3))``, eq. 6; needs K >= 3.

    z_(i) is the i-th largest logit. While y is strictly the largest no denominator is 0.

    Attributes:
        loss: one of the three.
        labels, targets: (m,); only "dlr-t" reads the targets.
        scale: s, (m,); only "ce" reads it.
    """

    loss: Loss
    labels: torch.Tensor
    targets: torch.Tensor
    scale: torch.Tensor

    def select(self, rows: torch.Tensor) -> Aim:
        return replace(self, labels=self.labels[rows], targets=self.targets[rows], scale=self.scale[rows])

    def values(self, logits: torch.Tensor) -> torch.Tensor:
        """The loss (m,) of logits (m, K)."""
        label = self.labels.unsqueeze(1)
        if self.loss == "ce":
            scaled = logits * self.scale.unsqueeze(1)
            return scaled.scatter(1, label, -torch.inf).logsumexp(1) - scaled.gather(1, label).squeeze(1)
        own = logits.gather(1, label).squeeze(1)
        if self.loss == "dlr":
            top = logits.topk(3, dim=1).values
            return (logits.scatter(1, label, -torch.inf).amax(1) - own) / (top[:, 0] - top[:, 2])
        top = logits.topk(4, dim=1).values
        target = logits.gather(1, self.targets.unsqueeze(1)).squeeze(1)
        return (target - own) / (top[:, 0] - (top[:, 2] + top[:, 3]) / 2)

    def rise(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The loss (m,) and its gradient by the logits (m, K), scaled to largest entry 1 in each row."""
        with torch.enable_grad():
            leaf = logits.detach().double().requires_grad_()
            values = self.values(leaf)
            (slope,) = torch.autograd.grad(values.sum(), leaf)
        largest = slope.abs().amax(dim=1, keepdim=True).clamp(min=torch.finfo(slope.dtype).tiny)
        return values.detach(), (slope / largest).to(logits.dtype)


@dataclass(frozen=True, slots=True)
class Outlook:
    """What the clean images say of n samples: classes from the most likely down (n, K), and the scale of "ce" (n,)."""

    ranked: torch.Tensor
    scale: torch.Tensor

    @classmethod
    def of(cls, network: Network, images: torch.Tensor) -> Outlook:
        with torch.no_grad():
            logits = passes(network, images).double()
        spread = logits.std(dim=1, correction=0)
        return cls(logits.argsort(dim=1, descending=True, stable=True), SHARPNESS / spread)


def checkpoints(steps: int) -> tuple[int, ...]:
    """The iterates at which step sizes are looked at: ``ceil(p_j N)``, p = 0, 0.22, then ever shorter (Section 3)."""
    shares = [0.0, 0.22]
    while shares[-1] < 1:
        shares.append(shares[-1] + max(shares[-1] - shares[-2] - 0.03, 0.06))
    return tuple(dict.fromkeys(math.ceil(share * steps - 1e-9) for share in shares[1:-1]))


@dataclass(slots=True)
class Trail:
    """Where m samples stand in a run: all (m, ...), cut down together when samples leave.

    Attributes:
        points, previous: this iterate and the one before.
        slope: input gradient at `points`.
        value: loss at `points`.
        best, best_slope, best_value: the iterate of the largest loss.
        size: step size.
        risen: steps since the last checkpoint that raised the loss.
        halved: whether the last checkpoint halved the step.
        checked: the largest loss at the last checkpoint.
    """

    points: torch.Tensor
    previous: torch.Tensor
    slope: torch.Tensor
    value: torch.Tensor
    best: torch.Tensor
    best_slope: torch.Tensor
    best_value: torch.Tensor
    size: torch.Tensor
    risen: torch.Tensor
    halved: torch.Tensor
    checked: torch.Tensor

    @classmethod
    def begin(cls, points: torch.Tensor, slope: torch.Tensor, value: torch.Tensor, epsilon: float) -> Trail:
        size = torch.full_like(value, 2 * epsilon)
        still = torch.zeros_like(value)
        moved = torch.ones_like(value, dtype=torch.bool)
        return cls(points, points, slope, value, points, slope, value, size, still, moved, value)

    def select(self, rows: torch.Tensor) -> Trail:
        return Trail(*(getattr(self, name).index_select(0, rows) for name in Trail.__slots__))

    def arrive(self, slope: torch.Tensor, value: torch.Tensor) -> None:
        """Note loss and gradient at `points`."""
        better = value > self.best_value
        there = _wide(better)
        self.risen = self.risen + (value > self.value)
        self.slope, self.value = slope, value
        self.best = torch.where(there, self.points, self.best)
        self.best_slope = torch.where(there, slope, self.best_slope)
        self.best_value = torch.where(better, value, self.best_value)

    def check(self, interval: int) -> None:
        """Halve the step, and go back to the best point, where the loss rose too seldom or not at all."""
        seldom = self.risen <= RHO * interval
        stuck = ~self.halved & (self.checked >= self.best_value)
        self.halved = seldom | stuck
        self.size = torch.where(self.halved, self.size / 2, self.size)
        self.points = torch.where(_wide(self.halved), self.best, self.points)
        self.slope = torch.where(_wide(self.halved), self.best_slope, self.slope)
        self.checked, self.risen = self.best_value, torch.zeros_like(self.risen)

    def move(self, ball: Ball, norm: Norm, *, first: bool) -> None:
        """One step with momentum; the first has none."""
        direction = self.slope.sign() if norm == "Linf" else unit(self.slope)
        ahead = ball.project(self.points + direction * _wide(self.size).to(direction.dtype))
        if not first:
            drift = self.points - self.previous
            ahead = ball.project(self.points + MOMENTUM * (ahead - self.points) + (1 - MOMENTUM) * drift)
        self.previous, self.points = self.points, ahead


def _wide(values: torch.Tensor) -> torch.Tensor:
    return values.view(-1, 1, 1, 1)


def climb(
    network: Network, start: torch.Tensor, ball: Ball, aim: Aim, how: Climb, tally: Tally, rows: torch.Tensor
) -> torch.Tensor:
    """Attack the points `start` (m, C, H, W) once and return which are broken, (m,); `rows` are theirs in the tally."""
    broken = torch.zeros(len(start), dtype=torch.bool, device=start.device)
    alive, standing, points = torch.arange(len(start), device=start.device), ~broken, start
    look, trail, marks, last_mark = LOOK.get(start.device.type, 1), None, checkpoints(how.steps), 0
    for number in range(how.steps + 1):
        last = number == how.steps
        with torch.set_grad_enabled(not last):
            leaf = points.detach().requires_grad_(not last)
            logits = passes(network, leaf)
        margin, rival = judged(logits.detach(), aim.labels)
        tally.saw(rows, margin, standing)
        tally.fell(rows, standing & ~(margin > 0), rival, leaf)
        standing = standing & (margin > 0)
        kept = standing.nonzero().squeeze(1) if number % look == 0 and not last else alive
        if last or not len(kept):
            break
        value, weights = aim.rise(logits)
        slope = gradient(logits, leaf, weights)
        tally.sloped(rows, slope, standing)
        if trail is None:
            trail = Trail.begin(leaf.detach(), slope, value, how.epsilon)
        else:
            trail.arrive(slope, value)
        if len(kept) < len(points):
            broken[alive] = ~standing
            alive, rows, aim, ball = alive[kept], rows[kept], aim.select(kept), ball.select(kept)
            trail, standing = trail.select(kept), standing[kept]
        if number in marks:
            trail.check(number - last_mark)
            last_mark = number
        trail.move(ball, how.norm, first=number == 0)
        points = trail.points
    broken[alive] = ~standing
    return broken


@dataclass(frozen=True)
class Run:
    """APGD once from a random start: an `Attack`.

    Attributes:
        draw: number of the run at this radius, which keys its start.
        rank: place of the target class among the classes by clean logit, 1 for the first after the label's.
    """

    network: Network
    images: torch.Tensor
    labels: torch.Tensor
    ids: NDArray[np.int64]
    outlook: Outlook
    how: Climb
    draw: int
    seed: int
    rank: int = 1

    @property
    def code(self) -> int:
        return CODES[self.how.loss]

    def __call__(self, rows: torch.Tensor, tally: Tally) -> torch.Tensor:
        ball = ball_around(self.images.index_select(0, rows), self.how.epsilon, self.how.norm)
        start = ball.start(self.ids[rows.cpu().numpy()], seed=self.seed, draw=self.draw)
        ranked, scale = self.outlook.ranked[rows, self.rank], self.outlook.scale[rows]
        aim = Aim(self.how.loss, self.labels[rows], ranked, scale)
        return climb(self.network, start, ball, aim, self.how, tally, rows)


@dataclass(frozen=True, slots=True)
class Schedule:
    """What runs at each radius: every loss in order, "dlr-t" once a target, all of it `restarts` times."""

    epsilons: tuple[float, ...]
    steps: int
    restarts: int
    targets: int
    losses: tuple[Loss, ...]
    norm: Norm

    def fitted(self, classes: int) -> Schedule:
        """What can run on K classes: at most K - 1 targets; "dlr" for "dlr-t" where K is 3, neither where K is 2."""
        losses: Sequence[Loss] = self.losses
        if classes < 4:
            losses = ["dlr" if loss == "dlr-t" else loss for loss in losses if classes == 3 or loss == "ce"]
        return replace(self, losses=tuple(losses), targets=min(self.targets, classes - 1))

    def runs(self, epsilon: float) -> Iterator[tuple[Climb, int]]:
        """The runs at one radius in order, each with the rank of its target."""
        for _ in range(self.restarts):
            for loss in self.losses:
                for rank in range(1, (self.targets if loss == "dlr-t" else 1) + 1):
                    yield Climb(epsilon, self.steps, self.norm, loss), rank


def attack_curve(
    network: Network,
    images: torch.Tensor,
    labels: torch.Tensor,
    ids: NDArray[np.int64],
    schedule: Schedule,
    outlook: Outlook,
    *,
    seed: int,
    keep: bool = False,
) -> Survival:
    """Run a schedule that fits the network; the pass behind the `outlook` is counted as a query of every sample."""
    attacks = [
        [
            Run(network, images, labels, ids, outlook, how, draw, seed, rank)
            for draw, (how, rank) in enumerate(schedule.runs(epsilon))
        ]
        for epsilon in schedule.epsilons
    ]
    survival = survive(network, images, labels, attacks, keep=keep)
    survival.tally.queries += 1
    return survival
