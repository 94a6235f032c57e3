"""The units are ones that systemd takes, run programs and options that there are, and hold no more than they need."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from typer.testing import CliRunner

from jobs.cli import app
from jobs.submission.ray_jobs import SLOTS

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy" / "systemd"
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
    assert set_["User"] == set_["Group"] == [unit.stem] and set_["SupplementaryGroups"] == ["classwise"]
    assert set_["ProtectSystem"] == ["strict"] and set_["CapabilityBoundingSet"] == [""] and set_["MemoryMax"]
    assert set_["StateDirectory"] == [unit.stem] and set_["ReadWritePaths"] == ["/var/lib/classwise"]
    assert all(set_[name] == ["yes"] for name in HARDENED)
    held = ["ray.token:/etc/classwise/ray.token", "signing.key:/etc/classwise/signing.key"]
    if unit.stem == "classwise-api":
        held += ["tokens:/etc/classwise/tokens", "settings.yaml:/etc/classwise/settings.yaml"]
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
        assert words[words.index("--node-ip-address") + 1] == words[words.index("--dashboard-host") + 1] == "127.0.0.1"
        assert "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0" in settings(unit)["Environment"]
        assert words[words.index("--temp-dir") + 1] == "/var/lib/classwise-ray/t"
        assert len("/var/lib/classwise-ray/t/session_2026-11-29_08-29-13_497000_1234567/sockets/plasma_store.10") < 107
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


def test_users_and_folders_are_ones_that_systemd_makes(tmp_path: Path) -> None:
    """Secrets for root alone, results for the group: what one unit writes, the others may replace."""
    (tmp_path / "etc").mkdir()
    for program, file, words in (
        ("systemd-sysusers", "classwise.sysusers.conf", []),
        ("systemd-tmpfiles", "classwise.tmpfiles.conf", ["--create"]),
    ):
        if shutil.which(program) is None or os.geteuid() != 0:
            pytest.skip(f"{program} is not installed, or not root")
        command = [program, f"--root={tmp_path}", *words, str(FOLDER / file)]
        process = subprocess.run(command, capture_output=True, text=True, check=False)
        assert process.returncode == 0 and not re.search("unknown|invalid|ignor", process.stderr, re.I), process.stderr
    users = {line.split(":")[0]: line.split(":")[2] for line in (tmp_path / "etc" / "passwd").read_text().splitlines()}
    groups = {line.split(":")[0]: line.split(":") for line in (tmp_path / "etc" / "group").read_text().splitlines()}
    assert set(users) >= {unit.stem for unit in UNITS}
    assert set(groups["classwise"][3].split(",")) == {unit.stem for unit in UNITS}
    modes = {path: (tmp_path / path).stat().st_mode & 0o7777 for path in ("etc/classwise", "var/lib/classwise")}
    assert modes == {"etc/classwise": 0o700, "var/lib/classwise": 0o2770}
    assert str((tmp_path / "var/lib/classwise").stat().st_gid) == groups["classwise"][2]


WRITES = """
import os, sys
from services.storage import files
files.exists("/")  # what it imports when it is first used
target, user = sys.argv[1], int(sys.argv[2])
os.setgroups([60010]), os.setgid(user), os.setuid(user), os.umask(0o007)
files.write_bytes(target, str(user).encode())
print(files.read_bytes(target).decode())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be three users")
def test_what_one_unit_stores_another_replaces(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    for folder in (*reversed(tmp_path.parents), tmp_path):
        if "pytest-of-" in str(folder):
            folder.chmod(0o755)
    os.chown(shared, 0, 60010)
    shared.chmod(0o2770)
    target = str(shared / "submissions" / "one" / "ending.json")
    for user in (60001, 60002, 60001):
        words = [sys.executable, "-c", WRITES, target, str(user)]  # the interpreter may lie where only root looks
        process = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
        assert process.stdout == f"{user}\n", process.stderr
    assert Path(target).stat().st_mode & 0o777 == 0o660 and Path(target).stat().st_gid == 60010
