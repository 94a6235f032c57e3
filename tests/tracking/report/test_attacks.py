"""Every view says whether an attack was adequate, and which objections the fleet file overruled."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from rich.console import Console

from services.records import AttackResult, AuditResult, Estimate, GateResult, Outcome, SignResult
from tracking.bundle.bundle import read_bundle, write_bundle
from tracking.bundle.overview import overview_of
from tracking.mlflow.layout import child_content
from tracking.report.junit import write_junit
from tracking.report.report import render
from tracking.report.sarif import SarifTarget, sarif
from tracking.report.terminal import verdict_text

SHOWN = SignResult("weaker-than-noise", 40, 0, 64, True, 1e-9, True, "For 40 of 64 samples noise did better.")
HIDDEN = SignResult("zero-gradient", 0, None, 64, False, 1.0, False, "For 0 of 64 samples the gradient was zero.")
REASONS = ("pgd20: For 40 of 64 samples noise did better.", "measure square")


@pytest.fixture
def attacked(small_audit: AuditResult) -> AuditResult:
    """Of two models the first has an attack that was inadequate on it, and a gate that passes all the same."""
    keys = (small_audit.models[0].series[0].series.key,)
    weak = AttackResult("pgd20", keys, "inadequate", REASONS, (SHOWN, HIDDEN), 64)
    sound = AttackResult("apgd30", (), "adequate", (), (HIDDEN,), 64)
    gate = GateResult("g >= 0", Outcome.PASS, Estimate(0.5), "cleared; overruled: x", overruled=("inadequate-attack",))
    first = replace(small_audit.models[0], attacks=(weak, sound), gates=(gate,), outcome=Outcome.PASS)
    second = replace(small_audit.models[1], attacks=(sound,))
    return replace(small_audit, models=(first, second))


def test_the_bundle_keeps_what_was_seen(attacked: AuditResult, tmp_path: Path) -> None:
    write_bundle(attacked, str(tmp_path))
    assert read_bundle(str(tmp_path)).models[0].attacks == attacked.models[0].attacks
    assert read_bundle(str(tmp_path)).models[0].gates == attacked.models[0].gates


def test_the_overview_has_the_signs_that_show(attacked: AuditResult) -> None:
    weak, sound = overview_of(attacked, 1).models[0].attacks
    assert weak.signs == (SHOWN,) and weak.reasons == REASONS
    assert sound.signs == () and sound.adequacy == "adequate"


def test_the_table_marks_numbers_that_are_no_evidence(attacked: AuditResult, small_audit: AuditResult) -> None:
    assert "!: by an attack that was inadequate" in printed(attacked)
    marked = [line for line in printed(attacked).splitlines() if "! " in line]
    assert len(marked) == 1 and "!" not in printed(small_audit)


@pytest.mark.long
def test_the_report_names_every_attack(attacked: AuditResult) -> None:
    page = render(attacked, interactive=False)
    assert "pgd20</code> inadequate" in page and "For 40 of 64 samples noise did better." in page
    assert "apgd30</code> adequate" in page and "none of 1 signs of a failing attack, 64 samples probed" in page


def test_tags_of_the_mlflow_run(attacked: AuditResult) -> None:
    tags = child_content(attacked, 0).tags
    assert tags["classwise.adequacy"] == "pgd20: inadequate\napgd30: adequate"
    assert tags["classwise.overruled"] == "g >= 0: inadequate-attack"
    assert "classwise.overruled" not in child_content(attacked, 1).tags


def test_junit_has_properties_and_the_overruled_reason(attacked: AuditResult, tmp_path: Path) -> None:
    write_junit(attacked, str(tmp_path / "j.xml"))
    suite = ET.parse(tmp_path / "j.xml").getroot()[0]
    known = {each.get("name"): each.get("value") for each in suite.findall("properties/property")}
    assert known == {"adequacy pgd20": "inadequate", "adequacy apgd30": "adequate"}
    assert suite.findtext("testcase/system-out") == "cleared; overruled: x"


def test_sarif_warns_of_the_attack_and_notes_the_overrule(attacked: AuditResult) -> None:
    models = (attacked.models[0],)
    body = sarif(replace(attacked, models=models), None, SarifTarget("x", "fleet.yaml"))
    results = body["runs"][0]["results"]
    assert [(each["level"], each["ruleId"]) for each in results] == [
        ("warning", "attack/inadequate"),
        ("note", "gate/overruled"),
    ]
    assert "noise did better" in results[0]["message"]["text"]


def printed(audit: AuditResult) -> str:
    file = io.StringIO()
    Console(file=file, width=120).print(verdict_text(audit))
    return file.getvalue()
