"""What the first version wrote is read, shown, synced, ranked, compared with and resumed by this one."""

from __future__ import annotations

import gzip
import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from jobs.cli import app

pytestmark = pytest.mark.filterwarnings("default::DeprecationWarning", "default::FutureWarning")

FIXTURES = sorted((Path(__file__).parent / "fixtures").iterdir())
HOME = "/srv/classwise"
"""Where the fixtures were made."""


@pytest.fixture(params=FIXTURES, ids=lambda path: path.name)
def home(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An old version's folder, moved here: databases unpacked, paths in files and databases turned to this place."""
    for name in ("MLFLOW_TRACKING_URI", "CLASSWISE_SCHEDULES"):
        monkeypatch.delenv(name, raising=False)
    shutil.copytree(request.param, tmp_path, dirs_exist_ok=True)
    for path in [*tmp_path.rglob("*.json"), tmp_path / "fleet.yaml"]:
        path.write_text(path.read_text().replace(HOME, str(tmp_path)))
    for packed, target in (("mlflow.db", "runs/mlflow.db"), ("schedules.db", "schedules.db")):
        (tmp_path / target).write_bytes(gzip.decompress((tmp_path / f"{packed}.gz").read_bytes()))
    with closing(sqlite3.connect(tmp_path / "runs" / "mlflow.db")) as store, store:
        for table, column in (("experiments", "artifact_location"), ("runs", "artifact_uri")):
            store.execute(f"UPDATE {table} SET {column} = replace({column}, ?, ?)", (HOME, str(tmp_path)))
    with closing(sqlite3.connect(tmp_path / "schedules.db")) as store, store:
        store.execute("UPDATE classwise_schedules SET content = replace(content, ?, ?)", (HOME, str(tmp_path)))
    return tmp_path


def run(*arguments: object, codes: tuple[int, ...] = (0,)) -> Result:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code in codes, done.output
    return done


def audits(home: Path) -> list[Path]:
    return sorted(path.parent for path in (home / "runs" / "audits" / "past").glob("*/bundle.json"))


def test_bundles_are_shown(home: Path) -> None:
    assert len(audits(home)) == 2
    for folder in audits(home):
        shown = json.loads(run("show", folder, "--json").stdout)
        assert shown["outcome"] == "pass"
        assert {series["series"]["key"] for series in shown["models"][0]["series"]} == {"clean", "pgd2/linf-0.10000"}
        assert "pass" in run("show", folder).stdout


def test_a_sweep_is_shown_and_its_trial_found_done(home: Path) -> None:
    from tracking.bundle.training_bundle import read_curves, read_sweep, read_trial

    folder = home / "runs" / "training" / "past-training"
    assert "finished" in run("show", folder).stdout
    sweep = read_sweep(str(folder))
    trial = next(folder.glob("*/trial.json")).parent
    assert read_trial(str(trial)) == sweep.trials[0]
    assert len(read_curves(str(trial))) == sweep.trials[0].epochs


def test_progress_of_a_training_is_resumed(home: Path) -> None:
    from services.training.epochs.checkpoints import load_progress

    result = load_progress(str(next((home / "runs" / "training").glob("*/*/progress.safetensors")).parent))
    assert result is not None and result.stopped == "finished" and len(result.records) == 10


def test_they_are_known_to_be_uploaded_and_are_uploaded_elsewhere(home: Path) -> None:
    first, second = audits(home)
    assert "is already at" in run("sync", first).stdout
    other = f"sqlite:///{home}/other.db"
    assert "uploaded" in run("sync", second, "--tracking-uri", other).stdout
    sweep = home / "runs" / "training" / "past-training"
    assert "uploaded" in run("sync", sweep, "--tracking-uri", other).stdout


def test_the_old_store_is_ranked_and_written_to(home: Path) -> None:
    store = f"sqlite:///{home}/runs/mlflow.db"
    done = run("leaderboard", "--tracking-uri", store, "--json")
    assert "pgd-small_cnn-digits-s0" in done.stdout


def test_a_new_audit_compares_itself_with_the_old_one_sample_by_sample(home: Path) -> None:
    fleet = yaml.safe_load((home / "fleet.yaml").read_text())
    fleet["gates"].append({"measure": "clean", "metric": "aggregate", "not_worse_than": "last", "margin": 0.01})
    (home / "fleet.yaml").write_text(yaml.safe_dump(fleet))
    body = json.loads(run("audit", home / "fleet.yaml", "--json").stdout)
    assert audits(home)[1].name.startswith(body["compared_with"])
    assert [gate["outcome"] for gate in body["models"][0]["gates"]] == ["pass", "pass"]
    assert "MLflow" in " ".join(body["look"])


def test_submissions_have_their_state(home: Path) -> None:
    name = next((home / "runs" / "submissions").iterdir()).name
    shown = json.loads(run("result", name, "--address", "local", "--storage", home / "runs", "--json").stdout)
    assert shown["outcome"] == "pass"


def test_schedules_fire_on(home: Path) -> None:
    from jobs.schedules.store import Store

    store = Store(f"sqlite:///{home}/schedules.db")
    (schedule,) = store.schedules()
    assert (schedule.name, schedule.zone, schedule.cron) == ("weekly", "Europe/Berlin", "0 3 * * 1")
    assert schedule.next_at is not None
    assert "weekly" in run("schedule", "list", "--db", f"sqlite:///{home}/schedules.db").stdout


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda path: path.name)
def test_a_fixture_is_small_and_says_nothing_of_the_machine_that_made_it(fixture: Path) -> None:
    files = [path for path in fixture.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 300_000
    for path in files:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        assert not any(word in content for word in (b"/root/", b"/home/", b"/tmp/", b"/work/")), path
