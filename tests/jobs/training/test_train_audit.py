"""Train, then audit: one real run of the command line, and everything it leaves on disk and in MLflow."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from typer.testing import CliRunner

from jobs.cli import app
from jobs.fleetfile.reading import KIND
from jobs.fleetfile.yamlfile import Locator
from jobs.terminal.progress import Quiet
from jobs.training.progress import QuietTraining
from jobs.training.sweep_plan import plan_training
from jobs.training.sweep_run import run_sweep
from jobs.training.sweepfile import validate_sweep
from jobs.training.train_audit import Template, audit_trained, check_template, load_template
from services.errors import ConfigError, SourceError
from services.loading.models.source import load_model
from services.loading.samples.source import open_samples
from services.loading.uris import parse_uri
from services.numerics.intervals.disparity import aggregate_interval
from services.records import AuditResult, ModelSpec, SampleSpec
from services.storage.shards import read_shard
from services.training.data.sets import read_set
from tracking.bundle.bundle import read_bundle
from tracking.bundle.training_bundle import read_sweep

pytestmark = [
    pytest.mark.filterwarnings("default::DeprecationWarning", "default::FutureWarning"),
    pytest.mark.filterwarnings("ignore:::sqlalchemy", "ignore:::mlflow"),
]

FLEET: dict[str, Any] = {
    "fleet": "trained",
    "samples": {"uri": "sklearn:digits?split=test"},
    "measures": [
        "clean",
        {"name": "pgd", "steps": 3, "epsilons": [0.1]},
        {"name": "pr", "radii": [0.1], "draws": 5},
        {"name": "probacc", "radii": [0.1], "rho": 0.1},
    ],
    "gates": [{"measure": "clean", "metric": "aggregate", "at_least": 0.3}],
    "resources": {"workers": 1, "shard": 300},
}


def sweep_data(storage: Path) -> dict[str, Any]:
    return {
        "sweep": "digits",
        "methods": [
            {"name": "pgd", "budget": {"epsilon": 0.1, "step": 0.05, "steps": 2}},
            {"name": "erm", "label": "steep", "recipe": {"lr": 1e18}},
        ],
        "architectures": [{"name": "small_cnn", "width": 8}],
        "datasets": [{"name": "digits", "holdout": 0.1}],
        "recipe": {"epochs": 6, "batch": 32, "lr": 0.1, "weight_decay": 0.0, "mean": [0.3], "std": [0.35]},
        "register": "net-{method}",
        "generalisation": {"limit": 200, "seed": 5},
        "storage": str(storage),
        "resources": {"runner": "local", "threads": 1},
    }


@dataclass(frozen=True)
class Ran:
    """What `classwise train --audit` printed, and where it wrote."""

    code: int
    body: dict[str, Any]
    stderr: str
    storage: Path
    files: tuple[str, str]

    @property
    def uri(self) -> str:
        return f"sqlite:///{self.storage / 'mlflow.db'}"

    def audit(self, key: str = "audit") -> AuditResult:
        result = self.body[key] if key == "audit" else self.body[key][0]
        return read_bundle(result["folder"])


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("train")
    storage = folder / "runs"
    files = str(folder / "sweep.yaml"), str(folder / "fleet.yaml")
    for path, data in zip(files, (sweep_data(storage), FLEET), strict=True):
        Path(path).write_text(yaml.safe_dump(data))
    output = CliRunner().invoke(app, ["train", files[0], "--audit", files[1], "--json"])
    assert output.stdout.startswith("{"), output.output
    return Ran(output.exit_code, json.loads(output.stdout), output.stderr, storage, files)


@pytest.fixture(scope="module")
def client(ran: Ran) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(ran.uri)


def runs(client: Any, experiment: str) -> dict[str, Any]:
    """The runs of a sweep by name; of an audit by the model, for their names begin with a verdict."""
    result = client.get_experiment_by_name(experiment)
    found = client.search_runs([result.experiment_id])
    return {run.data.params["model"] if "outputs" in run.data.params else run.info.run_name: run for run in found}


@pytest.mark.slow
def test_the_worse_of_training_and_audit_is_the_exit_code(ran: Ran) -> None:
    assert (ran.code, ran.body["outcome"], ran.body["audit"]["outcome"]) == (1, "diverged", "pass")
    states = {trial["name"]: trial["state"] for trial in ran.body["trials"]}
    assert states["steep-small_cnn-digits-s0"] == "diverged" and states["pgd-small_cnn-digits-s0"] == "finished"


def test_the_trained_networks_are_a_fleet_with_contract_threat_model_and_tags(ran: Ran) -> None:
    audit = ran.audit()
    assert [model.spec.name for model in audit.models] == ["pgd-small_cnn-digits-s0"]
    spec = audit.models[0].spec
    assert (spec.input.mean, spec.input.std) == ((0.3,), (0.35,))
    assert spec.threat_model is not None and (spec.threat_model.norm, spec.threat_model.epsilon) == ("Linf", 0.1)
    tags = dict(spec.tags)
    assert (tags["method"], tags["architecture"], tags["dataset"], tags["seed"]) == ("pgd", "small_cnn", "digits", "0")
    assert (tags["sweep"], tags["trial"]) == ("digits", spec.name)
    trial = next(trial for trial in ran.body["trials"] if trial["name"] == spec.name)
    accuracy = audit.models[0].series[0].aggregate.value
    assert accuracy is not None and abs(accuracy - trial["chosen"]["validation"]["clean"]) < 0.15


def test_generalisation_is_train_minus_test_of_the_same_measures(ran: Ran) -> None:
    test, train = ran.audit(), ran.audit("audits_on_training")
    assert (train.fleet, train.samples.count) == ("trained-train", 200)
    for index, model in enumerate(test.models):
        series = {result.series.key: result for result in model.series}
        others = {result.series.key: result for result in train.models[index].series}
        assert [gap.lens for gap in model.generalisation] == list(series)
        for gap in model.generalisation:
            mine, other = series[gap.lens].aggregate.value, others[gap.lens].aggregate.value
            assert mine is not None and other is not None and gap.gap.value == pytest.approx(other - mine)
            assert gap.gap.low is not None and gap.gap.high is not None
            assert gap.gap.low < gap.gap.value < gap.gap.high
            conditional = series[gap.lens].series.conditional
            assert (gap.test_n < 899) == conditional and (gap.train_n < 200 or not conditional)


def test_the_interval_is_made_of_both_sides_at_half_the_level(ran: Ran) -> None:
    test, train = ran.audit(), ran.audit("audits_on_training")
    gap = next(gap for gap in test.models[0].generalisation if gap.lens.startswith("pgd"))
    sides = []
    for key, audit, stratified in (("audits_on_training", train, True), ("audit", test, False)):
        folder = ran.body[key]["folder"] if key == "audit" else ran.body[key][0]["folder"]
        path = next((Path(folder) / "scores").glob(f"000_{audit.models[0].spec.name}*"))
        scores = read_shard(str(path))[gap.lens]
        sides.append(aggregate_interval(scores, bound=1.0, delta=0.025, binary=True, stratified=stratified))
    low, high = sides[0].low - sides[1].high, sides[0].high - sides[1].low  # type: ignore[operator]
    assert (gap.gap.low, gap.gap.high) == (pytest.approx(low), pytest.approx(high))
    assert gap.delta == 0.05


def test_the_training_sample_was_trained_on_and_is_stratified(ran: Ran) -> None:
    (path,) = (ran.storage / "training" / "digits" / "generalisation").glob("digits-*.npz")
    data = read_set(validate_sweep(sweep_data(ran.storage)).config.datasets[0].spec())
    assert data.held is not None
    trained, held = ({image.tobytes() for image in part.images} for part in (data.train, data.held))
    samples = open_samples(SampleSpec(f"npz:{path}?layout=NCHW&scale=1"))
    images = samples.images(0, len(samples))
    assert all(image.tobytes() in trained and image.tobytes() not in held for image in images)
    counts = np.bincount(samples.labels)
    assert counts.sum() == 200 and counts.max() - counts.min() <= 2


def test_generalisation_stands_in_the_files_of_the_sweep_and_in_the_table(ran: Ran) -> None:
    sweep = read_sweep(ran.body["folder"])
    gaps = {trial.name: trial.generalisation for trial in sweep.trials}
    audited = {model.spec.name: model.generalisation for model in ran.audit().models}
    assert gaps == {"steep-small_cnn-digits-s0": (), **audited}
    own = json.loads((Path(sweep.trials[0].weights).parent / "trial.json").read_text())
    assert own["generalisation"][0]["lens"] == "clean"
    shown = CliRunner().invoke(app, ["show", ran.body["folder"]])
    assert shown.exit_code == 1 and "generalisation error: train minus test" in shown.stdout


def test_mlflow_has_the_generalisation_error_on_the_models_run_of_the_test_audit(ran: Ran, client: Any) -> None:
    run = runs(client, "trained")["pgd-small_cnn-digits-s0"]
    for gap in ran.audit().models[0].generalisation:
        assert run.data.metrics[f"ge/{gap.lens}"] == pytest.approx(gap.gap.value)
        assert run.data.metrics[f"ge/{gap.lens}_low"] == pytest.approx(gap.gap.low)
        assert run.data.metrics[f"ge/{gap.lens}_high"] == pytest.approx(gap.gap.high)
    trial = next(trial for trial in read_sweep(ran.body["folder"]).trials if trial.name == "pgd-small_cnn-digits-s0")
    training = (trial.seconds - trial.judging) / trial.epochs
    assert run.data.metrics["train/seconds_per_epoch"] == pytest.approx(training) and 0 < trial.judging < trial.seconds
    other = runs(client, "trained-train")["pgd-small_cnn-digits-s0"]
    assert other.data.tags["classwise.tag.split"] == "train" and "classwise.tag.split" not in run.data.tags


def test_every_trial_is_a_run_with_its_curves(ran: Ran, client: Any) -> None:
    result = runs(client, "digits")
    assert {name: run.info.status for name, run in result.items()} == {
        "sweep digits": "FINISHED",
        "pgd-small_cnn-digits-s0": "FINISHED",
        "steep-small_cnn-digits-s0": "FAILED",
    }
    run, parent = result["pgd-small_cnn-digits-s0"], result["sweep digits"]
    assert run.data.tags["mlflow.parentRunId"] == parent.info.run_id
    assert (run.data.tags["classwise.role"], run.data.tags["classwise.tag.method"]) == ("trial", "pgd")
    params = run.data.params
    assert (params["method.budget.steps"], params["recipe.lr"], params["architecture.width"]) == ("2", "0.1", "8")
    assert params["dataset.digest"] == ran.body["trials"][0]["data"]["digest"]
    for key in ("train/loss", "train/robust", "validation/clean", "validation/worst_class", "rate", "seconds"):
        assert [point.step for point in client.get_metric_history(run.info.run_id, key)] == [0, 1, 2, 3, 4, 5], key
    assert sum(key.startswith("validation/class/") for key in run.data.metrics) == 10
    assert parent.data.metrics["trials/diverged"] == 1
    steep = result["steep-small_cnn-digits-s0"]
    assert steep.data.tags["classwise.state"] == "diverged" and not steep.outputs.model_outputs


def test_the_logged_network_gives_the_same_logits_by_its_mlflow_uri(
    ran: Ran, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mlflow.tracking._tracking_service.utils._tracking_uri", ran.uri)
    trial = ran.audit().models[0].spec
    run = runs(client, "digits")[trial.name]
    (model,) = run.outputs.model_outputs
    logged = load_model(ModelSpec("m", f"mlflow:models:/{model.model_id}"))
    direct = load_model(trial)
    assert logged.network is not None and direct.network is not None and "fixed_batch" not in logged.facts
    for count in (1, 2, 7):
        images = torch.from_numpy(open_samples(SampleSpec("sklearn:digits?split=test")).images(0, count))
        assert torch.equal(logged.network(images), direct.network(images))
    info = client.get_logged_model(model.model_id)
    assert info.status == "READY" and info.name == "model"
    folder = Path(client.get_model_version("net-pgd", "1").source.removeprefix("file://"))
    assert model.model_id in str(folder)
    described = yaml.safe_load((Path(info.artifact_location.removeprefix("file://")) / "MLmodel").read_text())
    assert json.loads(described["signature"]["inputs"])[0]["tensor-spec"]["shape"] == [-1, 1, 8, 8]
    requirements = (Path(info.artifact_location.removeprefix("file://")) / "requirements.txt").read_text()
    assert all("<" in line and ">=" in line for line in requirements.split())


def test_the_same_command_again_trains_and_logs_nothing_twice(ran: Ran, client: Any) -> None:
    before = runs(client, "digits")
    again = CliRunner().invoke(app, ["train", ran.files[0], "--json"])
    body = json.loads(again.stdout)
    assert again.exit_code == 1 and [trial["state"] for trial in body["trials"]] == ["finished", "diverged"]
    assert body["trials"][0]["generalisation"] == ran.body["trials"][0]["generalisation"]
    after = runs(client, "digits")
    assert {name: run.info.run_id for name, run in after.items()} == {
        name: run.info.run_id for name, run in before.items()
    }
    run = after["pgd-small_cnn-digits-s0"]
    assert len(client.get_metric_history(run.info.run_id, "train/loss")) == 6
    assert len(client.get_metric_history(after["sweep digits"].info.run_id, "trials/all")) == 1
    assert len(client.search_model_versions("name = 'net-pgd'")) == 1
    assert CliRunner().invoke(app, ["sync", ran.body["folder"]]).stdout.rstrip().endswith("mlflow.db")


def test_an_unreachable_server_costs_no_training_and_sync_tells_later(ran: Ran, client: Any, tmp_path: Path) -> None:
    data = {
        **sweep_data(tmp_path / "runs"),
        "sweep": "afterwards",
        "methods": ["erm"],
        "register": None,
        "tracking": {"uri": "http://127.0.0.1:9"},
    }
    path = tmp_path / "sweep.yaml"
    path.write_text(yaml.safe_dump({**data, "recipe": {"epochs": 1}}))
    output = CliRunner().invoke(app, ["train", str(path)])
    assert output.exit_code == 0, output.output
    assert "Upload to MLflow failed" in output.stderr
    later = next(line.split()[-1] for line in output.stdout.splitlines() if line.startswith("later"))
    done = CliRunner().invoke(app, ["sync", later, "--tracking-uri", ran.uri])
    assert done.exit_code == 0 and done.stdout.startswith("uploaded"), done.output
    assert "is already at" in CliRunner().invoke(app, ["sync", later, "--tracking-uri", ran.uri]).stdout
    assert set(runs(client, "afterwards")) == {"sweep afterwards", "erm-small_cnn-digits-s0"}


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"measures": ["claen"]}, ConfigError, "found 'claen'; did you mean 'clean'?"),
        ({"samples": {"uri": "npz:none.npz"}}, SourceError, "none.npz"),
        ({"samples": {"uri": "npz:{colour}?scale=1"}}, ConfigError, "expected images (1, 8, 8) as trained on"),
        ({"samples": {"uri": "npz:{colour}?scale=1"}}, ConfigError, "expected 10 classes as trained on, found 2"),
        ({"models": [{"name": "mine", "uri": "export:none.pt2"}]}, SourceError, "none.pt2"),
        ({"models": [{"name": "pgd-small_cnn-digits-s0", "uri": "export:n.pt2"}]}, ConfigError, "must be unique"),
        ({"models": 3}, ConfigError, "models"),
        ({"factories": ["mine.*"]}, ConfigError, "expected a module that matches mine.*, found services.training"),
    ],
)
def test_a_template_that_cannot_be_audited_is_told_before_training(
    tmp_path: Path, changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    colour = tmp_path / "colour.npz"
    np.savez(colour, images=np.zeros((4, 9, 9, 3), np.float32), labels=np.arange(4) % 2)
    text = yaml.safe_dump({**FLEET, **changes}).replace("{colour}", str(colour))
    path = tmp_path / "fleet.yaml"
    path.write_text(text)
    sweep = validate_sweep({**sweep_data(tmp_path / "runs"), "factories": []})
    with pytest.raises(error) as raised:
        check_template(load_template(path), sweep, plan_training(sweep))
    assert message in str(raised.value) and not (tmp_path / "runs").exists()


def test_a_sweep_on_a_storage_of_objects_is_audited_as_one_in_a_folder(tmp_path: Path) -> None:
    results = []
    for storage in ("memory://far/runs", str(tmp_path)):
        data = {**sweep_data(Path("x")), "storage": storage, "tracking": {"enabled": False}}
        data |= {"recipe": {**data["recipe"], "epochs": 1}, "generalisation": {"limit": 100}}
        data["resources"] = {"runner": "local", "threads": 1}
        sweep, template = validate_sweep(data), Template({**FLEET, "measures": ["clean"]}, Locator("fleet", KIND))
        trained = run_sweep(sweep, QuietTraining(), check=partial(check_template, template, sweep))
        done = audit_trained(template, sweep, trained, Quiet())
        assert done is not None
        (model,), first = done.audit.result.models, done.trained.result.trials[0]
        assert parse_uri(model.spec.uri).query["weights"].startswith(storage)
        assert read_sweep(trained.folder).trials[0] == first
        results.append((model.series[0].aggregate, first.generalisation))
    assert results[0] == results[1] and results[0][1]


def test_a_sweep_without_any_network_is_not_audited(tmp_path: Path) -> None:
    data = {**sweep_data(tmp_path), "methods": sweep_data(tmp_path)["methods"][1:], "tracking": {"enabled": False}}
    sweep = validate_sweep(data)
    trained = run_sweep(sweep, QuietTraining())
    assert audit_trained(Template(FLEET, Locator("fleet", KIND)), sweep, trained, Quiet()) is None
