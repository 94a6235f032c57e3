"""The probe of an attack: what a sound attack would not be weaker than, on a few correctly classified samples.

Departures from the attacks of the same names elsewhere: few steps and few queries, for a probe pays with a tenth of
what the attack cost. Everything of a sample is a function of the network, the sample, its id and the seed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from services.measures.attacks.autopgd import Aim
from services.measures.attacks.balls import Ball, L2Ball, LinfBall
from services.measures.attacks.margins import Network, ascent, gradient, margins, passes
from services.measures.attacks.square_search import SquareSearch
from services.measures.attacks.tally import Tally
from services.measures.measure import Columns
from services.measures.probes.budget import ProbePlan
from services.measures.probes.gradients import gradient_signs
from services.measures.probes.probed import FIRST_DRAW, Probed
from services.numerics.evidence.adequacy import Sign
from services.records import Ascent


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
    count, points = len(probed.images), probed.images.clone()
    signs = {}
    if gradients and probed.guard.losses:
        signs = gradient_signs(probed, shared=bool(plan.parts), parts=parts)
    losses = others_of(probed)
    names = [*planned(plan), *(f"{Sign.OTHER_LOSS}:{loss}" for loss, _ in tried(losses, plan))]
    signs |= {name: torch.full((count,), -1, dtype=torch.int8, device=stands.device) for name in names}
    if plan.given and losses and len(broken := (~stands).nonzero().squeeze(1)):
        points[broken] = climb(probed.select(broken), losses[0], plan.given)[1]
    if len(standing := stands.nonzero().squeeze(1)):
        part = probed.select(standing)
        seen = weaker(part, plan)
        for loss, steps in tried(losses, plan):
            seen[f"{Sign.OTHER_LOSS}:{loss}"], led = climb(part, loss, steps)
            points[standing] = led if loss == losses[0] else points[standing]
        for name, values in seen.items():
            signs[name][standing] = values.to(torch.int8)
    columns = {name: values.cpu().numpy().astype(np.int8) for name, values in signs.items()}
    return columns, points.flatten(1).cpu().numpy()


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


def weaker(probed: Probed, plan: ProbePlan) -> dict[str, torch.Tensor]:
    """Whether noise, a few large steps and scores alone break each sample, and an unbounded ball does not, (m,)."""
    found: dict[str, torch.Tensor] = {}
    if plan.draws:
        found[Sign.NOISE] = noise(probed, plan.draws)
    if plan.large:
        found[Sign.SHORTER] = climb(probed, probed.guard.losses[0], plan.large)[0]
    if plan.unbounded:
        found[Sign.UNBOUNDED] = unbounded(probed, plan.unbounded)
    if plan.queries:
        found[Sign.BLACK_BOX] = square(probed, plan.queries)
    return found


def others_of(probed: Probed) -> tuple[Ascent, ...]:
    """The losses that the attack does not climb and the number of classes defines."""
    with torch.no_grad():
        classes = passes(probed.network, probed.images[:1]).shape[1]
    return tuple(loss for loss in probed.guard.others if loss != "dlr" or classes >= 3)


def noise(probed: Probed, draws: int) -> torch.Tensor:
    """Whether any of some random points breaks each sample, (m,): in the ball and, every other one, at its corners."""
    fell = torch.zeros(len(probed.images), dtype=torch.bool, device=probed.images.device)
    ball = probed.ball
    for draw in range(FIRST_DRAW + 1, FIRST_DRAW + 1 + draws):
        points = ball.start(probed.ids, seed=probed.seed, draw=draw)
        if draw % 2:
            points = ball.step(probed.images, points - probed.images, probed.guard.epsilon)
        with torch.no_grad():
            fell |= ~(margins(passes(probed.network, points), probed.labels) > 0)
    return fell


def climb(
    probed: Probed, loss: Ascent, steps: int, *, ball: Ball | None = None, epsilon: float = 0.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """A few steps up a loss from the image itself: which samples fall (m,), and where they were led."""
    within, radius = ball or probed.ball, epsilon or probed.guard.epsilon
    points, labels = probed.images.clone(), probed.labels
    fell = torch.zeros(len(points), dtype=torch.bool, device=points.device)
    alive = torch.arange(len(points), device=points.device)
    for number in range(steps + 1):
        last = number == steps
        leaf = points[alive].requires_grad_(not last)
        with torch.set_grad_enabled(not last):
            logits = passes(probed.network, leaf)
        down = ~(margins(logits.detach(), labels[alive]) > 0)
        fell[alive[down]] = True
        if last:
            break
        slope = gradient(logits, leaf, _weights(logits.detach(), labels[alive], loss))
        points[alive] = within.select(alive).step(leaf.detach(), slope, radius * min(1.0, 2.5 / steps))
        alive = alive[~down]
        if not len(alive):
            break
    return fell, points


def _weights(logits: torch.Tensor, labels: torch.Tensor, loss: Ascent) -> torch.Tensor:
    """The gradient of the loss by the logits, (m, K)."""
    if loss != "dlr":
        return ascent(logits, labels, loss)
    ones = torch.ones(len(labels), device=labels.device)
    weights: torch.Tensor = torch.nan_to_num(Aim("dlr", labels, labels, ones).rise(logits)[1])
    return weights


def unbounded(probed: Probed, steps: int) -> torch.Tensor:
    """Survival of the attack's loss in a ball that holds the grey image, (m,); -1 for samples labelled as grey is."""
    grey = torch.full_like(probed.images[:1], 0.5)
    with torch.no_grad():
        label = passes(probed.network, grey).argmax(dim=1)
    linf = probed.guard.norm == "Linf"
    radius = 0.5 if linf else math.sqrt(probed.images[0].numel()) / 2
    ball: Ball = LinfBall.around(probed.images, radius) if linf else L2Ball.around(probed.images, radius)
    fell, _ = climb(probed, probed.guard.losses[0], steps, ball=ball, epsilon=radius)
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
