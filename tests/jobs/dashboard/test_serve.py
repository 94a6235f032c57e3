"""The command: what it says, that it answers, and that it ends."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from typer.testing import CliRunner

from jobs.cli import app

ROOT = Path(__file__).resolve().parents[3]


def test_one_command_says_what_it_reads_serves_it_and_ends_on_ctrl_c(base: Path) -> None:
    command = [sys.executable, "-m", "jobs.cli", "dashboard", "--storage", str(base), "--port", "0"]
    quiet = {key: value for key, value in os.environ.items() if key not in ("MLFLOW_TRACKING_URI",)}
    child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=quiet)
    try:
        assert child.stdout is not None
        lines = [child.stdout.readline().strip() for _ in range(5)]
        assert lines[0] == f"storage    {base}: 5 audits of 2 fleets" and lines[1] == "MLflow     none yet"
        result = re.fullmatch(r"dashboard  (http://127\.0\.0\.1:\d+)/#token=([\w-]{40,})", lines[3])
        assert result is not None, lines
        with urllib.request.urlopen(f"{result[1]}/", timeout=30) as page:
            assert b"/ui/app.js" in page.read()
        requested = urllib.request.Request(f"{result[1]}/v1/fleets", headers={"authorization": f"Bearer {result[2]}"})
        with urllib.request.urlopen(requested, timeout=30) as answer:
            assert b"robust" in answer.read()
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"{result[1]}/v1/fleets", timeout=30)
        child.send_signal(signal.SIGINT)
        _, message = child.communicate(timeout=30)
        assert child.returncode == 0 and message == ""
    finally:
        child.kill()
        child.wait()


def test_a_port_that_is_taken_and_a_storage_that_is_not_there_are_told(base: Path, tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        output = CliRunner().invoke(app, ["dashboard", "--storage", str(base), "--port", port])
    assert output.exit_code == 2 and f"expected a free port, found {port}" in output.stderr and output.stdout == ""
    output = CliRunner().invoke(app, ["dashboard", "--storage", str(tmp_path / "nowhere")])
    assert output.exit_code == 2 and "expected the folder of a storage" in output.stderr
    assert not (tmp_path / "nowhere").exists()
