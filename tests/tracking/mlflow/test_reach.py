"""Stores that do not answer, several writers at once, and drivers that are gone."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from services.errors import TrackingError
from services.records import AuditResult
from tests.ports import free_port
from tests.tracking.conftest import log
from tracking.bundle import bundle, marker
from tracking.mlflow import connection
from tracking.mlflow.audits import LoggedRuns
from tracking.mlflow.process import this_driver
from tracking.mlflow.runs import close_stale_runs

pytestmark = pytest.mark.filterwarnings("default::DeprecationWarning", "default::FutureWarning")


def silent_server(stop: threading.Event) -> int:
    """A port that accepts and never answers, which is what a hung server looks like."""
    listener = socket.create_server(("127.0.0.1", 0))

    def hold() -> None:
        with listener:
            stop.wait(120)

    threading.Thread(target=hold, daemon=True).start()
    return int(listener.getsockname()[1])


@pytest.mark.parametrize("kind", ["refuses", "hangs", "no database"])
def test_an_unreachable_server_costs_seconds_and_no_data(
    kind: str, audit: AuditResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = threading.Event()
    uri = f"http://user:secret@127.0.0.1:{free_port()}"
    if kind == "hangs":
        monkeypatch.setattr(connection, "PROBE_SECONDS", 1)
        uri = f"http://user:secret@127.0.0.1:{silent_server(stop)}"
    if kind == "no database":
        pytest.importorskip("psycopg")
        uri = f"postgresql+psycopg://user:secret@127.0.0.1:{free_port()}/none"
    bundle.write_bundle(audit, str(tmp_path))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    began = time.monotonic()
    with pytest.raises(TrackingError, match="classwise sync") as caught:
        log(audit, str(tmp_path), uri)
    stop.set()
    assert time.monotonic() - began < 20
    assert "secret" not in caught.value.problems[0].where
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert "MLFLOW_HTTP_REQUEST_TIMEOUT" not in os.environ


FIRST = """
import sys
from tracking.mlflow import artifacts
from tracking.bundle import bundle
from tracking.mlflow.connection import search
from tracking.mlflow.audits import log_audit
artifacts.child_files = artifacts.parent_files = lambda *arguments: None
result = bundle.read_bundle(sys.argv[1])
log_audit(result, sys.argv[1], tracking_uri=sys.argv[2], experiment="first", registry_models=False)
"""


@pytest.mark.slow
def test_a_fresh_store_survives_processes_that_come_first_together(audit: AuditResult, tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/deep/fresh.db"
    processes = []
    for index in range(3):
        where = str(tmp_path / str(index))
        bundle.write_bundle(replace(audit, audit_id=f"first-{index}"), where)
        command = [sys.executable, "-c", FIRST, where, uri]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[3])}
        processes.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE))
    for process in processes:
        errors = process.communicate(timeout=300)[1]
        assert process.returncode == 0, errors.decode()[-2000:]
    runs = [marker.uploaded_to(str(tmp_path / str(index)), uri) for index in range(3)]
    assert len({run["parent_run_id"] for run in runs if run}) == 3


@pytest.mark.usefixtures("no_artifacts")
def test_threads_take_turns(audit: AuditResult, store: str, tmp_path: Path) -> None:
    def write(index: int) -> LoggedRuns:
        return log(replace(audit, audit_id=f"thread-{index}"), str(tmp_path / str(index)), store)

    with ThreadPoolExecutor(3) as pool:
        runs = list(pool.map(write, range(3)))
    assert len({run.parent_run_id for run in runs}) == 3 and "MLFLOW_HTTP_REQUEST_TIMEOUT" not in os.environ


def test_a_store_that_cannot_be_written_is_named(audit: AuditResult, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(TrackingError, match=re.escape(str(tmp_path))):
        log(audit, str(tmp_path / "b"), f"sqlite:///{tmp_path}/file/mlflow.db")


@pytest.mark.usefixtures("no_artifacts")
def test_only_runs_whose_driver_is_gone_are_closed(client: Any, store: str) -> None:
    experiment = client.create_experiment("stale")
    mine = json.loads(this_driver().to_tag())
    drivers = {
        "alive": mine,
        "no such pid": {**mine, "pid": 2**22 + 1},
        "reused pid": {**mine, "born": "1"},
        "before the reboot": {**mine, "boot": "another"},
        "other host": {**mine, "host": "elsewhere"},
    }
    ids = {
        name: client.create_run(experiment, tags={"classwise.driver": json.dumps(driver)}).info.run_id
        for name, driver in drivers.items()
    }
    ids["not ours"] = client.create_run(experiment).info.run_id
    ids["old elsewhere"] = client.create_run(
        experiment, start_time=1, tags={"classwise.driver": json.dumps(drivers["other host"])}
    ).info.run_id
    closed = close_stale_runs(store, "stale")
    expected = {"no such pid", "reused pid", "before the reboot", "old elsewhere"}
    assert {name for name, run_id in ids.items() if run_id in closed} == expected
    states = {name: client.get_run(run_id).info.status for name, run_id in ids.items()}
    assert {name for name, status in states.items() if status == "KILLED"} == expected
    assert close_stale_runs(store, "no such experiment") == []
