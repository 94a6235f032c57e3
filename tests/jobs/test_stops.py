"""Signals and deadlines: a clean stop, one clear error, and a next run that goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from tests.jobs.command import run, write

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.filterwarnings("default::DeprecationWarning", "default::FutureWarning")


@pytest.mark.parametrize(
    ("stop", "runner"),
    [
        pytest.param(signal.SIGINT, "local", marks=pytest.mark.slow),
        (signal.SIGTERM, "ray"),
    ],
)
def test_a_signal_stops_cleanly_and_the_next_run_goes_on(
    fleet_file: Path, tmp_path: Path, stop: int, runner: str
) -> None:
    write(fleet_file, measures=["clean", {"name": "pgd", "steps": 100, "epsilons": [0.02]}])
    command = [sys.executable, "-m", "jobs.cli", "audit", str(fleet_file), "--json", "--runner", runner]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    logits = tmp_path / "runs" / "cache" / "logits"
    deadline = time.monotonic() + 120
    while len(list(logits.rglob("*.parquet"))) < 9 and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(stop)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    body = json.loads(out)
    assert body["error"] == "Interrupted" and "to resume" in str(body["problems"])
    assert "Traceback" not in err
    assert not list((tmp_path / "runs").rglob("bundle.json"))
    write(fleet_file, measures=["clean"])
    resumed = json.loads(run("audit", str(fleet_file), "--json").stdout)
    assert [model["forwards"] for model in resumed["models"]] == [0, 0, 0]


SWALLOWS = """
import os, signal
from torch import nn

class Swallows(nn.Module):
    def forward(self, x):
        if x.shape[0] > 8:  # a shard, not the probe of preflight
            try:
                os.kill(os.getpid(), signal.SIGINT)
                for _ in range(10_000_000):
                    pass
            except KeyboardInterrupt:
                raise RuntimeError("a C++ exception, as far as anyone can tell") from None
        return x.flatten(1)[:, :10]

def make():
    return Swallows()
"""


def test_a_stop_that_a_network_turns_into_an_error_is_still_a_stop(
    fleet_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "swallows.py").write_text(SWALLOWS)
    monkeypatch.syspath_prepend(str(tmp_path))
    kept = yaml.safe_load(fleet_file.read_text())["models"]
    models = [{"name": "swallows", "uri": "factory:swallows:make"}, *kept]
    factories = ["swallows", "services.training.*"]
    write(fleet_file, models=models, factories=factories, on_model_fault="skip", measures=["clean"])
    ran = run("audit", str(fleet_file), "--json", "--runner", "local")
    assert (ran.exit_code, json.loads(ran.stdout)["error"]) == (130, "Interrupted"), ran.output
    assert not list((tmp_path / "runs").rglob("bundle.json"))


SLEEPS = """
import time
from torch import nn

class Sleeps(nn.Module):
    def forward(self, x):
        if x.shape[0] > 8:  # a shard, not the probe of preflight
            try:
                time.sleep(300)
            except KeyboardInterrupt:
                raise RuntimeError("a C++ exception, as far as anyone can tell") from None
        return x.flatten(1)[:, :10]

def make():
    return Sleeps()
"""


def test_a_deadline_ends_a_network_that_never_answers_as_an_error_that_says_so(
    fleet_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sleeps.py").write_text(SLEEPS)
    monkeypatch.syspath_prepend(str(tmp_path))
    models = [{"name": "sleeps", "uri": "factory:sleeps:make"}]
    resources = {"runner": "local", "deadline": 5}
    factories = ["sleeps", "services.training.*"]
    write(fleet_file, models=models, factories=factories, resources=resources, measures=["clean"], gates=[])
    began = time.monotonic()
    ran = run("audit", str(fleet_file), "--json", "--runner", "local")
    body = json.loads(ran.stdout)
    assert (ran.exit_code, body["outcome"], body["error"]) == (2, "error", "DeadlinePassed"), ran.output
    assert time.monotonic() - began < 60


STOPPED = """
import sys
from jobs.terminal import console
from jobs import cli

@cli.app.command()
def stopped() -> None:
    with console.exits(json=False):
        exec("import os, signal; os.kill(os.getpid(), signal.SIGINT); [i for i in range(10**8)]")

sys.argv = ["classwise", "stopped"]
cli.main()
"""


def test_a_stop_inside_exec_exits_130_and_does_not_die_of_the_signal(tmp_path: Path) -> None:
    (tmp_path / "stopped.py").write_text(STOPPED)
    command = [sys.executable, "-m", "stopped"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=60)
    assert (done.returncode, "(Interrupted)" in done.stderr) == (130, True), done.stderr
