"""Gates are judged on bounds."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.audit.judging.gates import judge, worst
from jobs.fleetfile.gates import GateConfig, gate_text
from services.records import Estimate, Outcome


def gate(**fields: object) -> GateConfig:
    return GateConfig.model_validate({"measure": "great", "metric": "wcr", **fields})


@pytest.mark.parametrize(
    ("fields", "estimate", "outcome", "reason"),
    [
        ({"at_least": 0.5}, Estimate(0.7, 0.6, 0.8), Outcome.PASS, "lower bound 0.6 clears 0.5"),
        ({"at_least": 0.5}, Estimate(0.4, 0.3, 0.45), Outcome.FAIL, "upper bound 0.45 is below 0.5"),
        ({"at_least": 0.5}, Estimate(0.52, 0.4, 0.6), Outcome.UNDECIDED, "lies within the interval"),
        ({"at_least": 0.5}, Estimate(0.7), Outcome.UNDECIDED, r"interval \[-, -\]"),
        ({"at_most": 0.5}, Estimate(0.4, 0.3, 0.45), Outcome.PASS, "upper bound 0.45 is within 0.5"),
        ({"at_most": 0.5}, Estimate(0.7, 0.6, 0.8), Outcome.FAIL, "lower bound 0.6 exceeds 0.5"),
        ({"at_most": 0.5}, Estimate(0.5, 0.4, 0.6), Outcome.UNDECIDED, "do not decide"),
        ({"at_least": 0.0}, Estimate(None, reason="no group has samples"), Outcome.ERROR, "no group has samples"),
    ],
)
def test_judged_on_the_bound(fields: dict[str, float], estimate: Estimate, outcome: Outcome, reason: str) -> None:
    result = judge(gate(**fields), estimate)
    assert result.outcome is outcome
    assert re.search(reason, result.reason)


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_at_least_and_at_most_never_both_fail(a: float, b: float, threshold: float) -> None:
    estimate = Estimate((a + b) / 2, min(a, b), max(a, b))
    both = {judge(gate(at_least=threshold), estimate).outcome, judge(gate(at_most=threshold), estimate).outcome}
    assert both != {Outcome.FAIL}


def test_the_worst_outcome_counts() -> None:
    assert worst([]) is Outcome.PASS
    assert worst([Outcome.PASS, Outcome.UNDECIDED]) is Outcome.UNDECIDED
    assert worst([Outcome.UNDECIDED, Outcome.FAIL]) is Outcome.FAIL
    assert worst([Outcome.FAIL, Outcome.ERROR]) is Outcome.ERROR


def test_exit_codes() -> None:
    assert [outcome.exit_code for outcome in (Outcome.PASS, Outcome.FAIL, Outcome.ERROR, Outcome.UNDECIDED)] == [
        0,
        1,
        2,
        3,
    ]


def test_text_of_each_kind() -> None:
    assert gate_text(gate(at_least=0.05)) == "great wcr >= 0.05"
    assert gate_text(gate(at_most=0.3, grouping="brightness")) == "great wcr by brightness <= 0.3"
    against = GateConfig(measure="clean", metric="aggregate", not_worse_than="last", margin=0.01)
    assert gate_text(against) == "clean aggregate not worse than last by more than 0.01"


@pytest.mark.parametrize(
    ("fields", "estimate", "outcome"),
    [
        ({"at_least": 0.5}, Estimate(0.7, 0.6, 0.8), Outcome.UNDECIDED),
        ({"at_least": 0.5}, Estimate(0.52, 0.4, 0.6), Outcome.UNDECIDED),
        ({"at_least": 0.5}, Estimate(0.4, 0.3, 0.45), Outcome.FAIL),
        ({"at_most": 0.5}, Estimate(0.4, 0.3, 0.45), Outcome.UNDECIDED),
        ({"at_most": 0.5}, Estimate(0.7, 0.6, 0.8), Outcome.FAIL),
        ({"at_most": 0.5}, Estimate(None, reason="no group has samples"), Outcome.ERROR),
    ],
)
def test_what_speaks_against_a_number_bars_a_pass_and_no_fail(
    fields: dict[str, float], estimate: Estimate, outcome: Outcome
) -> None:
    result = judge(gate(**fields), estimate, against=("class c has no samples",))
    assert result.outcome is outcome
    assert ("class c has no samples" in result.reason) is (outcome is not Outcome.FAIL)


def test_the_unchanged_pass_at_margin_0_and_not_when_their_scores_fell_all_the_same() -> None:
    against = GateConfig(measure="clean", metric="aggregate", not_worse_than="last")
    same = judge(against, Estimate(0.0, -0.004, 0.004), unchanged="the same weights")
    assert same.outcome is Outcome.PASS and same.reason.startswith("unchanged")
    assert judge(against, Estimate(0.0, -0.004, 0.004)).outcome is Outcome.UNDECIDED
    fallen = judge(against, Estimate(-0.2, -0.3, -0.1), unchanged="the same weights")
    assert fallen.outcome is Outcome.FAIL
