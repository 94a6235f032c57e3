"""A driver that dies in the middle of logging."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from services.records import AuditResult
from tracking.bundle import bundle
from tracking.mlflow.connection import connect
from tracking.mlflow.runs import close_stale_runs

pytestmark = pytest.mark.filterwarnings("default::DeprecationWarning", "default::FutureWarning")
ROOT = Path(__file__).resolve().parents[3]


def started(folder: Path, uri: str, experiment: str) -> subprocess.Popen[bytes]:
    """Start a driver that logs the bundle in `folder`."""
    flag = str(folder / experiment)
    command = [sys.executable, str(Path(__file__).with_name("killed_driver.py")), str(folder), uri, flag, experiment]
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.DEVNULL)


def in_the_middle(process: subprocess.Popen[bytes], flag: Path) -> subprocess.Popen[bytes]:
    """Wait until the driver stands in the middle of its first child run."""
    end = time.monotonic() + 90
    while not flag.exists() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.1)
    assert flag.exists(), f"the driver ended early with {process.poll()}"
    return process


def test_a_killed_driver_is_closed_later_and_a_terminated_one_closes_itself(
    make_audit: Callable[..., AuditResult], migrated_store: Callable[[Path], str], tmp_path: Path
) -> None:
    from mlflow import MlflowClient

    uri = migrated_store(tmp_path)
    bundle.write_bundle(make_audit(2, 3), str(tmp_path))

    killed, terminated = (started(tmp_path, uri, name) for name in ("killed", "terminated"))
    in_the_middle(killed, tmp_path / "killed")
    in_the_middle(terminated, tmp_path / "terminated")
    client = MlflowClient(uri)

    def states(experiment: str) -> set[str]:
        result = client.get_experiment_by_name(experiment)
        return {run.info.status for run in client.search_runs([result.experiment_id])}

    assert close_stale_runs(uri, "killed") == []
    killed.kill()
    killed.wait(30)
    assert states("killed") == {"RUNNING"}
    assert len(close_stale_runs(uri, "killed", audit_id="another audit")) == 0
    assert len(close_stale_runs(uri, "killed")) == 2
    assert states("killed") == {"KILLED"}

    assert states("terminated") == {"RUNNING"}
    terminated.send_signal(signal.SIGTERM)
    terminated.wait(30)
    assert states("terminated") == {"KILLED"}


def written(path: Path) -> bool:
    """True if `path` holds anything; a journal may go between the listing and the look."""
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_size > 0
    return False


def test_a_driver_killed_while_it_makes_the_store_does_not_break_it(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    program = f"from tracking.mlflow.connection import connect; connect({uri!r})"
    with subprocess.Popen([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": str(ROOT)}) as process:
        end = time.monotonic() + 120
        while not any(map(written, tmp_path.glob("*mlflow.db*"))) and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(0.3)
        process.kill()
    assert [path.name for path in tmp_path.glob("*mlflow.db.new")] == [".mlflow.db.new"]
    assert [each.name for each in connect(uri).search_experiments()] == ["Default"]
    assert list(tmp_path.glob("*mlflow.db.new*")) == []
