"""What a notification says, and how large it gets at most."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.fleetfile.followups import When
from jobs.notify.body import MOST_MODELS, applies, body_of
from services.records import AuditResult, Outcome
from tracking.bundle.comparison import Comparison


@pytest.fixture
def result(board_audit: Callable[..., AuditResult]) -> AuditResult:
    return board_audit("one", {"first": ({}, {"clean": 0.9}), "second": ({}, {"clean": 0.8})})


@pytest.mark.parametrize("outcome", list(Outcome))
def test_conditions_are_outcomes_and_always(result: AuditResult, outcome: Outcome) -> None:
    words: tuple[When, ...] = ("pass", "fail", "undecided", "error", "always", "worse")
    assert applies(words, replace(result, outcome=outcome), None) == [outcome.value, "always"]


def test_worse_holds_when_the_comparison_flagged_something(result: AuditResult) -> None:
    flagged = Comparison("robust", "two", "one", "", "", alpha=0.05, comparisons=9, worse=1, better=0, not_comparable=0)
    assert applies(("worse",), result, flagged) == ["worse"]
    assert applies(("worse",), result, replace(flagged, worse=0)) == [] == applies(("worse",), result, None)


def test_a_fleet_of_any_size_makes_a_body_that_a_receiver_takes(result: AuditResult, tmp_path: Path) -> None:
    """A thousand models with reasons of a page each."""
    model = replace(result.models[0], outcome=Outcome.FAIL, reasons=("x" * 5000,) * 50)
    many = replace(result, models=(*[model] * 1000, replace(model, outcome=Outcome.ERROR)), outcome=Outcome.ERROR)
    body = body_of(many, None, str(tmp_path), ["error"])
    assert len(json.dumps(body)) < 1_000_000 and len(body["models"]) == MOST_MODELS
    assert body["counts"] == {"pass": 0, "fail": 1000, "undecided": 0, "error": 1}
    assert body["models"][0]["outcome"] == "error"  # the worst first
    assert (body["outcome"], body["exit_code"], body["comparison"]) == ("error", 2, None)
    assert body["links"] == {
        "bundle": str(tmp_path),
        "report": f"{tmp_path}/report.html",
        "run": "",
        "run_id": "",
    }
