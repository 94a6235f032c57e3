"""A weak network trained on with the class weights that its audit measured, and shown on samples that took no part."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from typer.testing import CliRunner

from jobs.cli import app
from jobs.fleetfile.reading import validate_fleet
from jobs.repair.offsets import Tried
from jobs.repair.repair import repair
from jobs.repair.tuning import Tuning, measured_rates, measured_weights
from jobs.repair.words import front_words
from jobs.terminal.progress import Quiet
from services.errors import ClasswiseError, ConfigError
from services.loading.models.contract import Graphable
from services.loading.models.source import load_model
from services.loading.samples.source import open_samples
from services.loading.uris import parse_uri
from services.records import ModelSpec, SampleSpec
from services.training.epochs.checkpoints import load_weights, save_weights
from tracking.bundle.bundle import fleet_folder

TRAIN = "sklearn:digits?split=train"
RECIPE = {"epochs": 2, "lr": 0.02, "batch": 32}


@pytest.fixture
def weak(digits_fleet: dict[str, Any], tmp_path: Path) -> dict[str, Any]:
    """A good network whose last bias was spoiled: it hardly ever says 8."""
    entry = {**digits_fleet["models"][0], "name": "m"}
    good = parse_uri(entry["uri"]).query["weights"]
    state = load_weights(good)
    (bias,) = (name for name, value in state.items() if value.shape == (10,))
    state[bias] = state[bias] - 9 * (torch.arange(10) == 8)
    save_weights(str(tmp_path / "spoiled.safetensors"), state)
    entry["uri"] = entry["uri"].replace(good, str(tmp_path / "spoiled.safetensors"))
    samples = {"uri": "sklearn:digits?split=test", "reserve": 0.5}
    tracking = {"enabled": False, "figures": False}
    more = {"samples": samples, "tracking": tracking, "intervals": {"delta": 0.1}, "gallery": "none"}
    return {**deepcopy(digits_fleet), "models": [entry], "measures": ["clean"], **more}


def test_a_fine_tuned_network_is_shown_on_fresh_samples_with_what_it_was_trained_by(weak: dict[str, Any]) -> None:
    done = repair(validate_fleet(weak), "m", Quiet(), tuning=Tuning(TRAIN, recipe=RECIPE))
    assert done is not None and done.repair.verdict == "repaired", done
    assert done.repair.worst_before < 0.2 < done.repair.worst_after
    assert max(done.repair.tried)[0] > 0.2, "measured on the samples of the fit, too"
    method = done.repair.training["method"]
    assert (method["name"], method["base"], done.repair.training["samples"]) == ("weighted", "erm", TRAIN)
    assert np.mean(method["weights"]) == pytest.approx(1, abs=0.05) and len(set(method["weights"])) > 2
    weights = parse_uri(done.repair.uri).query["weights"]
    assert load_weights(weights).keys() == load_weights(parse_uri(weak["models"][0]["uri"]).query["weights"]).keys()
    fresh = validate_fleet({**weak, "models": [{**weak["models"][0], "uri": done.repair.uri}]})
    again = repair(fresh, "m", Quiet(), tuning=Tuning(TRAIN, recipe={**RECIPE, "epochs": 1, "lr": 1e-9}))
    assert again is None, "a training that moves nothing is no remedy, and uses no fresh samples"


@pytest.mark.slow
def test_an_adjusted_loss_takes_the_scores_of_the_classes_as_rates(weak: dict[str, Any]) -> None:
    done = repair(validate_fleet(weak), "m", Quiet(), tuning=Tuning(TRAIN, method="logit-adjusted", recipe=RECIPE))
    assert done is not None and done.repair.worst_after > done.repair.worst_before
    method = done.repair.training["method"]
    assert (method["name"], method["base"]) == ("logit-adjusted", "erm")
    assert np.argmin(method["rates"]) == 8 and min(method["rates"]) < 0.2 < np.median(method["rates"])


@pytest.mark.slow
def test_remedies_that_the_same_samples_showed_stand_side_by_side(weak: dict[str, Any]) -> None:
    fleet = validate_fleet(weak)
    first = repair(fleet, "m", Quiet(), rounds=2)
    second = repair(fleet, "m", Quiet(), tuning=Tuning(TRAIN, recipe=RECIPE))
    assert first is not None and second is not None
    assert [each.remedy for each in second.remedies] == ["offsets", "tuning"]
    assert (first.repair.use, second.repair.use) == (1, 2) and second.repair.level < first.repair.level
    head, *lines = front_words(second.remedies)
    assert "m so far, on the same fresh samples" in head
    assert [line[2:].split()[:2] for line in lines] == [["offsets", "repaired"], ["tuning", "repaired"]]
    reached = [(each.worst_after, each.mean.value or 0.0) for each in second.remedies]
    best = [not any(o != own and o[0] >= own[0] and o[1] >= own[1] for o in reached) for own in reached]
    assert [line[0] == "*" for line in lines] == best and any(best)


def test_weights_are_shares_of_errors() -> None:
    tried = Tried((), (0.9, 0.5, 0.7, float("nan"), 1.0), 0.7)
    errors = np.array([0.1, 0.5, 0.3, 0.0])
    expected = np.maximum(errors / errors.mean(), 0.05)
    assert measured_weights(tried, 1.0) == pytest.approx([*expected[:3], 1.0, expected[3]], abs=1e-4)
    assert measured_weights(Tried((), (2.0, 1.0), 1.5), 2.0) == (0.05, 2.0)
    assert measured_rates(tried, 1.0) == (0.9, 0.5, 0.7, 0.775, 1.0)
    assert measured_rates(Tried((), (2.0, 0.0), 1.0), 2.0) == (1.0, 0.05)
    assert measured_weights(Tried((), (1.0, 1.0), 1.0), 1.0) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("changes", "tuning", "message"),
    [
        (
            {},
            Tuning("sklearn:digits?split=all"),
            r"--train: expected fresh samples that are not trained on, found 451 of 451",
        ),
        ({}, Tuning(TRAIN, recipe={"epoch": 3}), r"recipe.epoch: .*did you mean 'epochs'"),
        ({}, Tuning(TRAIN, method="trads"), r"--method: expected a known training method.* did you mean 'trades'"),
        (
            {},
            Tuning(TRAIN, method={"name": "weighted", "weights": [1, 2]}),
            r"expected 10 weights, one a class, found 2",
        ),
        (
            {"measures": [{"name": "pgd", "norm": "L2", "epsilons": [0.5]}]},
            Tuning(TRAIN),
            r"--under: expected an attack in Linf, or clean accuracy: training knows no other, found pgd",
        ),
        ({"input": {"range": [0, 255]}}, Tuning(TRAIN), r"m \(input\): expected a network of images in \[0, 1\]"),
    ],
)
def test_what_cannot_be_trained_on_is_refused(
    weak: dict[str, Any], changes: dict[str, Any], tuning: Tuning, message: str
) -> None:
    with pytest.raises(ClasswiseError, match=message):
        repair(validate_fleet({**weak, **changes}), "m", Quiet(), tuning=tuning)
    assert not Path(fleet_folder(weak["storage"], "digits-repair")).exists()


def test_samples_of_other_classes_are_refused(weak: dict[str, Any], tmp_path: Path) -> None:
    samples = open_samples(SampleSpec(TRAIN))
    images = np.rint(samples.images(0, 300) * 255).astype(np.uint8).transpose(0, 2, 3, 1)
    np.savez(tmp_path / "t.npz", images=images, labels=samples.labels[:300], classes=np.array(list("abcdefghij")))
    with pytest.raises(ConfigError, match=r"--train: expected the classes of the samples, in their order, found a, b"):
        repair(validate_fleet(weak), "m", Quiet(), tuning=Tuning(f"npz:{tmp_path / 't.npz'}"))


def test_a_network_of_another_kind_is_refused(weak: dict[str, Any]) -> None:
    weak["models"][0]["uri"] = "torchscript:net.ts"
    with pytest.raises(ConfigError, match=r"m \(uri\): expected factory: .* trained here, or --architecture"):
        repair(validate_fleet(weak), "m", Quiet(), tuning=Tuning(TRAIN))


@pytest.mark.slow
def test_a_logged_graph_is_trained_on_as_the_architecture_that_is_named(weak: dict[str, Any], tmp_path: Path) -> None:
    network = load_model(ModelSpec("m", weak["models"][0]["uri"])).network
    assert network is not None
    file = tmp_path / "g.pt2"
    torch.export.save(torch.export.export(Graphable(network).eval(), (torch.rand(2, 1, 8, 8),)), file)
    weak["models"][0]["uri"] = f"export:{file}"
    tuning = Tuning(TRAIN, recipe=RECIPE, architecture={"name": "small_cnn", "width": 8})
    done = repair(validate_fleet(weak), "m", Quiet(), tuning=tuning)
    assert done is not None and done.repair.worst_before < 0.2 < done.repair.worst_after
    assert done.repair.uri.startswith("factory:services.training")
    with pytest.raises(ClasswiseError, match=r"\(init\): expected .*shapes"):
        repair(validate_fleet(weak), "m", Quiet(), tuning=replace(tuning, architecture={"name": "small_cnn"}))


def test_the_command_trains_and_gives_the_line_for_the_fleet_file(weak: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text(yaml.safe_dump(weak))
    arguments = ["repair", str(file), "--model", "m", "-q", "--method", "erm"]
    bare = CliRunner().invoke(app, arguments)
    assert bare.exit_code == 2 and "--train: expected training samples" in bare.output
    broken = CliRunner().invoke(app, [*arguments, "--train", TRAIN, "--recipe", "3"])
    assert broken.exit_code == 2 and "--recipe: expected a mapping such as {epochs: 3}, found '3'" in broken.output
    recipe = "{epochs: 2, lr: 0.02, batch: 32}"
    done = CliRunner().invoke(app, [*arguments, "--train", TRAIN, "--recipe", recipe])
    assert "For the fleet file: uri: factory:services.training" in done.output, done.output
