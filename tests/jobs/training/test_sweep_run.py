"""Training jobs in this process, on real digits: what a sweep leaves, how it goes on, what it refuses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from jobs.cli import app
from jobs.training import sweep_plan, sweep_run
from jobs.training.mlflow_trials import network_of
from jobs.training.progress import QuietTraining
from jobs.training.sweep_run import Trained, run_sweep
from jobs.training.trial_result import trial_result
from services.errors import ClasswiseError, ConfigError, Interrupted, StorageError
from services.loading.models.source import load_model
from services.records import ModelSpec
from services.records.trials import EpochPoint, TrialReport, TrialResult
from services.training.architectures.build import build
from services.training.data.sets import read_set
from services.training.epochs.checkpoints import load_weights
from services.training.epochs.loop import train as train_bare
from services.training.methods import method_from
from services.training.trial import TrialWorker
from tracking.bundle.training_bundle import read_curves, read_sweep, read_trial

from .helpers import BUDGET, sweep

pytestmark = pytest.mark.filterwarnings("default::DeprecationWarning", "default::FutureWarning")


class Heard(QuietTraining):
    """Keeps what it hears, and may stop the sweep after an epoch of a trial."""

    def __init__(self, stop: tuple[str, int] | None = None) -> None:
        self.begins: list[tuple[str, int]] = []
        self.epochs: list[tuple[str, int]] = []
        self.notes: list[str] = []
        self._stop = stop

    def begun(self, name: str, done: int) -> None:
        self.begins.append((name, done))

    def epoch(self, name: str, point: EpochPoint) -> None:
        self.epochs.append((name, point.epoch))
        if (name, point.epoch) == self._stop:
            raise KeyboardInterrupt

    def note(self, text: str) -> None:
        self.notes.append(text)


def by_name(trained: Trained) -> dict[str, TrialResult]:
    return {trial.name: trial for trial in trained.result.trials}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A sweep that ran through."""
    return run_sweep(sweep(tmp_path_factory.mktemp("runs")), QuietTraining())


def test_every_trial_leaves_weights_progress_curves_and_result(done: Trained) -> None:
    assert (done.result.outcome, done.result.exit_code) == ("finished", 0)
    for trial, item in zip(done.result.trials, done.plan.trials, strict=True):
        folder = Path(item.task.folder)
        names = {path.name for path in folder.iterdir()}
        assert names == {"model.safetensors", "progress.safetensors", "curves.parquet", "trial.json"}
        assert read_trial(str(folder)) == trial
        points = read_curves(str(folder))
        assert [point.epoch for point in points] == [0, 1, 2]
        assert trial.chosen == points[-1] and trial.selected == 2 and trial.epochs == 3
        held = points[-1].validation
        assert held is not None and held.per_class is not None and len(held.per_class) == 10
        assert held.worst_class == min(held.per_class)  # type: ignore[type-var]
        assert points[0].loss > points[-1].loss
    assert read_sweep(done.folder) == done.result


def test_the_weights_are_those_of_the_loop_itself(done: Trained) -> None:
    data = done.plan.sets["digits"]
    network = build("small_cnn", seed=0, width=4)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    assert data.held is not None
    train_bare(
        network,
        data.train.images,
        data.train.labels,
        method=method_from({"name": "pgd", "budget": BUDGET}),
        validation=(data.held.images, data.held.labels),
        epochs=3,
        batch=32,
        lr=0.1,
        weight_decay=0.0,
    )
    torch.set_num_threads(threads)
    kept = load_weights(by_name(done)["pgd-small_cnn-digits-s0"].weights)
    assert all(torch.equal(kept[name], value) for name, value in network.state_dict().items())


def test_the_factory_uri_opens_the_trained_network(done: Trained) -> None:
    trial = done.result.trials[1]
    assert trial.uri.startswith("factory:services.training.architectures.small_cnn:small_cnn?")
    images = torch.from_numpy(done.plan.sets["digits"].train.images[:5])
    expected = build("small_cnn", seed=1, width=4)
    expected.load_state_dict(load_weights(trial.weights))
    opened = load_model(ModelSpec("m", trial.uri)).network
    assert opened is not None
    assert torch.equal(opened(images), expected.eval()(images)) and torch.equal(
        network_of(trial)(images), opened(images)
    )
    assert trial.threat_model is not None and trial.threat_model.epsilon == 0.1
    assert done.result.trials[0].threat_model is None
    assert trial.tags["sweep"] == "small" and trial.tags["method"] == "pgd"


def test_what_is_trained_is_not_trained_again_and_what_changed_is(tmp_path: Path) -> None:
    first = run_sweep(sweep(tmp_path), QuietTraining())
    reporter = Heard()
    again = run_sweep(sweep(tmp_path), reporter)
    assert reporter.begins == [] and again.result.trials == first.result.trials
    more = Heard()
    changed = run_sweep(sweep(tmp_path, seeds=[0, 1], methods=["erm"]), more)
    assert more.begins == [("erm-small_cnn-digits-s1", 0)]
    keys = {trial.key for trial in changed.result.trials}
    recipe = {"epochs": 3, "batch": 32, "lr": 0.2}
    plans = [
        sweep_plan.plan_training(sweep(tmp_path, methods=["erm"], **change))
        for change in (
            {"recipe": recipe},
            {"datasets": [{"name": "digits", "limit": 200, "holdout": 0.2, "seed": 3}]},
            {"datasets": [{"name": "digits", "limit": 300, "holdout": 0.2, "seed": 4}]},
            {"architectures": [{"name": "small_cnn", "width": 5}]},
        )
    ]
    assert all(item.task.key not in keys for plan in plans for item in plan.trials)
    same = sweep_plan.plan_training(sweep(tmp_path, methods=["erm"], resources={"runner": "ray", "threads": 2}))
    assert same.trials[0].task.key in keys


def test_a_stopped_sweep_goes_on_from_its_epoch_to_the_same_weights(tmp_path: Path, done: Trained) -> None:
    with pytest.raises(Interrupted, match="it goes on from the last step of each trial"):
        run_sweep(sweep(tmp_path), Heard(stop=("pgd-small_cnn-digits-s0", 1)))
    reporter = Heard()
    resumed = run_sweep(sweep(tmp_path), reporter)
    assert reporter.begins == [("pgd-small_cnn-digits-s0", 2)] and reporter.epochs == [("pgd-small_cnn-digits-s0", 2)]
    for name, trial in by_name(resumed).items():
        other = by_name(done)[name]
        first, two = load_weights(trial.weights), load_weights(other.weights)
        assert trial.key == other.key and all(torch.equal(first[key], two[key]) for key in first)
        assert [replace(point, seconds=0, judging=0) for point in read_curves(str(Path(trial.weights).parent))] == [
            replace(point, seconds=0, judging=0) for point in read_curves(str(Path(other.weights).parent))
        ]


def test_a_diverged_trial_is_told_and_the_others_go_on(tmp_path: Path) -> None:
    steep = {"name": "erm", "label": "steep", "recipe": {"lr": 1e18, "warmup": 0, "schedule": "constant"}}
    trained = run_sweep(sweep(tmp_path, methods=[steep, "erm"]), QuietTraining())
    trials = by_name(trained)
    assert (trained.result.outcome, trained.result.exit_code) == ("diverged", 1)
    assert trials["erm-small_cnn-digits-s0"].state == "finished"
    steep_one = trials["steep-small_cnn-digits-s0"]
    assert (steep_one.state, steep_one.weights, steep_one.uri) == ("diverged", "", "")
    assert "not finite in epoch 0" in steep_one.reason
    reporter = Heard()
    assert run_sweep(sweep(tmp_path, methods=[steep, "erm"]), reporter).result.outcome == "diverged"
    assert reporter.begins == []


def test_a_trial_that_diverged_later_keeps_its_last_good_weights(done: Trained) -> None:
    points = read_curves(done.plan.trials[0].task.folder)[:2]
    report = TrialReport("diverged", "loss or weights are not finite in epoch 2", 1, 0, points)
    result = trial_result(done.plan.trials[0], report, "small", done.plan.sets["digits"].facts)
    assert (result.usable, result.epochs, result.selected, result.chosen) == (False, 2, 1, points[1])
    assert Path(result.weights).is_file() and result.weights in result.uri


def test_a_trial_that_raises_costs_itself_only_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = sweep_plan.plan_training(sweep(tmp_path))
    folder = Path(plan.trials[0].task.folder)
    folder.mkdir(parents=True)
    (folder / "progress.safetensors").write_bytes(b"half a file")
    trained = run_sweep(sweep(tmp_path), QuietTraining())
    first, second = trained.result.trials
    assert (first.state, second.state, trained.result.exit_code) == ("failed", "finished", 2)
    assert "expected a complete safetensors file" in first.reason
    (folder / "progress.safetensors").unlink()
    assert run_sweep(sweep(tmp_path), QuietTraining()).result.outcome == "finished"


def test_memory_that_runs_out_is_told_with_advice(tmp_path: Path, done: Trained) -> None:
    task = replace(done.plan.trials[0].task, folder=str(tmp_path))
    huge = replace(task, options=(("channels", 1), ("classes", 10), ("size", 8), ("width", 200_000)))
    with pytest.raises(ClasswiseError, match=r"lower recipe\.batch|can't allocate|not enough memory"):
        list(TrialWorker("cpu", 1).run(huge, done.plan.sets["digits"]))


@pytest.mark.parametrize("left", [None, 0, 7, -1], ids=["gone", "empty", "no header", "cut"])
def test_weights_that_are_not_whole_are_no_finished_trial(left: int | None, tmp_path: Path) -> None:
    first = run_sweep(sweep(tmp_path, methods=["erm"]), QuietTraining()).result.trials[0]
    weights = Path(first.weights)
    kept = weights.read_bytes()
    weights.unlink()
    if left is not None:
        weights.write_bytes(kept[:left])
    again = run_sweep(sweep(tmp_path, methods=["erm"]), QuietTraining()).result.trials[0]
    assert again.state == "failed" and "remove progress.safetensors beside it" in again.reason
    (weights.parent / "progress.safetensors").unlink()
    last = run_sweep(sweep(tmp_path, methods=["erm"]), QuietTraining()).result.trials[0]
    assert last.state == "finished" and weights.read_bytes() == kept


@pytest.mark.parametrize("name", ["model.safetensors", "trial.json"])
def test_a_trial_that_cannot_be_read_just_now_is_not_trained_again(name: str, tmp_path: Path) -> None:
    first = run_sweep(sweep(tmp_path, methods=["erm"]), QuietTraining()).result.trials[0]
    file = Path(first.weights).parent / name
    kept = file.rename(tmp_path / "kept")
    file.symlink_to(file)  # root reads whatever the permissions; nobody opens a link to itself
    reporter = Heard()
    with pytest.raises(StorageError, match="a readable file"):
        run_sweep(sweep(tmp_path, methods=["erm"]), reporter)
    kept.replace(file)
    assert run_sweep(sweep(tmp_path, methods=["erm"]), reporter).result.outcome == "finished" and not reporter.epochs


def test_storage_that_was_moved_tells_where_its_networks_are_now(tmp_path: Path) -> None:
    run_sweep(sweep(tmp_path / "old", methods=["erm"]), QuietTraining())
    (tmp_path / "old").rename(tmp_path / "new")
    reporter = Heard()
    moved = run_sweep(sweep(tmp_path / "new", methods=["erm"]), reporter).result.trials[0]
    assert Path(moved.weights).is_file() and str(tmp_path / "new") in str(moved.uri) and not reporter.epochs


def test_curves_that_are_gone_cost_the_telling_and_nothing_else(tmp_path: Path) -> None:
    tracking = {"uri": f"sqlite:///{tmp_path}/mlflow.db", "log_models": False}
    first = run_sweep(sweep(tmp_path, methods=["erm"]), QuietTraining()).result.trials[0]
    (Path(first.weights).parent / "curves.parquet").unlink()
    reporter = Heard()
    again = run_sweep(sweep(tmp_path, methods=["erm"], tracking=tracking), reporter)
    assert again.result.trials[0].state == "finished" and "curves.parquet" in reporter.notes[0]


def test_a_database_that_is_a_folder_is_told_at_once(tmp_path: Path) -> None:
    began, reporter = time.monotonic(), Heard()
    tracking = {"uri": f"sqlite:///{tmp_path}", "log_models": False}
    run_sweep(sweep(tmp_path / "runs", methods=["erm"], tracking=tracking), reporter)
    assert "is a folder, not a database" in reporter.notes[0] and time.monotonic() - began < 60


def test_show_says_what_it_can_show(tmp_path: Path) -> None:
    output = CliRunner().invoke(app, ["show", str(tmp_path / "none")])
    assert output.exit_code == 2 and "name STORAGE/audits/FLEET/AUDIT or STORAGE/training/SWEEP" in output.output


def test_two_commands_do_not_train_one_sweep(tmp_path: Path) -> None:
    with (
        sweep_run.alone(str(tmp_path / "training" / "small")),
        pytest.raises(StorageError, match="one command at a time"),
    ):
        run_sweep(sweep(tmp_path), QuietTraining())


def test_the_held_out_samples_are_the_data_sets_own_whatever_the_seed(tmp_path: Path) -> None:
    spec = sweep(tmp_path).config.datasets[0].spec()
    first, two = read_set(spec), read_set(spec)
    assert first.facts == two.facts and first.held is not None
    assert sum(first.facts.train) + sum(first.facts.held) == 300
    pixels = {image.tobytes() for image in first.train.images}
    assert sum(image.tobytes() in pixels for image in first.held.images) == 0


def test_validate_and_show_on_the_command_line(tmp_path: Path, done: Trained) -> None:
    path = tmp_path / "sweep.yaml"
    body = sweep(tmp_path).config.model_dump(mode="json", by_alias=True, exclude_unset=True)
    path.write_text(json.dumps(body))
    valid = CliRunner().invoke(app, ["validate", str(path)])
    assert valid.exit_code == 0, valid.output
    assert "valid: sweep small, 2 trials on digits (240 samples): erm-small_cnn-digits-s0, pgd" in valid.stdout
    assert not (tmp_path / "training").exists()
    shown = CliRunner().invoke(app, ["show", done.folder])
    assert shown.exit_code == 0 and "small: finished" in shown.stdout and "factory:" in shown.stdout
    ran = CliRunner().invoke(app, ["train", str(path), "--quiet"])
    assert ran.exit_code == 0 and "pgd-small_cnn-digits-s0  factory:" in ran.stdout
    wrong = CliRunner().invoke(app, ["train", str(path), "--runner", "rey"])
    assert wrong.exit_code == 2 and "resources.runner" in wrong.stderr
    assert ConfigError.__name__ in wrong.stderr


@pytest.mark.slow
def test_a_signal_stops_cleanly_and_the_next_run_goes_on(tmp_path: Path) -> None:
    long = sweep(tmp_path, methods=[{"name": "pgd", "budget": {**BUDGET, "steps": 20}}], recipe={"epochs": 40})
    path = tmp_path / "sweep.yaml"
    path.write_text(json.dumps(long.config.model_dump(mode="json", by_alias=True, exclude_unset=True)))
    command = [sys.executable, "-m", "jobs.cli", "train", str(path), "--json"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    deadline = time.monotonic() + 60
    while not list(tmp_path.rglob("progress.safetensors")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert json.loads(out)["error"] == "Interrupted" and "Traceback" not in err
    assert not list(tmp_path.rglob("trial.json"))
    reporter = Heard(stop=("pgd-small_cnn-digits-s0", 39))
    with pytest.raises(Interrupted):
        run_sweep(long, reporter)
    assert reporter.begins[0][1] >= 1 and reporter.epochs[0][1] == reporter.begins[0][1]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tracking store that tests share, each in an experiment of its own."""
    return f"sqlite:///{tmp_path_factory.mktemp('store') / 'm.db'}"


def trial_run(store: str, experiment: str) -> Any:
    """The only trial of an experiment."""
    from mlflow import MlflowClient

    client = MlflowClient(store)
    result = client.get_experiment_by_name(experiment)
    (run,) = client.search_runs([result.experiment_id], "tags.`classwise.role` = 'trial'")
    return run


def test_remote_storage_holds_all_that_local_storage_does(store: str) -> None:
    far = sweep("memory://far/runs", methods=["erm"], tracking={"uri": store, "experiment": "far"})
    trained = run_sweep(far, Heard())
    (trial,) = trained.result.trials
    assert trial.weights.startswith("memory://far/runs/training/small/erm-small_cnn-digits-s0-")
    reporter = Heard()
    again = run_sweep(far, reporter)
    assert reporter.begins == [] and reporter.notes == [] and again.result.trials == trained.result.trials
    run = trial_run(store, "far")
    assert run.outputs.model_outputs and "classwise.no_model" not in run.data.tags
    begin, source = load_weights(trial.weights), f"mlflow:models:/{run.outputs.model_outputs[0].model_id}"
    networks = [{"name": "small_cnn", "width": 4, "init": source}]
    still = {"epochs": 1, "lr": 1e-12, "weight_decay": 0.0}
    tracking = {"uri": store, "enabled": False}
    on = sweep("memory://far/runs", methods=["erm"], architectures=networks, recipe=still, tracking=tracking)
    (tuned,) = run_sweep(on, Heard()).result.trials
    ends = load_weights(tuned.weights)
    assert all(torch.allclose(ends[name], begin[name], atol=1e-6) for name in begin), "it began where the model stood"


def test_a_network_that_cannot_be_logged_costs_nothing_else(store: str, done: Trained) -> None:
    from tracking.mlflow.training import TrainingLog

    def broken(result: TrialResult) -> torch.nn.Module:
        raise RuntimeError("data-dependent control flow")

    trial, folder = done.result.trials[0], done.plan.trials[0].task.folder
    with TrainingLog(store, "untraceable", "small", network=broken) as log:
        log.trial(trial, read_curves(folder), folder)
        log.finish(done.result, done.folder)
    run = trial_run(store, "untraceable")
    assert run.data.tags["classwise.no_model"] == "RuntimeError: data-dependent control flow"
    assert (run.info.status, run.data.tags["classwise.complete"]) == ("FINISHED", "true")
