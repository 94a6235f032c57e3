"""The logs of a command: what asks for them, and that JSON is all there is on standard error."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.terminal.log_setting import log_setting
from services.errors import ConfigError
from services.telemetry.logs import LogSetting
from tests.conftest import ROOT

SECRET = "swordfish-0123456789"


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), **variables}
    command = [sys.executable, "-m", "jobs.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)


def test_an_audit_logs_json_with_its_id_and_no_secret(digits_fleet: dict[str, Any], tmp_path: Path) -> None:
    digits_fleet["models"] = digits_fleet["models"][:1]
    digits_fleet["tracking"] = {"enabled": True, "figures": False}
    file = tmp_path / "fleet.yaml"
    file.write_text(yaml.safe_dump(digits_fleet))
    server = f"http://classwise:{SECRET}@127.0.0.1:9"  # nobody listens on the discard port
    ran = run("--log-format", "json", "--log-level", "debug", "audit", str(file), "--json", MLFLOW_TRACKING_URI=server)
    assert ran.returncode == 0, ran.stderr
    audit_id = json.loads(ran.stdout)["audit_id"]
    lines = [json.loads(line) for line in ran.stderr.splitlines()]
    assert SECRET not in ran.stderr
    assert {"time", "level", "logger", "message"} <= set.intersection(*map(set, lines))
    ours = [line for line in lines if line["logger"] in ("classwise.audit", "classwise.worker")]
    stages = {line.get("stage") for line in ours}
    assert {"preflight", "logits", "measures"} <= stages
    of_audit = [line for line in ours if "stage" in line or line["message"] in ("audit begins", "audit done")]
    assert {line["audit_id"] for line in of_audit} == {audit_id}
    assert {line["fleet"] for line in of_audit} == {"digits"}
    assert [line for line in ours if line["logger"] == "classwise.worker" and line["model"] == "good"]
    done = next(line for line in ours if line["message"] == "audit done")
    assert done["outcome"] == "pass" and done["forwards"] > 0
    assert any("Upload to MLflow failed" in line["message"] for line in lines if line["level"] == "warning")


def test_an_error_is_a_json_line_too(tmp_path: Path) -> None:
    ran = run("audit", str(tmp_path / "none.yaml"), CLASSWISE_LOG="json:warning")
    assert ran.returncode == 2
    (line,) = [json.loads(line) for line in ran.stderr.splitlines()]
    assert (line["level"], line["message"], line["exit_code"]) == ("error", "ConfigError", 2)
    assert "none.yaml" in str(line["problems"])


def test_without_being_asked_nothing_is_logged(tmp_path: Path) -> None:
    ran = run("validate", str(ROOT / "deploy" / "examples" / "digits.yaml"))
    assert "classwise.audit" not in ran.stderr
    assert log_setting(None, None, {}) is None


@pytest.mark.parametrize(
    ("form", "level", "variable", "setting"),
    [
        ("json", None, "", LogSetting("json", "info")),
        (None, "debug", "", LogSetting("text", "debug")),
        (None, None, "json", LogSetting("json", "info")),
        (None, None, "JSON:Warning", LogSetting("json", "warning")),
        ("text", None, "json:debug", LogSetting("text", "debug")),
    ],
)
def test_options_go_over_the_variable(form: str | None, level: str | None, variable: str, setting: LogSetting) -> None:
    assert log_setting(form, level, {"CLASSWISE_LOG": variable}) == setting


@pytest.mark.parametrize(("form", "variable"), [("yaml", ""), (None, "jsn")])
def test_an_unknown_form_is_an_error_with_those_that_are(form: str | None, variable: str) -> None:
    with pytest.raises(ConfigError, match="json"):
        log_setting(form, None, {"CLASSWISE_LOG": variable})
