"""The list of sources: all of them, with what each needs and whether that is there."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from jobs.cli import app
from jobs.upkeep import sources
from services.loading.models.source import SCHEMES as MODELS
from services.loading.samples.source import SCHEMES as SAMPLES
from services.registry import Registry

NONE: Registry[Any] = Registry("sample scheme", "classwise.no-such-group", {})


@pytest.mark.long
def test_every_source_is_listed_with_what_it_is() -> None:
    ran = CliRunner().invoke(app, ["sources", "--json"])
    assert ran.exit_code == 0, ran.output
    listed = json.loads(ran.stdout)
    assert [(each["kind"], each["scheme"]) for each in listed] == [
        *(("model", f"{name}:") for name in MODELS.names()),
        *(("samples", f"{name}:") for name in SAMPLES.names()),
    ]
    assert all(f"`{each['scheme']}" in each["about"] for each in listed)
    states = {(each["kind"], each["scheme"]): each["state"] for each in listed}
    assert states["model", "factory:"] == states["model", "http:"] == states["samples", "npz:"] == "ok"
    assert states["samples", "sklearn:"] == states["model", "onnx:"] == "ok"


def test_people_read_what_is_missing_and_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "PACKAGES", {"no_such_package": {("model", "onnx")}})
    monkeypatch.setattr(sources, "INSTALL", {"no_such_package": "classwise[onnx]"})
    monkeypatch.setattr(sources, "SAMPLES", NONE)
    ran = CliRunner().invoke(app, ["sources"])
    lines = ran.stdout.splitlines()
    below = next(number for number, line in enumerate(lines) if line.startswith("model    onnx:")) + 1
    assert lines[below].split(maxsplit=1) == ["needs", "classwise[onnx]: not installed"]


def test_another_packages_source_that_does_not_import_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cw_vendor.py").write_text(
        '"""`vendor:NAME`: models of a vendor."""\nraise RuntimeError("no licence")\n'
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path(__file__).resolve().parents[3]}")
    added: Registry[Any] = Registry("model scheme", "classwise.no-such-group", {"vendor": "cw_vendor:SCHEME"})
    monkeypatch.setattr(sources, "MODELS", added)
    monkeypatch.setattr(sources, "PACKAGES", {})
    monkeypatch.setattr(sources, "SAMPLES", NONE)
    found = sources.installed_sources()[0]
    assert (found.scheme, found.about, found.package) == ("vendor:", "`vendor:NAME`: models of a vendor.", "cw_vendor")
    assert found.state == "RuntimeError: no licence"
    assert "cw_vendor" not in sys.modules
