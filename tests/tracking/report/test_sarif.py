"""SARIF: valid by the essentials of the published schema, a line for each fault, the gravest first."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from services.records import AuditResult, Estimate, GateResult, Outcome
from tracking.bundle.comparison import Comparison, GroupChange, ModelChange, SeriesChange
from tracking.report import sarif as module
from tracking.report.sarif import LEVELS, RULES, SarifTarget, sarif, write_sarif, write_unfinished


def closed(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(required), "properties": properties, "additionalProperties": False}


TEXT = closed(("text",), text={"type": "string", "minLength": 1})
LEVEL = {"enum": ["none", "note", "warning", "error"]}
TIME = {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$"}
PHYSICAL = closed(
    ("artifactLocation",),
    artifactLocation=closed(uri={"type": "string", "pattern": r"^[!-~]+$"}),
    region=closed(startLine={"type": "integer", "minimum": 1}),
)
LOCATION = closed(physicalLocation=PHYSICAL, message=TEXT)
RESULT = closed(
    ("message",),
    ruleId={"type": "string"},
    ruleIndex={"type": "integer", "minimum": 0},
    level=LEVEL,
    message=TEXT,
    locations={"type": "array", "items": LOCATION},
    relatedLocations={"type": "array", "items": LOCATION},
    partialFingerprints={"type": "object", "additionalProperties": {"type": "string"}},
)
RULE = closed(("id",), id={"type": "string"}, shortDescription=TEXT)
INVOCATION = closed(
    ("executionSuccessful",),
    executionSuccessful={"type": "boolean"},
    exitCode={"type": "integer"},
    startTimeUtc=TIME,
    endTimeUtc=TIME,
    toolExecutionNotifications={"type": "array", "items": closed(("message",), level=LEVEL, message=TEXT)},
)
DRIVER = closed(("name",), name={"type": "string"}, version={"type": "string"}, rules={"type": "array", "items": RULE})
RUN = closed(
    ("tool",),
    tool=closed(("driver",), driver=DRIVER),
    automationDetails=closed(id={"type": "string"}),
    invocations={"type": "array", "items": INVOCATION},
    results={"type": "array", "items": RESULT},
    columnKind={"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
)
SCHEMA = closed(
    ("version", "runs"),
    **{"$schema": {"type": "string"}, "version": {"const": "2.1.0"}, "runs": {"type": "array", "items": RUN}},
)
"""Of SARIF 2.1.0 what is used here: required properties, and no other ones, as the published schema has them."""


def changed(audit: AuditResult) -> Comparison:
    """The first model is worse in a class and as a whole; its second series could not be compared."""
    fall = Estimate(-0.2, -0.3, -0.1)
    group = GroupChange(1, "<dog>", 50, 0.9, 0.7, fall, 0.001, "worse")
    whole = GroupChange(-1, "overall", 100, 0.9, 0.8, fall, 0.01, "worse")
    worse = SeriesChange("clean", "clean", "", ("exact McNemar",), whole, (group,), 1)
    models = (ModelChange(audit.models[0].spec.name, (worse, SeriesChange("x", "x", "gone"))),)
    return Comparison(audit.fleet, audit.audit_id, "before", "", "", 0.05, 2, 2, 0, 1, models)


@pytest.fixture
def judged(small_audit: AuditResult) -> AuditResult:
    """A model with a gate of each outcome, one that crashed, and one that passed."""
    kinds = (Outcome.PASS, Outcome.UNDECIDED, Outcome.FAIL, Outcome.ERROR)
    gates = tuple(GateResult(f"gate {kind}", kind, Estimate(0.1), f"because {kind}") for kind in kinds)
    first = replace(small_audit.models[0], gates=gates, outcome=Outcome.ERROR)
    crashed = replace(small_audit.models[1], gates=(), series=(), outcome=Outcome.ERROR, reasons=("no weights",))
    requested = [{"at_least": 0.1}, {"at_most": 0.1}, {"at_least": 0.2}, {"not_worse_than": "accepted"}]
    return replace(small_audit, models=(first, crashed), config={"gates": requested}, outcome=Outcome.ERROR)


def test_the_file_is_sarif_with_a_result_a_fault(judged: AuditResult, tmp_path: Path) -> None:
    lines = {("gates",): 20, ("gates", 1): 22, ("gates", 2): 23, ("gates", 3): 24, ("models", 0): 3, ("models", 1): 4}
    target = SarifTarget(str(tmp_path / "out.sarif"), "fleets/my fleet.yaml", lines)
    write_sarif(judged, changed(judged), target)
    body = json.loads((tmp_path / "out.sarif").read_text())
    jsonschema.validate(body, SCHEMA)
    results = body["runs"][0]["results"]
    places = [each["locations"][0]["physicalLocation"] for each in results]
    assert {place["artifactLocation"]["uri"] for place in places} == {"fleets/my%20fleet.yaml"}
    result = [
        (each["level"], each["ruleId"], place["region"]["startLine"])
        for each, place in zip(results, places, strict=True)
    ]
    assert result == [
        ("error", "gate/at_least", 23),
        ("error", "gate/not_worse_than", 24),
        ("error", "model/error", 4),
        ("error", "change/worse", 3),
        ("error", "change/worse", 3),
        ("warning", "gate/at_most", 22),
        ("note", "change/not_comparable", 3),
    ]
    rules = body["runs"][0]["tool"]["driver"]["rules"]
    assert all(rules[each["ruleIndex"]]["id"] == each["ruleId"] for each in results)
    assert len({each["partialFingerprints"]["classwise/v1"] for each in results}) == len(results)
    assert "class <dog>: 0.900 to 0.700 since audit before" in results[4]["message"]["text"]
    again = sarif(replace(judged, audit_id="another"), changed(judged), target)["runs"][0]["results"]
    assert [each["partialFingerprints"] for each in again] == [each["partialFingerprints"] for each in results]


def test_an_audit_without_a_verdict_reads_as_an_error(tmp_path: Path) -> None:
    for problems, texts in (((), ["the audit did not finish"]), (("one", "two"), ["one", "two"])):
        write_unfinished(SarifTarget(str(tmp_path / "out.sarif"), "fleet.yaml"), problems)
        body = json.loads((tmp_path / "out.sarif").read_text())
        jsonschema.validate(body, SCHEMA)
        assert [each["message"]["text"] for each in body["runs"][0]["results"]] == texts


def test_an_audit_that_passed_has_no_results(small_audit: AuditResult) -> None:
    models = tuple(replace(model, gates=(), outcome=Outcome.PASS) for model in small_audit.models)
    body = sarif(replace(small_audit, models=models, outcome=Outcome.PASS), None, SarifTarget("x", "fleet.yaml"))
    jsonschema.validate(body, SCHEMA)
    run = body["runs"][0]
    assert run["results"] == [] and run["invocations"][0]["executionSuccessful"] is True


def test_too_many_results_are_cut_and_told(judged: AuditResult, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_RESULTS", 3)
    body = sarif(judged, changed(judged), SarifTarget("x", "/elsewhere/fleet.yaml"))
    jsonschema.validate(body, SCHEMA)
    run = body["runs"][0]
    assert [each["level"] for each in run["results"]] == ["error"] * 3
    assert "3 of 7 results" in run["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"]
    uri = run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri == "file:///elsewhere/fleet.yaml"


def test_every_outcome_that_does_not_pass_has_a_level_and_every_rule_a_text() -> None:
    assert set(LEVELS) == set(Outcome) - {Outcome.PASS} and all(RULES.values())
