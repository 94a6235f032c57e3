"""What follows an audit: no secret on the screen, nothing lost to an old bundle, the fleet file obeyed by sync."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jobs.audit import publish
from jobs.audit.audit import run_audit
from jobs.fleetfile.reading import overridden, validate_fleet
from jobs.terminal.progress import Quiet
from jobs.upkeep import sync
from services.measures.clean import Clean
from tracking.mlflow import audits


class Notes(Quiet):
    """Keeps the notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def small(digits_fleet: dict[str, Any]) -> dict[str, Any]:
    return {**digits_fleet, "models": digits_fleet["models"][:1], "measures": ["clean"]}


def test_an_old_bundle_that_is_damaged_costs_the_trends_only(digits_fleet: dict[str, Any]) -> None:
    fleet = validate_fleet(small(digits_fleet))
    old = run_audit(fleet, Quiet())
    (Path(old.folder) / "bundle.json").write_text("{")
    notes = Notes()
    published = publish.audit_and_publish(fleet, notes)
    assert (Path(published.folder) / "report.html").exists()
    assert not (Path(published.folder) / "begun.json").exists()
    left_out = [note for note in notes.notes if not note.startswith("estimate: ")]
    assert [note.startswith("left out of the trends: ") for note in left_out] == [True], notes.notes


def test_a_second_audit_has_trends_in_the_report(digits_fleet: dict[str, Any]) -> None:
    fleet = validate_fleet({**small(digits_fleet), "tracking": {"enabled": False}})
    published = [publish.audit_and_publish(fleet, Quiet()) for _ in range(2)]
    first, second = (Path(each.folder) / "report.html" for each in published)
    assert published[0].result.versions["measure.clean"] == str(Clean.version)
    assert "Over the audits" not in first.read_text() and "Over the audits" in second.read_text()


def test_a_second_audit_draws_no_figure_again(digits_fleet: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = validate_fleet({**small(digits_fleet), "tracking": {"enabled": False}})
    first = Path(publish.audit_and_publish(fleet, Quiet()).folder)
    monkeypatch.setattr("tracking.figures.png.png_bytes", lambda chart: pytest.fail(f"drawn again: {chart.title}"))
    second = Path(publish.audit_and_publish(fleet, Quiet()).folder)
    drawn = sorted(path.relative_to(first) for path in first.rglob("*.png"))
    assert len(drawn) > 2 and all((second / path).read_bytes() == (first / path).read_bytes() for path in drawn)
    bare = publish.audit_and_publish(overridden(fleet, figures=False), Quiet())
    assert not list(Path(bare.folder).rglob("*.png")) and (Path(bare.folder) / "report.html").exists()


def test_sync_says_no_password_and_tags_the_registry_only_if_the_fleet_does(
    digits_fleet: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = validate_fleet({**small(digits_fleet), "tracking": {"enabled": False, "tag_registry": False}})
    folder = run_audit(fleet, Quiet()).folder
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr(audits, "sync", lambda *args, **options: calls.append({"uri": args[1], **options}))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "postgresql+psycopg://me:secret@host/db")
    uploaded = sync.sync_bundle(folder, None)
    assert uploaded == f"{folder} is already at postgresql+psycopg://me@host/db"
    assert calls == [{"uri": "postgresql+psycopg://me:secret@host/db", "experiment": "", "registry_models": False}]


def test_a_cached_audit_pays_for_no_network_picture_or_table_of_distributions() -> None:
    heavy = "{'torch', 'ray', 'matplotlib', 'plotly', 'sklearn', 'scipy.stats'}"
    code = f"import sys; import jobs.audit.publish; print(sorted({heavy} & set(sys.modules)))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
