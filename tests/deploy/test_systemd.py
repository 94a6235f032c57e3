"""The units are ones that systemd takes, run programs and options that there are, and hold no more than they need."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest
from typer.testing import CliRunner

from jobs.cli import app
from jobs.submission.ray_jobs import SLOTS

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "systemd"
UNITS = sorted(FOLDER.glob("*.service"))
HARDENED = ("NoNewPrivileges", "PrivateTmp", "ProtectHome", "ProtectKernelModules", "RestrictSUIDSGID")


def settings(unit: Path) -> dict[str, list[str]]:
    """What a unit sets, by name."""
    result: dict[str, list[str]] = defaultdict(list)
    for line in unit.read_text().splitlines():
        if line and not line.startswith(("#", "[")):
            name, equals, value = line.partition("=")
            assert equals, line
            result[name].append(value)
    return result


def test_the_three_units_are_there() -> None:
    assert [unit.stem for unit in UNITS] == ["classwise-api", "classwise-ray", "classwise-scheduler"]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_runs_as_nobody_special_behind_walls(unit: Path) -> None:
    set_ = settings(unit)
    assert (
        set_["User"] == ["classwise"] and set_["ProtectSystem"] == ["strict"] and set_["CapabilityBoundingSet"] == [""]
    )
    assert all(set_[name] == ["yes"] for name in HARDENED)
    held = ["ray.token:/etc/classwise/ray.token", "signing.key:/etc/classwise/signing.key"]
    assert set_["LoadCredential"] == held and "CLASSWISE_SIGNING_KEY_PATH=%d/signing.key" in set_["Environment"]
    assert "RAY_AUTH_MODE=token" in set_["Environment"] and "RAY_AUTH_TOKEN_PATH=%d/ray.token" in set_["Environment"]
    assert set_["Restart"][0] in ("always", "on-failure") and set_["WantedBy"] == ["multi-user.target"]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_what_it_starts_exists(unit: Path) -> None:
    (command,) = settings(unit)["ExecStart"]
    program, *words = shlex.split(command)
    assert program in ("/opt/classwise/bin/classwise", "/opt/classwise/bin/ray")
    options = [word for word in words if word.startswith("--")]
    if program.endswith("ray"):
        from ray.scripts.scripts import start

        known = {option for parameter in start.params for option in parameter.opts}
        assert set(options) <= known
        assert json.loads(words[words.index("--resources") + 1]) == {SLOTS: 2}
        return
    names = words[:1] if words[0] == "serve" else words[:2]
    output = CliRunner().invoke(app, [*names, "--help"]).output
    assert all(option in output for option in options)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_takes_it(unit: Path, tmp_path: Path) -> None:
    for each in UNITS:
        text = re.sub(r"/opt/classwise/bin/\w+", "/bin/true", each.read_text())
        (tmp_path / each.name).write_text(text)
    process = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / unit.name)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0 and "classwise" not in process.stderr, process.stderr
    (tmp_path / unit.name).write_text("[Service]\nTypo=exec\nExecStart=/bin/true\n")
    process = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / unit.name)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Typo" in process.stderr
