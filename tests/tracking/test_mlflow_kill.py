"""A driver that dies in the middle of logging."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from services.records import AuditResult
from tracking import bundle
from tracking.mlflow_store import close_stale_runs

pytestmark = pytest.mark.filterwarnings("default::DeprecationWarning", "default::FutureWarning")
ROOT = Path(__file__).resolve().parents[2]


def in_the_middle(folder: Path, uri: str) -> subprocess.Popen[bytes]:
    """Start the driver and wait until it stands in the middle of its first child run."""
    flag = folder / "flag"
    command = [sys.executable, str(Path(__file__).with_name("killed_driver.py")), str(folder), uri, str(flag)]
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.DEVNULL)
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

    process = in_the_middle(tmp_path, uri)
    client = MlflowClient(uri)
    ids = [client.get_experiment_by_name("killed").experiment_id]
    assert close_stale_runs(uri, "killed") == []
    process.kill()
    process.wait(30)
    assert {run.info.status for run in client.search_runs(ids)} == {"RUNNING"}
    assert len(close_stale_runs(uri, "killed", audit_id="another audit")) == 0
    assert len(close_stale_runs(uri, "killed")) == 2
    assert {run.info.status for run in client.search_runs(ids)} == {"KILLED"}

    (tmp_path / "flag").unlink()
    process = in_the_middle(tmp_path, uri)
    assert {run.info.status for run in client.search_runs(ids)} == {"RUNNING"}
    process.send_signal(signal.SIGTERM)
    process.wait(30)
    assert {run.info.status for run in client.search_runs(ids)} == {"KILLED"}
