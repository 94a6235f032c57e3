"""What speaks against a gate on an attack: signs, and what a probe broke although it is no sign yet."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from jobs.audit.judging.evidence import objections, weighed
from jobs.audit.judging.gates import judge
from jobs.fleetfile.gates import GateConfig
from services.measures.great import Great
from services.measures.pgd import Pgd
from services.metrics import tenth_of
from services.numerics.evidence.adequacy import AttackObservations, Sign, SignCount
from services.records import Estimate, GateResult, GroupScore, Outcome, RefutedResult

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


def test_the_limit_that_does_not_clear_the_threshold_is_the_one_without_what_fell() -> None:
    """The lower limit that clears it stood there twice: "0.2255 clears 0.2, but ... 0.2255 does not clear it"."""
    judged = outcome(3, Estimate(0.35, 0.2255, 0.57), at_least=0.2)
    reason = judged.reason
    assert reason == f"lower bound 0.2255 clears 0.2, but {judged.objected}"
    assert reason.startswith("lower bound 0.2255 clears 0.2, but without the 3.1%")
    assert reason.count("0.2255") == 1 and "it is 0.1943, which does not" in reason


def test_a_fail_stands_on_what_the_attack_itself_broke() -> None:
    assert outcome(4, Estimate(0.05, 0.03, 0.08), at_least=0.1).outcome is Outcome.FAIL


def test_a_model_is_not_refused_for_robustness_that_a_probe_refutes() -> None:
    """`at_most` on survival fails only where the attack and its probe left enough."""
    assert outcome(0, Estimate(0.2, 0.11, 0.3), at_most=0.1).outcome is Outcome.FAIL
    assert outcome(4, Estimate(0.2, 0.11, 0.3), at_most=0.1).outcome is Outcome.UNDECIDED


def test_the_objection_can_be_overruled_by_name() -> None:
    judged = outcome(4, Estimate(0.2, 0.101, 0.3), at_least=0.1, overrule=("inadequate-attack",))
    assert (judged.outcome, judged.overruled) == (Outcome.PASS, ("inadequate-attack",))


ZEROS = AttackObservations("pgd20", (SERIES.key,), True, (SignCount(Sign.ZERO_GRADIENT, 90, 96),))


@pytest.mark.parametrize(
    ("gate", "value", "barred"),
    [
        ({"at_least": 0.5}, 0.52, True),
        ({"at_least": 0.5}, 0.48, False),  # more samples may fail it all the same
        ({"at_most": 0.5}, 0.52, True),
        ({"at_most": 0.5}, 0.48, False),
        ({"not_worse_than": "last", "margin": 0.02}, -0.01, True),
        ({"not_worse_than": "last", "margin": 0.02}, -0.03, False),
    ],
)
def test_more_samples_are_not_asked_for_where_they_would_decide_nothing(
    gate: dict[str, Any], value: float, barred: bool
) -> None:
    """Samples left a gate on an inadequate attack open, and the advice was to collect 100 times as many."""
    config = GateConfig(measure=SERIES.key, metric="aggregate", **gate)
    judged = judge(config, Estimate(value, value - 0.1, value + 0.1))
    kept = weighed(judged, config, objections(config, SERIES, [ZEROS], None, value - 0.1))
    assert kept.outcome is Outcome.UNDECIDED and kept.reason.startswith(judged.reason)
    assert ("would decide nothing: pgd20: for 90 of 96" in kept.reason) is bool(kept.objected) is barred
    over = config.model_copy(update={"overrule": ("inadequate-attack",)})
    assert weighed(judged, over, objections(over, SERIES, [ZEROS], None, value - 0.1)) == judged


def test_a_refuted_claim_passes_no_comparison_either() -> None:
    series, estimate = Great().series()[0], Estimate(0.0, -0.01, 0.01)
    config = GateConfig(measure=series.key, metric="aggregate", not_worse_than="last", margin=0.02)
    for refuted, expected in ((150, Outcome.UNDECIDED), (0, Outcome.PASS)):
        share = Estimate(refuted / 300, refuted / 300 * 0.9, 1.0)
        tested = RefutedResult(series.key, "class", share, (), refuted, 300, 0, 0.05)
        judged = weighed(judge(config, estimate), config, objections(config, series, (), tested, estimate.low))
        assert judged.outcome is expected and ("attacks refuted great (150 of 300" in judged.reason) is (refuted > 0)


def test_all_that_speaks_against_an_undecided_gate_is_said() -> None:
    config = GateConfig(measure=SERIES.key, metric="wcr", at_least=0.2)
    judged = judge(config, Estimate(0.5, 0.4, 0.6), against=["there are no samples of class 3"])
    kept = weighed(judged, config, objections(config, SERIES, [ZEROS], None, 0.4))
    assert kept.reason.endswith(kept.objected) and kept.reason.startswith(
        "lower bound 0.4 clears 0.2, but there are no"
    )
    assert kept.objected.startswith("there are no samples of class 3; pgd20: for 90 of 96")


def test_of_many_signs_the_first_of_each_attack_is_named_and_the_others_counted() -> None:
    signs = [SignCount(sign, 90, 96, probe=True) for sign in (Sign.ZERO_GRADIENT, Sign.UNPREDICTIVE, Sign.UNBOUNDED)]
    config = GateConfig(measure=SERIES.key, metric="aggregate", at_least=0.1)
    seen = [AttackObservations("pgd20", (SERIES.key,), True, tuple(signs))]
    judged = judge(config, Estimate(0.9, 0.8, 1.0))
    reason = weighed(judged, config, objections(config, SERIES, seen, None, 0.8)).reason
    assert reason.startswith("lower bound 0.8 clears 0.1, but pgd20: for 90 of 96 correctly classified samples")
    assert (
        reason.count("90 of 96") == 1
        and "exactly zero, so a gradient attack could not move (and 2 more signs); " in reason
    )


# --- single classes -----------------------------------------------------------------------------------------------


def of_classes(metric: str, lows: list[float], fallen: dict[int, tuple[int, int]], least: float) -> Outcome:
    """A gate on classes with these lower limits; of some a probe broke so many of so many samples."""
    counts = [
        SignCount(Sign.NOISE, fell, looked, None, probe=True, part=f"class {label}", label=label)
        for label, (fell, looked) in fallen.items()
    ]
    seen = [AttackObservations("pgd20", (SERIES.key,), True, (SignCount(Sign.ZERO_GRADIENT, 0, 96), *counts))]
    groups = [GroupScore(k, f"c{k}", 50, 50, Estimate(low + 0.1, low, low + 0.2)) for k, low in enumerate(lows)]
    config = GateConfig(measure=SERIES.key, metric=metric, at_least=least)
    low = min(lows) if metric == "wcr" else float(np.mean(sorted(lows)[: tenth_of(len(lows))]))
    judged = judge(config, Estimate(low + 0.1, low, low + 0.2))
    return weighed(judged, config, objections(config, SERIES, seen, None, low, groups)).outcome


@pytest.mark.parametrize(
    ("fallen", "expected"),
    [
        ({}, Outcome.PASS),
        ({0: (2, 10)}, Outcome.UNDECIDED),  # .5 - .2 is below .45
        ({1: (2, 10)}, Outcome.PASS),  # .7 - .2 is not
        ({1: (4, 10)}, Outcome.UNDECIDED),  # a class that looked robust is now the weakest
        ({1: (1, 1)}, Outcome.PASS),  # one of one is charged as one of eight
    ],
)
def test_a_worst_class_clears_its_gate_without_what_fell_in_any_class(
    fallen: dict[int, tuple[int, int]], expected: Outcome
) -> None:
    assert of_classes("wcr", [0.5, 0.7, 0.9], fallen, 0.45) is expected


def test_the_weakest_tenth_is_charged_by_its_own_classes() -> None:
    lows = [0.5, 0.6, *[0.9] * 18]  # the tenth: two classes, mean .55
    assert of_classes("p10", lows, {0: (1, 10)}, 0.5) is Outcome.PASS
    assert of_classes("p10", lows, {0: (2, 10)}, 0.5) is Outcome.UNDECIDED
    assert of_classes("p10", lows, {5: (5, 10)}, 0.5) is Outcome.UNDECIDED, "class 5 is of the tenth then"
    assert of_classes("aggregate", lows, {0: (9, 10)}, 0.3) is Outcome.PASS
