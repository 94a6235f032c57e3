"""Accepting audits, and what the next audit makes of it: gate, bundle, report, terminal."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobs.audit.publish import audit_and_publish
from jobs.comparison.accepted import accept, read_accepted
from jobs.comparison.non_inferiority import smallest_margins
from jobs.fleetfile.reading import validate_fleet
from jobs.upkeep.prune import Rules, plan_prune
from services.errors import ConfigError, StorageError
from services.measures.clean import Clean
from services.records import Outcome, SampleFacts
from tests.jobs.command import run
from tracking.bundle.comparison import read_comparison
from tracking.bundle.scores import read_kept_scores, write_scores
from tracking.report.terminal import verdict_text

from .conftest import Notes, audit, measured

pytestmark = pytest.mark.filterwarnings("default::DeprecationWarning", "default::FutureWarning")
GATE = {"measure": "clean", "metric": "aggregate", "not_worse_than": "accepted", "margin": 0.02}


@pytest.fixture
def fleet(digits_fleet: dict[str, Any]) -> dict[str, Any]:
    return {**measured(digits_fleet, "good"), "measures": ["clean"]}


def test_the_first_audit_is_undecided_until_one_is_accepted(
    fleet: dict[str, Any], swapped: Callable[..., dict[str, Any]]
) -> None:
    gated = {**fleet, "gates": [GATE]}
    first = audit(gated)
    assert first.result.outcome is Outcome.UNDECIDED and "classwise accept" in first.result.models[0].reasons[0]
    with pytest.raises(ConfigError, match="even-though-failed"):
        accept(first.folder, by="me")
    made = accept(first.folder, by="me", why="the first", even_though_failed=True)
    same, worse = audit(gated), audit(swapped(gated, "good", "weak"))
    assert same.result.outcome is Outcome.PASS and worse.result.outcome is Outcome.FAIL
    assert same.result.compared_with == made.audit_id
    result = read_comparison(worse.folder)
    assert result is not None and result.compared_with == made.audit_id and result.worse > 0
    accept(same.folder, by="you")
    accept(same.folder, by="you")
    known = read_accepted(str(Path(same.folder).parent))
    kept = dict(plan_prune(gated["storage"], Rules(keep_days=0, even_unsynced=True), time.time()).kept)
    assert {path.rpartition("/")[2] for path, why in kept.items() if why == "accepted"} == {Path(same.folder).name}
    assert known is not None and [(each.by, each.why) for each in known.history] == [("me", "the first"), ("you", "")]


def test_a_gate_on_every_class_finds_the_one_that_the_whole_hides(
    fleet: dict[str, Any], swapped: Callable[..., dict[str, Any]]
) -> None:
    accept(audit(fleet).folder, by="me")
    every = {**GATE, "metric": "classes"}
    gates = [{**GATE, "margin": 0.1}, {**every, "margin": 0.1}, {**every, "margin": 0.001}]
    same = audit({**fleet, "gates": gates}).result.models[0]
    assert [gate.outcome for gate in same.gates] == [Outcome.PASS] * 3
    assert same.gates[1].text == "clean classes not worse than accepted by more than 0.1"
    other = audit({**swapped(fleet, "good", "weak"), "gates": gates}).result.models[0]
    assert [gate.outcome for gate in other.gates] == [Outcome.FAIL] * 3
    assert other.gates[1].estimate.value < other.gates[0].estimate.value
    for wrong, message in (
        ({**every, "not_worse_than": None, "margin": 0.0, "at_least": 0.1}, "goes with not_worse_than"),
        ({**GATE, "metric": "wcr"}, "set metric: aggregate, or classes"),
    ):
        with pytest.raises(ConfigError, match=message):
            validate_fleet({**fleet, "gates": [wrong]})


def test_no_gate_passes_on_numbers_that_the_comparison_refuses(
    fleet: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    accept(audit(fleet).folder, by="me")
    monkeypatch.setattr(Clean, "version", Clean.version + 1)
    now = audit({**fleet, "gates": [GATE, {**GATE, "metric": "classes"}]})
    record = read_comparison(now.folder)
    assert record is not None
    (refused,) = [each.reason for model in record.models for each in model.series]
    gates = now.result.models[0].gates
    assert "version" in refused and [gate.outcome for gate in gates] == [Outcome.ERROR] * 2
    assert all(refused in gate.reason for gate in gates)


def test_an_unchanged_model_passes_at_margin_0_and_a_retrained_one_is_tested(
    fleet: dict[str, Any], swapped: Callable[..., dict[str, Any]]
) -> None:
    accept(audit(fleet).folder, by="me")
    gates = [{**GATE, "margin": 0.0}, {**GATE, "margin": 0.0, "metric": "classes"}]
    same = audit({**fleet, "gates": gates}).result.models[0]
    assert [gate.outcome for gate in same.gates] == [Outcome.PASS] * 2
    assert all(gate.reason.startswith("unchanged") for gate in same.gates)
    other = audit({**swapped(fleet, "good", "other"), "gates": gates}).result.models[0]
    smaller = audit({**fleet, "samples": {**fleet["samples"], "per_class": 20}, "gates": gates}).result.models[0]
    for model in (other, smaller):
        assert not any("unchanged" in gate.reason or gate.outcome is Outcome.PASS for gate in model.gates)


def test_validation_says_which_margin_the_samples_can_decide(fleet: dict[str, Any]) -> None:
    """Of 1,000 scores that are all the same as before, the lower limit of the difference is -.0041 at delta .05."""
    gates = [{**GATE, "margin": 0.0}, {**GATE, "metric": "classes"}, {**GATE, "margin": 0.01}]
    checked = validate_fleet({**fleet, "gates": [*gates, {"measure": "clean", "metric": "wcr", "at_least": 0.1}]})
    facts = SampleFacts("npz:x", "", 1000, (1, 8, 8), ("a", "b", "c"), (950, 50, 0))
    whole, classes, wide = smallest_margins(checked, facts)
    assert "1000 samples can decide margins from 0.0041" in whole and "only an unchanged model passes" in whole
    assert "50 samples of the smallest class" in classes and "only an unchanged" in classes
    assert "only an unchanged" not in wide


def test_a_class_that_vanished_since_is_named_and_no_pass(
    fleet: dict[str, Any], swapped: Callable[..., dict[str, Any]]
) -> None:
    first = audit(swapped(fleet, "good", "weak"))
    spec = first.result.models[0].spec
    scores = read_kept_scores(first.folder, 0, spec)
    write_scores(first.folder, 0, spec, {key: column[scores["label"] != 3] for key, column in scores.items()})
    accept(first.folder, by="me")
    gates = [{**GATE, "margin": 0.9}, {**GATE, "margin": 0.9, "metric": "classes"}]
    result = audit({**fleet, "gates": gates}).result.models[0]
    assert [gate.outcome for gate in result.gates] == [Outcome.UNDECIDED] * 2
    assert all("class 3" in gate.reason for gate in result.gates)


def test_what_cannot_be_accepted(fleet: dict[str, Any], tmp_path: Path) -> None:
    finished = audit({**fleet, "gates": [{**GATE, "not_worse_than": "20200101T000000Z-00000000"}]})
    with pytest.raises(ConfigError, match="outcome error"):
        accept(finished.folder, by="me", even_though_failed=True)
    elsewhere = tmp_path / "copy"
    Path(finished.folder).rename(elsewhere)
    with pytest.raises(ConfigError, match="STORAGE/audits/FLEET/AUDIT"):
        accept(str(elsewhere), by="me")
    with pytest.raises(StorageError, match="a finished audit"):
        accept(finished.folder, by="me")


def test_an_accepted_audit_that_is_gone_costs_the_comparison_or_stops_the_gate(fleet: dict[str, Any]) -> None:
    first = audit(fleet)
    accept(first.folder, by="me")
    (Path(first.folder) / "bundle.json").unlink()
    assert "Not compared with the accepted audit" in audit(fleet).result.notes[-1]
    with pytest.raises(StorageError, match="a finished audit"):
        audit({**fleet, "gates": [GATE]})
    (Path(first.folder).parent / "accepted.json").write_text('{"fleet": 3}')
    assert "accept an audit again" in audit(fleet).result.notes[-1]


def test_report_terminal_and_json_say_what_changed(
    fleet: dict[str, Any], swapped: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    accept(audit(fleet).folder, by="me")
    published = audit_and_publish(validate_fleet(swapped(fleet, "good", "weak")), Notes())
    assert published.comparison is not None and published.comparison.worse > 0
    report = (Path(published.folder) / "report.html").read_text()
    assert "Since the accepted audit" in report and '<tr class="worse">' in report
    shown = run("show", published.folder).stdout
    assert "worse: good, clean, all samples: " in shown and "weights or code changed under a name: good" in shown
    body = json.loads(run("show", published.folder, "--json").stdout)
    assert body["comparison"]["worse"] == published.comparison.worse
    assert verdict_text(published.result) is not None


def test_compare_says_what_it_takes() -> None:
    shown = run("compare", "--help").stdout
    assert "compare [OPTIONS] [EARLIER] LATER\n" in shown and "required" not in shown
    for words, each in (((), "none"), (("a", "b", "c"), "3")):
        process = run("compare", *words)
        assert process.exit_code == 2
        message = f"expected one audit, or two: classwise compare [EARLIER] LATER, found {each}; name LATER"
        assert message in process.stderr


def test_the_commands(fleet: dict[str, Any], swapped: Callable[..., dict[str, Any]]) -> None:
    first, same = audit(fleet), audit(fleet)
    home = ["--storage", fleet["storage"], "--fleet", "digits"]
    none = run("compare", same.folder)
    assert none.exit_code == 2 and "a fleet with an accepted audit" in none.stderr
    process = run("accept", first.result.audit_id, "--why", "by hand", *home)
    assert process.exit_code == 0 and process.stdout.startswith(f"accepted {first.result.audit_id} (pass), by ")
    again = run("compare", same.folder)
    assert again.exit_code == 0 and "itself" not in again.stderr
    itself = run("compare", first.folder)
    assert itself.exit_code == 0
    assert f"{first.result.audit_id} is compared with itself: it is the accepted one" in itself.stderr
    assert "is compared with itself\n" in run("compare", first.folder, first.folder).stderr
    worse = audit(swapped(fleet, "good", "weak"))
    compared = run("compare", first.result.audit_id, worse.result.audit_id, "--json", *home)
    assert compared.exit_code == 1 and json.loads(compared.stdout)["worse"] > 0
    assert not (Path(first.folder) / "comparison.json").exists()
    other = audit({**fleet, "samples": {"uri": "sklearn:digits?split=train"}})
    named = run("compare", first.folder, worse.folder)
    assert named.stdout.startswith(f"Since audit {first.result.audit_id}: ")
    nothing = run("compare", first.folder, other.folder)
    assert nothing.exit_code == 3 and "nothing could be compared" in nothing.stdout
    assert run("compare", "20200101T000000Z-00000000", first.folder).exit_code == 2
    lost = run("accept", "20200101T000000Z-00000000")
    assert lost.exit_code == 2 and "--fleet" in lost.stderr
