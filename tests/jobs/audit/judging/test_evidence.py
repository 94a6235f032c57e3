"""What speaks against a gate on an attack: signs, and what a probe broke although it is no sign yet."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.audit.judging.evidence import objections, weighed
from jobs.audit.judging.gates import judge
from jobs.fleetfile.gates import GateConfig
from services.measures.pgd import Pgd
from services.numerics.evidence.adequacy import AttackObservations, Sign, SignCount
from services.records import Estimate, GateResult, Outcome

SERIES = Pgd(steps=20).series()[0]


def outcome(fell: int, estimate: Estimate, *, favour: int | None = None, **gate: Any) -> GateResult:
    """A gate on PGD-20 of whose survivors another loss broke some, of 96 samples of a probe."""
    counts = (SignCount(Sign.OTHER_LOSS, fell, 96, favour, probe=True), SignCount(Sign.ZERO_GRADIENT, 0, 96))
    config = GateConfig(measure=SERIES.key, metric="aggregate", **gate)
    seen = [AttackObservations("pgd20", (SERIES.key,), True, counts)]
    return weighed(judge(config, estimate), config, objections(config, SERIES, seen, None, estimate.low))


@pytest.mark.parametrize(
    ("fell", "low", "expected"),
    [(0, 0.101, Outcome.PASS), (4, 0.101, Outcome.UNDECIDED), (4, 0.15, Outcome.PASS), (4, 0.1, Outcome.UNDECIDED)],
)
def test_what_a_probe_broke_is_broken(fell: int, low: float, expected: Outcome) -> None:
    """Four of 96 are no sign (p = .06 before Holm), but a network at the gate's edge has lost them all the same."""
    assert outcome(fell, Estimate(0.2, low, 0.3), at_least=0.1).outcome is expected


def test_a_fail_stands_on_what_the_attack_itself_broke() -> None:
    assert outcome(4, Estimate(0.05, 0.03, 0.08), at_least=0.1).outcome is Outcome.FAIL


def test_a_model_is_not_refused_for_robustness_that_a_probe_refutes() -> None:
    """`at_most` on survival fails only where the attack and its probe left enough."""
    assert outcome(0, Estimate(0.2, 0.11, 0.3), at_most=0.1).outcome is Outcome.FAIL
    assert outcome(4, Estimate(0.2, 0.11, 0.3), at_most=0.1).outcome is Outcome.UNDECIDED


def test_the_objection_can_be_overruled_by_name() -> None:
    judged = outcome(4, Estimate(0.2, 0.101, 0.3), at_least=0.1, overrule=("inadequate-attack",))
    assert (judged.outcome, judged.overruled) == (Outcome.PASS, ("inadequate-attack",))
