"""A whole stack, started by its script, and a fleet that it may audit."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from deploy.stack import processes
from deploy.stack.layout import Layout, existing, made, unlinked
from deploy.stack.parts import variables, waves
from jobs.audit.publish import audit_and_publish
from jobs.fleetfile.reading import validate_fleet
from jobs.schedules.scheduler import new_schedule, now_utc
from jobs.schedules.store import Store
from jobs.terminal import console

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "deploy" / "local-stack.sh"


def _jobs_fixtures() -> ModuleType:
    spec = spec_from_file_location("fixtures_of_the_jobs_tests", ROOT / "tests" / "jobs" / "conftest.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


digit_weights = _jobs_fixtures().digit_weights
"""The trained networks of the jobs' tests."""


@dataclass(frozen=True)
class Stack:
    """A stack that runs, and its script."""

    layout: Layout

    def script(self, *words: str) -> subprocess.CompletedProcess[str]:
        return script(*words, "--dir", str(self.layout.folder))


def script(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the script."""
    environment = {**os.environ, "PYTHON": sys.executable}
    return subprocess.run([SCRIPT, *words], capture_output=True, text=True, check=False, env=environment, timeout=300)


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    """Two worker nodes of a core each. Not below pytest's folder: PostgreSQL's user must get through to it."""
    home = Path(tempfile.mkdtemp(prefix="cw-test-", dir="/tmp"))
    home.chmod(0o755)
    folder = home / "stack"
    try:
        made = script("up", "--dir", str(folder))
        assert made.returncode == 0, made.stderr
        layout = existing(folder)
        assert layout is not None
        yield Stack(layout)
    finally:
        script("down", "--dir", str(folder))
        shutil.rmtree(home)


@pytest.fixture
def stack_fleet(stack: Stack, digit_weights: dict[str, str]) -> dict[str, Any]:
    """Two networks where the stack's API lets callers read: accuracy, GREAT and an attack of seconds a shard."""
    models = []
    for name in ("good", "weak"):
        path = stack.layout["models"] / f"{name}.safetensors"
        shutil.copy(digit_weights[name], path)
        models.append(
            {"name": name, "uri": f"factory:services.training.architectures:small_cnn?width=8&weights={path}"}
        )
    return {
        "fleet": "digits",
        "samples": {"uri": "sklearn:digits?split=test"},
        "models": models,
        "measures": ["clean", "great", {"name": "pgd", "steps": 80, "epsilons": [0.05]}],
        "factories": ["services.training.architectures"],
        "storage": str(stack.layout["storage"]),
        "resources": {"runner": "ray", "workers": 2, "cpus": 1, "shard": 100, "batch": 100},
    }


@pytest.fixture(scope="session")
def backends(digit_weights: dict[str, str]) -> Iterator[Layout]:
    """PostgreSQL and MLflow of a stack, without Ray, with a schedule and a logged audit."""
    with running_backends(digit_weights["good"]) as layout:
        yield layout


@contextmanager
def running_backends(weights: str) -> Iterator[Layout]:
    """The same, for a test that spoils them."""
    home = Path(tempfile.mkdtemp(prefix="cw-test-", dir="/tmp"))
    home.chmod(0o755)
    layout = made(home / "stack", workers=1, cpus=1, audits=1)
    started: list[subprocess.Popen[bytes]] = []
    parts = backend_parts(layout)
    try:
        for part in parts:
            started.append(processes.start(layout, part))
            processes.wait_ready(layout, part, started[-1])
        audited(layout, weights)
        store = Store(variables(layout)["CLASSWISE_SCHEDULES"])
        fleet = validate_fleet(fleet_data(layout, weights))
        store.add(new_schedule("nightly", fleet, "30 2 * * *", zone="Europe/Berlin", now=now_utc()))
        store.beat("a-host", now_utc())
        store.close()
        yield layout
    finally:
        for part in reversed(parts):
            processes.stop(layout, part)
        for process in started:
            process.wait(30)
        unlinked(layout)
        shutil.rmtree(home)


def backend_parts(layout: Layout) -> list[processes.Part]:
    return [part for wave in waves(layout) for part in wave if part.name in ("postgres", "mlflow")]


def fleet_data(layout: Layout, weights: str, **more: Any) -> dict[str, Any]:
    """A fleet that is audited here, and logged to the stack's MLflow."""
    uri = f"factory:services.training.architectures:small_cnn?width=8&weights={weights}"
    data: dict[str, Any] = {"fleet": "digits", "models": [{"name": "good", "uri": uri}], "measures": ["clean"]}
    data |= {"samples": {"uri": "sklearn:digits?split=test"}, "storage": str(layout["storage"])}
    return {**data, "resources": {"runner": "local", "workers": 1}, **more}


def audited(layout: Layout, weights: str, **more: Any) -> str:
    """Audit it; the folder of the bundle."""
    known = variables(layout)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"):
            patch.setenv(name, known[name])
        with console.reporter(quiet=True) as reporter:
            return audit_and_publish(validate_fleet(fleet_data(layout, weights, **more)), reporter).folder
