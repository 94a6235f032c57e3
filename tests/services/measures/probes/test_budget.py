"""What a probe buys: never more than it has, and what tells most first."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.measures.apgd import Apgd
from services.measures.autoattack import AutoAttackSurvival
from services.measures.cw import Cw
from services.measures.minimal import Minimal
from services.measures.pgd import Pgd
from services.measures.probes.budget import (
    CLASS_SHARE,
    GRADIENT_COST,
    PARTS,
    UNBOUNDED,
    Guard,
    ProbePlan,
    from_json,
    looks_a_class,
    plan_probe,
    to_json,
)
from services.measures.square import Square

PGD, BLACK_BOX = Guard("Linf", 0.1, ("ce",)), Guard("Linf", 0.1, ())


def cost(guard: Guard, plan: ProbePlan, standing: float) -> float:
    """Units a sample on average, counted from the definition: a step is a pass and a gradient, a run ends in a pass."""
    runs = (plan.steps, plan.unbounded, plan.large, plan.more)
    climbs = standing * sum(3 * steps + 1 for steps in runs if steps)
    given_away = (1 - standing) * (3 * plan.given + 1 if plan.given else 0)
    return (5 + plan.parts if guard.losses else 0) + climbs + given_away + standing * (plan.draws + plan.queries)


@given(st.floats(0, 2000), st.floats(0, 1), st.sampled_from([PGD, BLACK_BOX, Guard("L2", 1.0, ("ce", "dlr"))]))
def test_a_plan_costs_no_more_than_it_may(units: float, standing: float, guard: Guard) -> None:
    plan = plan_probe(guard, units, standing)
    assert cost(guard, plan, standing) <= max(units, GRADIENT_COST) + 1e-6
    assert plan.unbounded in (0, UNBOUNDED)


def test_riches_buy_everything_and_poverty_the_gradient() -> None:
    assert plan_probe(PGD, 1000, 0.5) == ProbePlan(10, PARTS, 4, 5, 3, 3, 10, 300)
    assert plan_probe(BLACK_BOX, 1000, 0.5) == ProbePlan(draws=5, queries=300)
    assert plan_probe(PGD, 4, 0.5) == plan_probe(PGD, 5, 0.5) == ProbePlan()


@pytest.mark.parametrize(
    ("measure", "others"),
    [
        (Pgd(), ("margin", "dlr")),
        (Cw(), ("dlr", "ce")),
        (Apgd(), ("margin",)),
        (Apgd(losses=("ce",)), ("margin", "dlr")),
        (AutoAttackSurvival(), ("margin",)),
        (AutoAttackSurvival(attacks=("square",)), ()),
        (Minimal(), ("dlr", "ce")),
        (Square(), ()),
    ],
)
def test_an_attack_is_held_against_losses_that_it_does_not_climb(measure: Pgd, others: tuple[str, ...]) -> None:
    assert Guard("Linf", 0.1, measure.ascents).others == others


def test_a_payload_is_read_back() -> None:
    plan = ProbePlan(1, 4, 2)
    assert from_json(json.loads(to_json(PGD, plan, rows=[1]))) == (PGD, plan)


@pytest.mark.parametrize(
    ("units", "classes", "probed", "each"),
    [
        (1e9, 10, 96, 0),  # nine of each are probed anyway
        (1e9, 100, 96, 6),
        (1e9, 1000, 96, 6),
        (1e9, 1000, 40, 6),
        (50_000, 1000, 96, 3),  # a share of the units pays for 3,000 gradients
        (40_000, 1000, 96, 0),  # two of each would make no suspicion
        (0, 100, 96, 0),
    ],
)
def test_gradients_of_classes_are_bought_from_a_share_of_the_probe(
    units: float, classes: int, probed: int, each: int
) -> None:
    assert looks_a_class(units, classes, probed) == each
    assert GRADIENT_COST * max(0, each * classes - probed) <= CLASS_SHARE * units
