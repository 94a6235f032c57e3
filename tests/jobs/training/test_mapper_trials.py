"""Mappers as trials, in this process on real digits: what they leave, how they go on, what they are refused for."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from jobs.cli import app
from jobs.training.progress import QuietTraining
from jobs.training.sweep_plan import plan_training
from jobs.training.sweep_run import Trained, run_sweep
from jobs.training.sweepfile import Sweep, validate_sweep
from services.errors import ClasswiseError, ConfigError, Interrupted, PreflightError
from services.loading.mappers import open_mapper
from services.loading.samples.source import open_samples
from services.records import SampleSpec
from services.records.trials import EpochPoint, MapperFacts, TrialResult
from services.training.data.images import Labelled
from services.training.data.sets import TrainingSet
from services.training.epochs.checkpoints import load_weights
from services.training.mapper_recipe import MapperRecipe
from services.training.mappers.kinds import attribute_problems, build, fitted, measure
from services.training.mappers.train import train_mapper
from services.training.mappers.trial import probe_mapper
from tracking.bundle.training_bundle import read_curves, read_sweep, read_trial

pytestmark = [
    pytest.mark.filterwarnings("default::DeprecationWarning", "default::FutureWarning"),
    pytest.mark.filterwarnings("ignore:::sqlalchemy", "ignore:::mlflow"),
]

VAE: dict[str, Any] = {"kind": "vae", "latents": 4, "width": 4, "factors": ["slant", "brightness"]}
GAN: dict[str, Any] = {
    "kind": "conditional_gan",
    "label": "gan",
    "latents": 3,
    "width": 4,
    "conditions": ["slant", "class", "brightness"],
}
NETWORK = {"methods": ["erm"], "architectures": [{"name": "small_cnn", "width": 4}]}


def sweep(storage: Path | str, **changes: Any) -> Sweep:
    """Two mappers on 300 digits for two epochs: a second."""
    recipe = {"epochs": 2, "batch": 32, "lr": 2e-3}
    data = {
        "sweep": "maps",
        "datasets": [{"name": "digits", "limit": 300}],
        "mappers": [{**VAE, "recipe": recipe}, {**GAN, "recipe": recipe}],
        "storage": str(storage),
        "tracking": {"enabled": False},
        "resources": {"runner": "local", "threads": 1},
    }
    return validate_sweep({**data, **changes})


class Heard(QuietTraining):
    """Keeps what it hears, and may stop the sweep after an epoch of a trial."""

    def __init__(self, stop: tuple[str, int] | None = None) -> None:
        self.begins: list[tuple[str, int]] = []
        self.points: list[EpochPoint] = []
        self._stop = stop

    def begun(self, name: str, done: int) -> None:
        self.begins.append((name, done))

    def epoch(self, name: str, point: EpochPoint) -> None:
        self.points.append(point)
        if (name, point.epoch) == self._stop:
            raise KeyboardInterrupt


def plain(sweep: Sweep) -> dict[str, Any]:
    """The sweep as a file would have it."""
    return sweep.config.model_dump(mode="json", by_alias=True, exclude_unset=True)


def facts_of(trial: TrialResult) -> MapperFacts:
    assert trial.mapper is not None
    return trial.mapper


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A sweep that ran through."""
    return run_sweep(sweep(tmp_path_factory.mktemp("runs")), QuietTraining())


def test_a_mappers_trial_leaves_what_a_networks_does(done: Trained) -> None:
    assert [trial.name for trial in done.result.trials] == ["vae-digits-s0", "gan-digits-s0"]
    for trial, item in zip(done.result.trials, done.plan.trials, strict=True):
        folder = Path(item.task.folder)
        names = {path.name for path in folder.iterdir()}
        assert names == {"model.safetensors", "progress.safetensors", "curves.parquet", "trial.json"}
        assert read_trial(str(folder)) == trial
        points = read_curves(str(folder))
        assert [point.epoch for point in points] == [0, 1] and trial.chosen == points[-1]
        assert points[0].loss > points[1].loss and points[1].explained == pytest.approx(facts_of(trial).explained)
        assert (trial.kind, trial.state, trial.selected, trial.threat_model) == ("mapper", "finished", 1, None)
    vae, gan = done.result.trials
    assert set(vae.chosen.parts) == {"reconstruction", "divergence"}  # type: ignore[union-attr]
    assert set(gan.chosen.parts) == {"critic", "adversarial", "reconstruction", "regression"}  # type: ignore[union-attr]
    assert read_sweep(done.folder) == done.result


def test_the_weights_are_those_of_the_python_call(done: Trained) -> None:
    data, gan = done.plan.sets["digits"], done.result.trials[1]
    slant, light = (data.attributes[name] for name in ("slant", "brightness"))
    scaled = [((values - values.mean()) / values.std())[:, None] for values in (slant, light)]
    conditions = np.concatenate([np.eye(10)[data.train.labels], *scaled], axis=1)
    mapper = build("conditional_gan", seed=0, latents=3, conditions=12, channels=1, size=8, width=4)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    train_mapper(mapper, data.train.images, conditions=conditions, recipe=MapperRecipe(epochs=2, batch=32, lr=2e-3))
    torch.set_num_threads(threads)
    kept = load_weights(gan.weights)
    assert all(torch.equal(kept[name], value) for name, value in mapper.state_dict().items())


def test_sources_open_and_columns_have_names(done: Trained) -> None:
    vae, gan = done.result.trials
    images = torch.from_numpy(np.ascontiguousarray(done.plan.sets["digits"].train.images[:20]))
    for trial, latents in ((vae, 4), (gan, 15)):
        opened = open_mapper(trial.uri, device="cpu", allowed_factories=("services.*",))
        assert opened.encode(images).shape == (20, latents)
    assert facts_of(vae).names == {} and facts_of(vae).generator == ""
    named = facts_of(gan).names
    assert list(named) == list(range(3, 15))
    assert (named[3], named[12], named[13], named[14]) == ("class 0", "class 9", "slant", "brightness")
    samples = open_samples(SampleSpec(facts_of(gan).generator), allowed_factories=("services.*",))
    assert (len(samples), samples.shape, len(samples.classes)) == (1000, (1, 8, 8), 10)
    slant = done.plan.sets["digits"].attributes["slant"]
    assert facts_of(gan).scales["slant"] == pytest.approx((slant.mean(), slant.std()))


def test_quality_is_told_and_one_that_does_not_reconstruct_cannot_judge(done: Trained) -> None:
    for trial in done.result.trials:
        facts = facts_of(trial)
        assert facts.held == 30 and facts.psnr == pytest.approx(-10 * np.log10(facts.mse))
        assert set(facts.factors) == {"slant", "brightness"} and 1 <= facts.active <= facts.latents
        gaps = [factor.gap.value for factor in facts.factors.values()]
        assert facts.mig is not None and facts.mig.value == pytest.approx(np.mean(gaps))  # type: ignore[arg-type]
        assert not facts.faithful and trial.usable
        assert trial.reason.startswith("does not reconstruct: cannot judge (it explains ")
    shown = CliRunner().invoke(app, ["show", done.folder])
    assert shown.exit_code == 0
    for part in ("expl.", "vae-digits-s0 finished: does not reconstruct", "factory:services.training.mappers:vae?"):
        assert part in shown.stdout
    lines = shown.stdout.replace("\n", "")
    assert 'names: {3: "class 0"' in lines and "mutual information gap: slant" in lines
    assert "generator:services.training.mappers:generated?" in lines and "robust" not in shown.stdout


def test_a_mapper_that_reconstructs_may_judge(tmp_path: Path) -> None:
    longer = {**VAE, "latents": 6, "width": 8, "recipe": {"epochs": 20, "batch": 32, "lr": 4e-3, "beta": 0.3}}
    (trial,) = run_sweep(sweep(tmp_path, datasets=["digits"], mappers=[longer]), QuietTraining()).result.trials
    assert facts_of(trial).faithful and trial.reason == "" and facts_of(trial).held == 90


def test_a_stopped_mapper_goes_on_to_the_same_weights(tmp_path: Path, done: Trained) -> None:
    with pytest.raises(Interrupted):
        run_sweep(sweep(tmp_path), Heard(stop=("gan-digits-s0", 0)))
    reporter = Heard()
    resumed = run_sweep(sweep(tmp_path), reporter)
    assert reporter.begins == [("gan-digits-s0", 1)] and [point.epoch for point in reporter.points] == [1]
    for trial, other in zip(resumed.result.trials, done.result.trials, strict=True):
        entry, two = load_weights(trial.weights), load_weights(other.weights)
        assert trial.key == other.key and all(torch.equal(entry[key], two[key]) for key in two)
        assert facts_of(trial).factors == facts_of(other).factors
        folders = [str(Path(each.weights).parent) for each in (trial, other)]
        first, second = ([replace(point, seconds=0) for point in read_curves(folder)] for folder in folders)
        assert first == second
    again = Heard()
    run_sweep(sweep(tmp_path), again)
    assert again.begins == []


def test_what_a_mapper_depends_on_changes_its_key(tmp_path: Path) -> None:
    def keys(**changes: Any) -> set[str]:
        return {item.task.key for item in plan_training(sweep(tmp_path, mappers=[{**VAE, **changes}])).trials}

    base = keys()
    assert keys(label="other") == base
    for change in ({"latents": 5}, {"width": 5}, {"factors": ["slant"]}, {"recipe": {"beta": 0.5}}):
        assert keys(**change) != base


def test_a_mapper_that_diverges_is_told_and_the_others_go_on(tmp_path: Path) -> None:
    steep = {**VAE, "label": "steep", "recipe": {"epochs": 3, "lr": 1e18}}
    trained = run_sweep(sweep(tmp_path, mappers=[steep, {**VAE, "recipe": {"epochs": 1}}]), QuietTraining())
    first, second = trained.result.trials
    assert (first.state, second.state, trained.result.exit_code) == ("diverged", "finished", 1)
    assert "not finite in epoch" in first.reason and (first.weights, first.uri, first.mapper) == ("", "", None)
    reporter = Heard()
    run_sweep(sweep(tmp_path, mappers=[steep, {**VAE, "recipe": {"epochs": 1}}]), reporter)
    assert reporter.begins == []


def test_all_faults_of_data_are_told_before_training(tmp_path: Path) -> None:
    wrong = {**GAN, "conditions": ["colour", "class"]}
    broken = sweep(tmp_path, mappers=[wrong, VAE], **{**NETWORK, "architectures": [{"name": "small_cnn", "wdth": 4}]})
    with pytest.raises(PreflightError) as error:
        run_sweep(broken, QuietTraining())
    assert "digits (colour): expected images of 3 channels for colour, found 1" in str(error.value)
    assert "small_cnn.wdth" in str(error.value)
    assert not (tmp_path / "training").exists()


def test_attributes_that_images_lack_or_share_are_refused(done: Trained) -> None:
    data = done.plan.sets["digits"]
    images = np.zeros_like(data.train.images)
    dark = replace(data, train=Labelled(images, data.train.labels, 10))
    names = ["slant", "brightness"]
    messages = [str(problem) for problem in attribute_problems(dark, measure(dark, names), names)]
    assert messages[0].startswith("digits (slant): expected an attribute of every image, found 300 of 300 without")
    assert messages[1].startswith("digits (brightness): expected an attribute that varies, found 0 of every image")
    assert list(attribute_problems(data, measure(data, names), names)) == []


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((1, 10, 10), "vae on x, mapper.size: expected a multiple of 4, found 10"),
        ((1, 8, 12), "expected square images for a mapper, found 8x12"),
    ],
)
def test_images_of_other_sizes_are_refused(shape: tuple[int, ...], message: str, done: Trained) -> None:
    facts = replace(done.plan.sets["digits"].facts, shape=shape)
    data = TrainingSet(Labelled(np.zeros((20, *shape), np.uint8), np.arange(20) % 10, 10), None, facts)
    with pytest.raises(ClasswiseError, match=message):
        probe_mapper("vae", fitted(4, 4, (), facts), data, MapperRecipe(), "vae on x")


def test_a_mapper_that_no_memory_holds_is_told_before_training(tmp_path: Path) -> None:
    with pytest.raises(
        ClasswiseError, match="vae on digits: expected arguments from which it builds, found RuntimeError"
    ):
        run_sweep(sweep(tmp_path, mappers=[{**VAE, "latents": 4096, "width": 2**20}]), QuietTraining())
    batch = {**VAE, "recipe": {"batch": 2**31}}
    with pytest.raises(
        PreflightError, match=r"vae-digits-s0: expected about [\d.]+ GiB of memory, found .* in this machine"
    ):
        run_sweep(sweep(tmp_path, mappers=[batch]), QuietTraining())


def test_audits_leave_mappers_out_and_say_so(tmp_path: Path) -> None:
    template = {
        "fleet": "trained",
        "samples": {"uri": "sklearn:digits?split=test", "limit": 60},
        "measures": ["clean"],
        "on_model_fault": "skip",
        "resources": {"workers": 1},
    }
    recipe = {"epochs": 4, "batch": 32, "lr": 0.1, "weight_decay": 0.0}
    quick = {**VAE, "recipe": {"epochs": 1}}
    mixed = sweep(tmp_path / "runs", datasets=["digits"], mappers=[quick], recipe=recipe, **NETWORK)
    files = [tmp_path / "sweep.yaml", tmp_path / "fleet.yaml"]
    for path, body in zip(files, (plain(mixed), template), strict=True):
        path.write_text(json.dumps(body))
    ran = CliRunner().invoke(app, ["train", str(files[0]), "--audit", str(files[1])])
    assert ran.exit_code == 0, ran.output
    assert "not audited, being mappers and no classifiers: vae-digits-s0" in ran.stderr
    for name in ("clean", "robust", "worst", "expl.", "erm-small"):
        assert name in ran.stdout.split("maps: finished")[1]
    rows = [line for line in ran.stdout.splitlines() if line.startswith(" ") and " finished " in line]
    assert len(rows) == 2 and all(len(line) <= 80 for line in rows)
    assert [line.split() for line in ran.stdout.splitlines() if "epochs kept" in line] == [
        ["trial", "state", "epochs", "kept", "loss", "clean", "robust", "worst", "expl.", "time"]
    ]
    files[0].write_text(json.dumps(plain(sweep(tmp_path / "runs"))))
    ran = CliRunner().invoke(app, ["train", str(files[0]), "--audit", str(files[1])])
    assert ran.exit_code == 2 and "expected a sweep with networks to audit, found mappers alone" in ran.stderr
    assert ConfigError.__name__ in ran.stderr


def test_mlflow_has_a_run_with_curves_and_quality(tmp_path: Path) -> None:
    from mlflow import MlflowClient

    uri = f"sqlite:///{tmp_path}/m.db"
    first = sweep(tmp_path, mappers=[{**GAN, "recipe": {"epochs": 2}}], tracking={"uri": uri})
    trained = run_sweep(first, QuietTraining())
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("maps")
    (run,) = client.search_runs([experiment.experiment_id], "tags.`classwise.role` = 'trial'")
    facts = facts_of(trained.result.trials[0])
    assert run.data.metrics["reconstruction/mse"] == pytest.approx(facts.mse)
    assert run.data.metrics["mig/slant"] == pytest.approx(facts.factors["slant"].gap.value)
    assert [each.step for each in client.get_metric_history(run.info.run_id, "validation/explained")] == [0, 1]
    assert [each.step for each in client.get_metric_history(run.info.run_id, "train/critic")] == [0, 1]
    assert run.data.tags["classwise.faithful"] == "false" and "classwise.no_model" not in run.data.tags
    assert run.info.status == "FINISHED" and not client.search_logged_models([experiment.experiment_id])
