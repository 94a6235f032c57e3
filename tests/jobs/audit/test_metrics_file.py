"""The text file of an audit that no Prometheus can scrape."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from jobs.audit import metrics_file
from jobs.audit.publish import audit_and_publish
from jobs.fleetfile.reading import validate_fleet
from jobs.terminal.progress import Quiet
from services.telemetry import counters
from tests.conftest import ROOT


def test_an_audit_in_process_leaves_its_counts(
    digits_fleet: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh = counters.Meter()
    monkeypatch.setattr(counters, "METER", fresh)
    path = tmp_path / "collected" / "digits.prom"
    monkeypatch.setenv(metrics_file.VARIABLE, str(path))
    digits_fleet |= {"models": digits_fleet["models"][:1], "measures": ["clean"]}
    result = audit_and_publish(validate_fleet(digits_fleet), Quiet()).result
    families = text_string_to_metric_families(path.read_text())
    by_name = {(s.name, *s.labels.values()): s.value for family in families for s in family.samples}
    assert by_name["classwise_forwards_total", "digits", "good"] == result.models[0].forwards
    assert by_name["classwise_audits_total", "digits", "pass"] == 1
    assert [file.name for file in path.parent.iterdir()] == ["digits.prom"]


def test_a_file_that_cannot_be_written_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(metrics_file.VARIABLE, str(tmp_path / "file" / "below.prom"))
    metrics_file.write_metrics()
    assert metrics_file.VARIABLE in caplog.text


def test_the_documentation_names_every_metric() -> None:
    text = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    metrics = [value for value in vars(counters).values() if isinstance(value, counters.Metric)]
    ends = {"counter": "_total", "gauge": "", "histogram": ""}
    assert [m.name for m in metrics if f"`{m.name}{ends[m.kind]}`" not in text] == []
