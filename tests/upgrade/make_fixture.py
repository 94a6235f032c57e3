"""Writes one fixture of everything that classwise leaves behind, for later versions to read: see README.md.

    python tests/upgrade/make_fixture.py tests/upgrade/fixtures/v0.1.0 /srv/classwise

A sweep of one trial and its audit, a submitted audit of the same network, both logged to MLflow on SQLite, and a
schedule. The second argument is a folder to work in, which must be empty or absent: its name stands in what is
written, so it is one that says nothing of the machine. Nothing else of the machine gets in: host and user are replaced.
"""

from __future__ import annotations

import contextlib
import getpass
import gzip
import json
import os
import shutil
import socket
import sqlite3
import sys
from pathlib import Path

HOST = "first-version"
SWEEP = """sweep: past-training
methods: [{name: pgd, budget: {epsilon: 0.05, step: 0.05, steps: 1}}]
architectures: [{name: small_cnn, width: 6}]
datasets: [{name: digits, holdout: 0.1}]
recipe: {epochs: 10, batch: 32, lr: 0.05}
generalisation: {limit: 60}
resources: {runner: local, threads: 1}
storage: HOME/runs
"""
TEMPLATE = """fleet: past
samples: {uri: "sklearn:digits?split=test"}
measures: [clean, {name: pgd, steps: 2, epsilons: [0.1]}]
gates: [{measure: clean, metric: wcr, at_least: 0.05}]
resources: {runner: local, workers: 1}
storage: HOME/runs
"""
DROPPED = ("report.html", "figures", "predictions", "logits", "cache", "*.lock")


def main(target: Path, home: Path) -> None:
    """Make the fixture."""
    socket.gethostname = lambda: HOST
    getpass.getuser = lambda: HOST
    for name in ("USER", "LOGNAME", "USERNAME"):
        os.environ[name] = HOST
    os.environ["CLASSWISE_SCHEDULES"] = f"sqlite:///{home}/schedules.db"
    home.mkdir(parents=True)
    with contextlib.chdir(home):
        (home / "sweep.yaml").write_text(SWEEP.replace("HOME", str(home)))
        (home / "template.yaml").write_text(TEMPLATE.replace("HOME", str(home)))
        _command("train", "sweep.yaml", "--audit", "template.yaml")
        _submitted(home)
        _command("schedule", "add", "fleet.yaml", "--cron", "0 3 * * 1", "--zone", "Europe/Berlin", "--name", "weekly")
    _keep(home, target)


def _command(*arguments: str) -> None:
    from typer.testing import CliRunner

    from jobs.cli import app

    done = CliRunner().invoke(app, list(arguments))
    if done.exit_code not in (0, 1, 3):
        raise SystemExit(f"{arguments}: {done.output}")


def _submitted(home: Path) -> None:
    """A submission whose audit ran in this process, so that no other process's names get in."""
    import yaml

    from jobs.fleetfile.reading import load_fleet
    from jobs.submission import submitted
    from jobs.submission.submission import submission_of, write_fleet
    from tracking.bundle.training_bundle import read_sweep

    uri = read_sweep(str(home / "runs" / "training" / "past-training")).trials[0].uri
    fleet = yaml.safe_load(TEMPLATE.replace("HOME", str(home)))
    (home / "fleet.yaml").write_text(yaml.safe_dump({**fleet, "models": [{"name": "past", "uri": uri}]}))
    submission = submission_of(load_fleet(home / "fleet.yaml"), "fixture")
    write_fleet(submission, load_fleet(home / "fleet.yaml"))
    submitted.main(submission.folder, "0" * 8)


def _keep(home: Path, target: Path) -> None:
    """What later versions must read, without pictures and caches, databases compressed."""
    ignore = shutil.ignore_patterns(*DROPPED, "mlartifacts", "*.db")
    shutil.copytree(home / "runs", target / "runs", ignore=ignore)
    shutil.copy(home / "fleet.yaml", target)
    for database in (home / "runs" / "mlflow.db", home / "schedules.db"):
        copy = home / f"{database.name}.copy"
        with contextlib.closing(sqlite3.connect(database)) as opened, contextlib.closing(sqlite3.connect(copy)) as kept:
            opened.backup(kept)  # with what still stands in a log beside the file
            kept.execute("VACUUM")
        (target / f"{database.name}.gz").write_bytes(gzip.compress(copy.read_bytes(), mtime=0))
    sizes = {str(path.relative_to(target)): path.stat().st_size for path in target.rglob("*") if path.is_file()}
    sys.stdout.write(json.dumps({"files": len(sizes), "bytes": sum(sizes.values()), "home": str(home)}) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute(), Path(sys.argv[2]))
