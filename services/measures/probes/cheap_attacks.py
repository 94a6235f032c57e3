"""The probe of an attack: what a sound attack would not be weaker than, on a few correctly classified samples.

Departures from the attacks of the same names elsewhere: few steps and few queries, for a probe pays with a tenth of
what the attack cost. Everything of a sample is a function of the network, the sample, its id and the seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from services.measures.attacks.balls import Ball, L2Ball, LinfBall
from services.measures.attacks.margins import Network, margins, passes
from services.measures.attacks.square_search import SquareSearch
from services.measures.attacks.tally import Tally
from services.measures.measure import Columns
from services.measures.probes.budget import ProbePlan
from services.measures.probes.gradients import gradient_signs
from services.measures.probes.probed import FIRST_DRAW, Probed
from services.measures.probes.slopes import Slopes, slope_at
from services.numerics.evidence.adequacy import Sign
from services.records import Ascent

CHUNK = 16
"""Samples that are looked at together, where looking may stop."""


def probe(
    probed: Probed,
    plan: ProbePlan,
    stands: torch.Tensor,
    *,
    gradients: bool = True,
    parts: Sequence[str] = (),
    points: bool = True,
) -> Columns:
    """What is seen on samples of which the guarded attack left those that `stands` (m,) marks.

    Columns by sign, 1 where it speaks against the attack, 0 where not, -1 where nobody looked: gradients of all
    samples, the rest on those that stand. `points` (m, C H W) are where the first other loss led.

    Args:
        parts: of the input, by name, whose gradients are looked at on all samples; where the plan has parts, each
            sample has one of all parts.
    """
    columns, led = _seen(probed, plan, stands, gradients=gradients, parts=parts)
    return {**columns, "points": led} if points else columns


def _seen(
    probed: Probed, plan: ProbePlan, stands: torch.Tensor, *, gradients: bool, parts: Sequence[str]
) -> tuple[Columns, NDArray[np.float32]]:
    count, points, slopes = len(probed.images), probed.images.clone(), Slopes(probed)
    signs = {}
    if gradients and probed.guard.losses:
        signs = gradient_signs(probed, slopes, shared=bool(plan.parts), parts=parts)
    losses = others_of(probed, slopes)
    names = [*planned(plan), *(_of_loss(loss) for loss, _ in tried(losses, plan))]
    signs |= {name: torch.full((count,), -1, dtype=torch.int8, device=stands.device) for name in names}
    if plan.given and losses and len(broken := (~stands).nonzero().squeeze(1)):
        part = probed.select(broken)
        points[broken] = climb(part, losses[0], plan.given, slopes=slopes.select(part, broken))[1]
    if len(standing := stands.nonzero().squeeze(1)):
        part = probed.select(standing)
        begun = slopes.select(part, standing)
        seen = {name: attempt() for name, attempt in attempts(part, replace(plan, steps=0, more=0), begun).items()}
        if plan.unbounded:
            seen[Sign.UNBOUNDED] = unbounded(part, plan.unbounded, begun)
        for loss, steps in tried(losses, plan):
            seen[_of_loss(loss)], led = climb(part, loss, steps, slopes=begun)
            points[standing] = led if loss == losses[0] else points[standing]
        for name, values in seen.items():
            signs[name][standing] = values.to(torch.int8)
    columns = {name: values.cpu().numpy().astype(np.int8) for name, values in signs.items()}
    return columns, points.flatten(1).cpu().numpy()


def other_side(probed: Probed, plan: ProbePlan, most: Mapping[str, int]) -> tuple[Columns, dict[str, int]]:
    """What cheap attacks do to samples that the guarded attack broke: 1 where one breaks them, 0 where it leaves them.

    `most` is by column how many may be left before its sign is none: the samples after one more are -1, not looked at.
    With the columns comes how many more may be left, below 0 where a sign is none.
    """
    count, more = len(probed.images), dict(most)
    columns = {name: np.full(count, -1, dtype=np.int8) for name in most}
    for rows in torch.split(torch.arange(count, device=probed.images.device), CHUNK):
        part, place = probed.select(rows), rows.cpu().numpy()
        tries = attempts(part, plan, Slopes(part))
        for name in (name for name, left in more.items() if left >= 0):
            broken = tries[name]().cpu().numpy()
            left_before = np.cumsum(~broken) - ~broken
            columns[name][place] = np.where(left_before <= more[name], broken, -1)
            more[name] -= int((~broken).sum())
    return columns, more


def _of_loss(loss: Ascent) -> str:
    return f"{Sign.OTHER_LOSS}:{loss}"


def tried(losses: tuple[Ascent, ...], plan: ProbePlan) -> list[tuple[Ascent, int]]:
    """The other losses that are climbed, and in how many steps."""
    return [(loss, steps) for loss, steps in zip(losses, (plan.steps, plan.more), strict=False) if steps]


def planned(plan: ProbePlan) -> list[str]:
    """The columns of a plan beside those of losses, whether or not a batch has samples that stand."""
    amounts = {
        Sign.NOISE: plan.draws,
        Sign.SHORTER: plan.large,
        Sign.UNBOUNDED: plan.unbounded,
        Sign.BLACK_BOX: plan.queries,
    }
    return [sign.value for sign, amount in amounts.items() if amount]


def attempts(probed: Probed, plan: ProbePlan, slopes: Slopes) -> dict[str, Callable[[], torch.Tensor]]:
    """By column what tells whether noise, few large steps, other losses and scores alone break each sample, (m,)."""
    by_column: dict[str, Callable[[], torch.Tensor]] = {}
    if plan.draws:
        by_column[Sign.NOISE] = lambda: noise(probed, plan.draws)
    if plan.large:
        by_column[Sign.SHORTER] = lambda: climb(probed, probed.guard.losses[0], plan.large, slopes=slopes)[0]
    if plan.queries:
        by_column[Sign.BLACK_BOX] = lambda: square(probed, plan.queries)
    for loss, steps in tried(others_of(probed, slopes), plan) if plan.steps or plan.more else ():
        by_column[_of_loss(loss)] = partial(_falls, probed, loss, steps, slopes)
    return by_column


def others_of(probed: Probed, slopes: Slopes) -> tuple[Ascent, ...]:
    """The losses that the attack does not climb and the number of classes defines."""
    others = probed.guard.others
    return others if "dlr" not in others or slopes.classes >= 3 else tuple(loss for loss in others if loss != "dlr")


def _falls(probed: Probed, loss: Ascent, steps: int, slopes: Slopes) -> torch.Tensor:
    return climb(probed, loss, steps, slopes=slopes)[0]


def noise(probed: Probed, draws: int) -> torch.Tensor:
    """Whether any of some random points breaks each sample, (m,): in the ball and, every other one, at its corners."""
    fell = torch.zeros(len(probed.images), dtype=torch.bool, device=probed.images.device)
    for draw in range(FIRST_DRAW + 1, FIRST_DRAW + 1 + draws):
        rows = (~fell).nonzero().squeeze(1)
        if not len(rows):
            break
        ids, ball, images = probed.ids[rows.cpu().numpy()], probed.ball.select(rows), probed.images[rows]
        points = ball.start(ids, seed=probed.seed, draw=draw)
        if draw % 2:
            points = ball.step(images, points - images, probed.guard.epsilon)
        with torch.no_grad():
            fell[rows] = ~(margins(passes(probed.network, points), probed.labels[rows]) > 0)
    return fell


def climb(
    probed: Probed,
    loss: Ascent,
    steps: int,
    *,
    slopes: Slopes | None = None,
    ball: Ball | None = None,
    epsilon: float = 0.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """A few steps up a loss from the image itself: which samples fall (m,), and where they were led.

    The gradients there are taken from `slopes`, if given.
    """
    within, radius = ball or probed.ball, epsilon or probed.guard.epsilon
    points = probed.images.clone()
    slope, logits = (slopes or Slopes(probed)).of(loss)
    alive = torch.arange(len(points), device=points.device)
    fell = torch.zeros(len(points), dtype=torch.bool, device=points.device)
    for number in range(1, steps + 1):
        down = ~(margins(logits, probed.labels[alive]) > 0)
        fell[alive[down]] = True
        points[alive] = within.select(alive).step(points[alive], slope.clone(), radius * min(1.0, 2.5 / steps))
        slope, alive = slope[~down], alive[~down]
        if not len(alive):
            return fell, points
        part = probed.select(alive)
        if number < steps:
            slope, logits = slope_at(part, points[alive], loss)
        else:
            with torch.no_grad():
                logits = passes(part.network, points[alive])
    fell[alive] = ~(margins(logits, probed.labels[alive]) > 0)
    return fell, points


def unbounded(probed: Probed, steps: int, slopes: Slopes | None = None) -> torch.Tensor:
    """Survival of the attack's loss in a ball that holds the grey image, (m,); -1 for samples labelled as grey is."""
    grey = torch.full_like(probed.images[:1], 0.5)
    with torch.no_grad():
        label = passes(probed.network, grey).argmax(dim=1)
    linf = probed.guard.norm == "Linf"
    radius = 0.5 if linf else math.sqrt(probed.images[0].numel()) / 2
    ball: Ball = LinfBall.around(probed.images, radius) if linf else L2Ball.around(probed.images, radius)
    fell, _ = climb(probed, probed.guard.losses[0], steps, slopes=slopes, ball=ball, epsilon=radius)
    return torch.where(probed.labels == label, -1, (~fell).to(torch.int8))


def square(probed: Probed, queries: int) -> torch.Tensor:
    """Whether the Square attack breaks each sample, (m,): in L2 in the largest cube that the ball holds."""
    shrink = 1.0 if probed.guard.norm == "Linf" else math.sqrt(probed.images[0].numel())
    radius = probed.guard.epsilon / shrink
    search = SquareSearch(probed.network, probed.images, probed.labels, probed.ids, radius, queries, probed.seed)
    rows = torch.arange(len(probed.images), device=probed.images.device)
    return search(rows, Tally(len(rows), rows.device))


def transferred(network: Network, points: torch.Tensor, labels: torch.Tensor) -> NDArray[np.int8]:
    """Whether images made to break other models break this one, (m,): one forward pass."""
    with torch.no_grad():
        margin = margins(passes(network, points), labels)
    return (~(margin > 0)).cpu().numpy().astype(np.int8)
