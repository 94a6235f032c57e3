"""docs/backup.md is a drill: its commands back up and restore a real service that loses everything in between."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests

from deploy.stack import processes
from deploy.stack.layout import Layout
from deploy.stack.parts import variables
from jobs.fleetfile.reading import validate_fleet
from jobs.schedules.schedule import FiringState
from jobs.schedules.scheduler import now_utc
from jobs.schedules.store import Store
from jobs.submission.client import AuditClient
from jobs.submission.local_jobs import LocalJobs
from services.records import Outcome
from tests.deploy.conftest import ROOT, audited, backend_parts, fleet_data, running_backends
from tests.deploy.started import STARTS, TOKEN, serving
from tests.ports import free_port

pytestmark = [
    pytest.mark.filterwarnings("default::DeprecationWarning", "default::FutureWarning"),
    pytest.mark.skipif(shutil.which("pg_dump") is None, reason="PostgreSQL's clients are not installed"),
]

BLOCKS = re.findall(r"^```sh\n(.*?)^```", (ROOT / "docs" / "backup.md").read_text(), re.MULTILINE | re.DOTALL)
DUMP, COPY, RESTORE, SYNC = BLOCKS


def run(block: str, environment: dict[str, str]) -> str:
    words = ["bash", "-euo", "pipefail", "-c", block]
    process = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert process.returncode == 0, block + process.stdout + process.stderr
    return process.stdout


@pytest.fixture
def service(digit_weights: dict[str, str]) -> Iterator[Layout]:
    with running_backends(digit_weights["good"]) as layout:
        yield layout


@pytest.fixture
def environment(service: Layout, tmp_path: Path) -> dict[str, str]:
    """What the page says is set."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "classwise").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m jobs.cli "$@"\n')
    (programs / "classwise").chmod(0o755)
    backup = tmp_path / "backup"
    backup.mkdir()
    own = {
        f"{name}_DB": service.database(database, role).replace("+psycopg", "")
        for name, database, role in (
            ("SCHEDULES", "classwise", "schedules"),
            ("MLFLOW", "mlflow", "mlflow"),
            ("MLFLOW_AUTH", "mlflow_auth", "mlflow"),
        )
    }
    folders = {"STORAGE": service["storage"], "ARTIFACTS": service["mlflow"] / "artifacts", "BACKUP": backup}
    kept = {"PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}
    known = {name: value for name, value in variables(service).items() if name.startswith(("MLFLOW_", "CLASSWISE_"))}
    return {**kept, **known, **own, **{name: str(path) for name, path in folders.items()}}


@pytest.mark.slow
def test_the_commands_of_the_page_bring_everything_back(
    service: Layout, environment: dict[str, str], digit_weights: dict[str, str], tmp_path: Path
) -> None:
    name = _submitted(service, digit_weights["good"])
    with _api(service, tmp_path / "before") as ask:
        before = {path: ask(path) for path in _paths(name)}
    run(DUMP, environment)
    time.sleep(1.1)
    late = audited(service, digit_weights["good"], seed=7)  # between the two halves
    run(COPY, environment)

    _lose(service, environment)
    run(RESTORE, environment)
    _started(service, "mlflow")
    assert run(SYNC, environment).count("uploaded") == 1  # the one that came between

    with _api(service, tmp_path / "after") as ask:
        after = {path: ask(path) for path in _paths(name)}
        latest = ask("/v1/fleets/digits/audits")["audits"]
    for path in _paths(name):
        assert after[path] == before[path], path
    assert len(latest) == 3 and Path(late).name in [each["id"] for each in latest]
    client = AuditClient(LocalJobs(str(service["storage"])), storage=str(service["storage"]))
    again = client.submit(validate_fleet(fleet_data(service, digit_weights["good"])), key="before")
    assert (again.id, again.outcome) == (name, Outcome.PASS)  # and is not audited again
    runs = requests.post(
        f"{service.url('mlflow')}/api/2.0/mlflow/runs/search",
        json={"experiment_ids": ["1"], "max_results": 100},
        auth=("classwise", service.secret("mlflow-classwise.password")),
        timeout=60,
    ).json()["runs"]
    assert len(runs) == 6 and {each["info"]["status"] for each in runs} == {"FINISHED"}


def _submitted(service: Layout, weights: str) -> str:
    """An audit that was submitted, and a firing that names its bundle."""
    known = variables(service)
    environment = {key: known[key] for key in known if key.startswith("MLFLOW_")}
    client = AuditClient(LocalJobs(str(service["storage"])), storage=str(service["storage"]), environment=environment)
    status = client.submit(validate_fleet(fleet_data(service, weights)), key="before")
    status = client.wait(status.id, timeout=120, poll=0.2)
    assert status.outcome is Outcome.PASS, status
    store = Store(variables(service)["CLASSWISE_SCHEDULES"])
    store.fire(store.schedule("nightly"), now_utc())
    (firing,) = store.firings()
    assert store.start(firing, status.id)
    (firing,) = store.firings(FiringState.RUNNING)
    assert store.end(firing, FiringState.DONE, now_utc(), outcome=status.outcome, bundle=status.bundle)
    store.close()
    return status.id


def _paths(name: str) -> tuple[str, ...]:
    return ("/v1/schedules", f"/v1/audits/{name}", f"/v1/audits/{name}/result", "/v1/failures")


def _lose(service: Layout, environment: dict[str, str]) -> None:
    """Databases, artifacts and storage; MLflow is stopped, PostgreSQL runs."""
    mlflow = next(part for part in backend_parts(service) if part.name == "mlflow")
    assert processes.stop(service, mlflow)
    for name in ("SCHEDULES_DB", "MLFLOW_DB", "MLFLOW_AUTH_DB"):
        emptied = "DROP SCHEMA public CASCADE; CREATE SCHEMA public"
        words = ["psql", "--quiet", "--set=ON_ERROR_STOP=1", "--command", emptied, environment[name]]
        subprocess.run(words, check=True, capture_output=True)
    for name in ("STORAGE", "ARTIFACTS"):
        shutil.rmtree(environment[name])


def _started(service: Layout, name: str) -> None:
    part = next(part for part in backend_parts(service) if part.name == name)
    process = processes.start(service, part)
    processes.wait_ready(service, part, process)
    _PROCESSES.append(process)


_PROCESSES: list[subprocess.Popen[bytes]] = []
"""Kept until the interpreter ends: the fixture stops them by their records."""


@contextmanager
def _api(service: Layout, home: Path) -> Iterator[Any]:
    """A function that asks the API of the stack, while it runs."""
    home.mkdir()
    port = free_port()
    start = STARTS["stack"](service, home, port)
    with serving(start, home, port) as address:

        def ask(path: str) -> Any:
            headers = {"Authorization": f"Bearer {TOKEN}"}
            answer = requests.get(f"http://{address}{path}", headers=headers, timeout=120)
            assert answer.status_code == 200, answer.text
            return answer.json()

        yield ask
