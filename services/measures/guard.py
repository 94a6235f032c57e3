"""What a probe knows of the attack it guards, and what it may spend; no torch.

A probe tries cheap attacks on a few samples, to see whether the guarded attack is weaker than it should be. It costs at
most `SHARE` of that attack: a forward pass of a sample is 1 unit, a backward pass 2.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

LossName = Literal["ce", "margin", "dlr"]

SHARE = 0.1
SAMPLES = 96
"""Correctly classified samples of a probe, where there are so many."""
STEP_COST, GRADIENT_COST = 3.0, 5.0
"""Units of one gradient step, and of what always runs: one gradient, and a look to either side of it."""
MOST_DRAWS, MOST_STEPS, MOST_LARGE, MOST_UNBOUNDED, MOST_QUERIES = 8, 10, 3, 5, 300
LEAST_QUERIES = 20
"""Fewer say nothing."""


@dataclass(frozen=True, slots=True)
class Guard:
    """The attack under scrutiny.

    Attributes:
        norm, epsilon: its ball; of a search for the nearest adversarial a ball within which it found some of them.
        losses: those that it climbs; none for a black-box attack.
    """

    norm: Literal["Linf", "L2"]
    epsilon: float
    losses: tuple[LossName, ...]

    @property
    def others(self) -> tuple[LossName, ...]:
        """Losses that it does not climb; none for a black-box attack."""
        names: tuple[LossName, ...] = ("margin", "dlr", "ce")
        return tuple(name for name in names if name not in self.losses)[:2] if self.losses else ()


@dataclass(frozen=True, slots=True)
class ProbePlan:
    """How much of each cheap attack a sample gets.

    Attributes:
        draws: of noise in the ball.
        steps, more: under the first and the second of the other losses.
        large: steps of the attack itself with steps as large as the ball.
        unbounded: steps in a ball that holds the grey image.
        queries: of the Square attack.
    """

    draws: int = 0
    steps: int = 0
    more: int = 0
    large: int = 0
    unbounded: int = 0
    queries: int = 0

    def cost(self, guard: Guard, standing: float) -> float:
        """Units a sample costs on average, where the attack left so large a share of them.

        Gradients and the first other loss are looked at on all, and those that the attack broke fall half-way; the rest
        is tried on those that stand.
        """
        every = bool(guard.losses) * GRADIENT_COST + (1 + standing) / 2 * _climb(self.steps)
        climbs = sum(map(_climb, (self.more, self.large, self.unbounded)))
        return every + standing * (self.draws + climbs + self.queries)


def plan_probe(guard: Guard, units: float, standing: float) -> ProbePlan:
    """Spend `units` a sample where the attack left a share `standing` of them, in (0, 1].

    Less than the gradients cost buys these alone.
    """
    left = units - (GRADIENT_COST if guard.losses else 0.0)
    if left < 1:
        return ProbePlan()
    others, each = len(guard.others), left / max(standing, 1 / SAMPLES)
    plan = ProbePlan(
        draws=min(MOST_DRAWS, max(1, int(0.1 * each))),
        steps=_steps(0.45 * left * 2 / (1 + standing), MOST_STEPS) if others else 0,
        more=_steps(0.15 * each, MOST_STEPS) if others > 1 else 0,
        large=_steps(0.1 * each, MOST_LARGE) if guard.losses else 0,
        unbounded=_steps(0.1 * each, MOST_UNBOUNDED) if guard.losses else 0,
    )
    queries = int((units - plan.cost(guard, standing)) / left * each)
    return replace(plan, queries=min(MOST_QUERIES, queries) if queries >= LEAST_QUERIES else 0)


def _climb(steps: int) -> float:
    return STEP_COST * steps + 1 if steps else 0.0


def _steps(units: float, most: int) -> int:
    return max(0, min(most, int((units - 1) / STEP_COST)))


def to_json(guard: Guard, plan: ProbePlan, **more: Any) -> str:
    """A task's payload."""
    return json.dumps({"guard": asdict(guard), "plan": asdict(plan), **more}, sort_keys=True)


def from_json(payload: Mapping[str, Any]) -> tuple[Guard, ProbePlan]:
    """Guard and plan of a payload."""
    guard = payload["guard"]
    return Guard(guard["norm"], guard["epsilon"], tuple(guard["losses"])), ProbePlan(**payload["plan"])
