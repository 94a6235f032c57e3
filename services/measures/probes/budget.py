"""What a probe knows of the attack it guards, and what it may spend; no torch.

A probe tries cheap attacks on a few samples, to see whether the guarded attack is weaker than it should be. It costs at
most a tenth of that attack: a forward pass of a sample is 1 unit, a backward pass 2.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from services.records import Ascent

SHARE = 0.065
"""Of the attack's cost. Small batches and passes without a gradient cost more than their units: a tenth in all."""
SAMPLES = 96
"""Correctly classified samples of a probe, where there are so many."""
STEP_COST, GRADIENT_COST, QUERY_COST = 3.0, 5.0, 1.5
"""Units of one gradient step; of what always runs, one gradient and a look to either side; of Square's query."""
MOST_DRAWS, MOST_STEPS, MOST_LARGE, MOST_QUERIES = 5, 10, 3, 300
LEAST_QUERIES = 20
"""Fewer say nothing."""
PARTS = 1
"""Forward passes a sample of looks at parts of the input: two of every other sample."""
A_CLASS, AGAIN = 6, 48
"""Samples of each class whose gradient is looked at; of a class or part that is suspect then."""
CLASS_SHARE = 0.3
"""Of what a probe may spend, for looks at classes of which it has fewer samples."""
LEAST_CLASS = 3
"""Fewer samples of a class make no suspicion."""
UNBOUNDED = 4
"""With fewer steps, sound attacks leave samples in a ball that holds the grey image."""


@dataclass(frozen=True, slots=True)
class Guard:
    """The attack under scrutiny.

    Attributes:
        norm, epsilon: its ball; of a search for the nearest adversarial a ball within which it found some of them.
        losses: those that it climbs; none for a black-box attack.
    """

    norm: Literal["Linf", "L2"]
    epsilon: float
    losses: tuple[Ascent, ...]

    @property
    def others(self) -> tuple[Ascent, ...]:
        """Losses that it does not climb; none for a black-box attack."""
        names: tuple[Ascent, ...] = ("margin", "dlr", "ce")
        return tuple(name for name in names if name not in self.losses)[:2] if self.losses else ()


@dataclass(frozen=True, slots=True)
class ProbePlan:
    """How much of each cheap attack a sample gets, dearest first: what comes first tells most.

    Attributes:
        steps: under another loss, of samples that the attack left.
        parts: forward passes for the gradient in a channel or quarter of the input.
        unbounded: in a ball that holds the grey image.
        draws: of noise in the ball.
        given: steps under the other loss, of samples that the attack broke: adversarials for other models.
        large: steps of the attack itself with steps as large as the ball.
        more: steps under a second other loss.
        queries: of the Square attack.
    """

    steps: int = 0
    parts: int = 0
    unbounded: int = 0
    draws: int = 0
    given: int = 0
    large: int = 0
    more: int = 0
    queries: int = 0


def plan_probe(guard: Guard, units: float, standing: float) -> ProbePlan:
    """Spend `units` a sample where the attack left a share `standing` of them, in [0, 1].

    One gradient of every sample comes first; less than that costs buys it alone.
    """
    purse = Purse(units - (GRADIENT_COST if guard.losses else 0.0))
    if not guard.losses:
        return ProbePlan(draws=purse.buy(standing, MOST_DRAWS), queries=purse.queries(standing))
    return ProbePlan(
        steps=purse.climb(standing, MOST_STEPS, 0.6),
        parts=purse.buy(1.0, PARTS, least=PARTS),
        unbounded=purse.climb(standing, UNBOUNDED, least=UNBOUNDED),
        draws=purse.buy(standing, MOST_DRAWS),
        given=purse.climb(1 - standing, MOST_LARGE),
        large=purse.climb(standing, MOST_LARGE),
        more=purse.climb(standing, MOST_STEPS) if len(guard.others) > 1 else 0,
        queries=purse.queries(standing),
    )


def looks_a_class(units: float, classes: int, probed: int) -> int:
    """How many samples of each class have their gradient looked at, of a probe that has `probed` and `units` in all.

    None beyond those of the probe where it has enough of each, or where too few could be paid for.
    """
    missing = A_CLASS * classes - probed
    if missing <= 0:
        return 0
    paid = CLASS_SHARE * units / GRADIENT_COST
    each = A_CLASS if paid >= missing else int((paid + probed) / classes)
    return each if each >= LEAST_CLASS and each * classes > probed else 0


@dataclass
class Purse:
    """Units a sample that are left to spend."""

    left: float

    def climb(self, portion: float, most: int, share: float = 1.0, *, least: int = 1) -> int:
        """Gradient steps of a portion of the samples, for at most a share of what is left; none below `least`."""
        if portion <= 0 or self.left <= 0:
            return 0
        steps = int(min(most, (share * self.left / portion - 1) / STEP_COST))
        steps = steps if steps >= least else 0
        self.left -= portion * (STEP_COST * steps + 1 if steps else 0.0)
        return steps

    def buy(self, portion: float, most: int, *, least: int = 1) -> int:
        """Forward passes of a portion of the samples; none below `least`."""
        if portion <= 0 or self.left <= 0:
            return 0
        passes = int(min(most, self.left / portion))
        passes = passes if passes >= least else 0
        self.left -= portion * passes
        return passes

    def queries(self, portion: float) -> int:
        """Queries of Square; none where they would be too few."""
        return queries if (queries := self.buy(QUERY_COST * portion, MOST_QUERIES)) >= LEAST_QUERIES else 0


def to_json(guard: Guard, plan: ProbePlan, **more: Any) -> str:
    """A task's payload."""
    return json.dumps({"guard": asdict(guard), "plan": asdict(plan), **more}, sort_keys=True)


def from_json(payload: Mapping[str, Any]) -> tuple[Guard, ProbePlan]:
    """Guard and plan of a payload."""
    guard = payload["guard"]
    return Guard(guard["norm"], guard["epsilon"], tuple(guard["losses"])), ProbePlan(**payload["plan"])
