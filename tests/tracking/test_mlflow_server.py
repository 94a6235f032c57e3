"""A real MLflow server on a real PostgreSQL: what a team deploys."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from services.records import AuditResult
from tests.ports import free_port
from tracking import bundle
from tracking.leaderboard_runs import read_models
from tracking.mlflow_store import log_audit, sync

pytestmark = pytest.mark.filterwarnings("default::DeprecationWarning", "default::FutureWarning")
BINARIES = [Path(folder) for folder in sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")), reverse=True)]


@contextmanager
def running(
    command: list[str], log: Path, end_with: signal.Signals, **environment: str
) -> Iterator[subprocess.Popen[bytes]]:
    """A process in a group of its own, ended with the block by a signal that does not wait for its clients."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, env={**os.environ, **environment}, start_new_session=True
        )
        try:
            yield process
        finally:
            os.killpg(process.pid, end_with)
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(15)


def wait_for(ready: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + 120
    while time.monotonic() < end and process.poll() is None:
        if ready():
            return
        time.sleep(0.2)
    pytest.fail(f"{process.args!r} did not come up:\n{log.read_text()[-2000:]}")


def as_postgres(command: list[str]) -> list[str]:
    """PostgreSQL refuses to run as root."""
    return ["runuser", "-u", "postgres", "--", *command] if os.geteuid() == 0 else command


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


def accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URI of an empty database."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    folder = next((folder for folder in BINARIES if (folder / "initdb").exists()), None)
    if folder is None:
        found = shutil.which("initdb")
        if found is None:
            pytest.skip("PostgreSQL is not installed: no initdb in /usr/lib/postgresql/*/bin or on the PATH")
        folder = Path(found).parent
    if os.geteuid() == 0 and shutil.which("runuser") is None:
        pytest.skip("PostgreSQL does not run as root, and runuser is not there to change that")
    home = Path("/tmp") / f"classwise-pg-{os.getpid()}"
    log = tmp_path_factory.mktemp("postgres") / "log"
    home.mkdir(mode=0o777)
    home.chmod(0o777)
    data = home / "data"
    port = free_port()
    try:
        make = [str(folder / "initdb"), "-D", str(data), "-A", "trust", "-U", "classwise", "--no-sync"]
        subprocess.run(as_postgres(make), check=True, capture_output=True, cwd="/")
        serve = [str(folder / "postgres"), "-D", str(data), "-p", str(port), "-k", str(home), "-F"]
        with running(as_postgres(serve), log, signal.SIGQUIT) as process:
            wait_for(lambda: accepts(port), process, log)
            yield f"postgresql+psycopg://classwise@127.0.0.1:{port}/postgres"
    finally:
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="module")
def server(postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URI of an MLflow server over it."""
    folder = tmp_path_factory.mktemp("server")
    port = free_port()
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", postgres, "--port", str(port)]
    command += ["--artifacts-destination", str(folder / "artifacts"), "--workers", "1"]
    log = folder / "log"
    with running(command, log, signal.SIGKILL, MLFLOW_SERVER_ENABLE_JOB_EXECUTION="false") as process:
        wait_for(lambda: answers(f"http://127.0.0.1:{port}/health"), process, log)
        yield f"http://127.0.0.1:{port}"


def test_an_audit_with_hostile_names_goes_through_a_real_server(
    server: str, hostile_audit: AuditResult, make_audit: Callable[..., AuditResult], tmp_path: Path
) -> None:
    from mlflow import MlflowClient

    audit = replace(make_audit(1, 4), audit_id="plain", fleet="server fleet")
    folder = str(tmp_path / "plain")
    bundle.write_bundle(audit, folder)
    runs = log_audit(audit, folder, tracking_uri=server, experiment=audit.fleet, registry_models=True)
    assert log_audit(audit, folder, tracking_uri=server, experiment=audit.fleet, registry_models=True) == runs
    assert runs.url.startswith(f"{server}/#/experiments/") and runs.parent_run_id in runs.url
    assert answers(runs.url.partition("#")[0])

    client: Any = MlflowClient(server)
    child = client.get_run(runs.child_run_ids[0])
    assert child.info.status == "FINISHED" and child.data.metrics["great/wcr"] == audit.models[0].series[0].wcr.value
    assert {entry.path for entry in client.list_artifacts(child.info.run_id)} >= {"report.html", "per_class.parquet"}
    page = Path(client.download_artifacts(runs.parent_run_id, "report.html", str(tmp_path))).read_text()
    assert page.startswith("<!DOCTYPE html>") and "server fleet" in page

    hostile = replace(hostile_audit, models=hostile_audit.models[:1])
    where = str(tmp_path / "hostile")
    bundle.write_bundle(hostile, where)
    (late,) = sync(where, server)
    assert client.get_run(late.child_run_ids[0]).data.tags["classwise.outcome"] == hostile.models[0].outcome.value
    everything = client.search_runs([run.experiment_id for run in client.search_experiments()])
    assert len(everything) == 4 and {run.info.status for run in everything} == {"FINISHED"}


def test_a_leaderboard_is_read_from_the_server_and_from_its_database(
    server: str, postgres: str, board_audit: Callable[..., AuditResult], log_board: Callable[..., list[str]]
) -> None:
    tags = {"method": "it's", "dataset": "mnist"}
    models = {name: (tags if name == "a" else {}, {"clean": 0.9, "pgd20/linf-0.03137": 0.4}) for name in "abc"}
    runs = log_board(board_audit("board", models, fleet="board"), server, {"a": {"ge/clean": 0.1}})
    for uri in (server, postgres):
        found = read_models(uri, experiments=["board"], page=2)
        assert {model.run_id for model in found.models} == set(runs) and found.runs == 3
        (one,) = read_models(uri, filters={"method": ["it's"], "dataset": ["mnist"]}).models
        assert one.name == "a" and one.numbers["ge/clean"].value == 0.1 and one.count == 150
