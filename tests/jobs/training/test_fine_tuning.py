"""Training that starts from weights that are there, on samples of any source."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from jobs.training.progress import QuietTraining
from jobs.training.sweep_plan import plan_training
from jobs.training.sweep_run import Trained, run_sweep
from services.errors import ClasswiseError
from services.loading.models.contract import ContractedNetwork, Graphable
from services.loading.samples.source import open_samples
from services.records import InputContract, SampleSpec
from services.training.architectures.build import build
from services.training.epochs.checkpoints import load_weights

from .helpers import sweep

SMALL: dict[str, Any] = {"name": "small_cnn", "width": 4}
ONCE = {"epochs": 1, "batch": 32, "lr": 1e-9, "weight_decay": 0.0, "momentum": 0.0}


@pytest.fixture
def weights(tmp_path: Path) -> str:
    """A network that was drawn by another seed."""
    file = tmp_path / "w.safetensors"
    save_file(build("small_cnn", seed=77, width=4, classes=10, channels=1, size=8).state_dict(), file)
    return str(file)


def trained(folder: Path, **changes: Any) -> Trained:
    return run_sweep(sweep(folder, **{"methods": ["erm"], "recipe": ONCE, **changes}), QuietTraining())


def test_training_starts_where_the_file_stands(tmp_path: Path, weights: str) -> None:
    (result,) = trained(tmp_path / "a", architectures=[{**SMALL, "init": weights}]).result.trials
    ends, begin = load_weights(result.weights), load_file(weights)
    drawn = build("small_cnn", seed=0, width=4, classes=10, channels=1, size=8).state_dict()
    names = [name for name, value in begin.items() if value.is_floating_point() and "running" not in name]
    assert all(torch.allclose(ends[name], begin[name], atol=1e-6) for name in names)
    assert not all(torch.allclose(ends[name], drawn[name], atol=1e-3) for name in names)
    assert "init" not in result.uri, "the trained network needs no file but its own"


def test_other_bytes_are_another_trial_and_no_init_keeps_its_key(tmp_path: Path, weights: str) -> None:
    def key(**architecture: Any) -> str:
        (trial,) = plan_training(sweep(tmp_path, methods=["erm"], architectures=[{**SMALL, **architecture}])).trials
        return trial.task.key

    plain, first = key(), key(init=weights)
    state = load_file(weights)
    save_file({name: value + 1 if value.is_floating_point() else value for name, value in state.items()}, weights)
    assert len({plain, first, key(init=weights)}) == 3 and key() == plain


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"init": "nowhere.pt"}, r"small_cnn on digits \(init\): expected a file at .*nowhere.pt, found nothing there"),
        ({"width": 8, "init": "WEIGHTS"}, r"small_cnn on digits \(init\): expected .*, found .*\(4, 1, 3, 3\)"),
        ({"init_key": "ema"}, r"init_key names weights of the file init, which is not given"),
        ({"init": "export:a.pt2", "init_key": "ema"}, r"no init_key beside a model source; say &key= in it"),
    ],
)
def test_what_cannot_be_started_from_is_refused_before_the_first_epoch(
    tmp_path: Path, weights: str, change: dict[str, Any], message: str
) -> None:
    given = {**SMALL, **{name: weights if value == "WEIGHTS" else value for name, value in change.items()}}
    with pytest.raises(ClasswiseError, match=message):
        plan_training(sweep(tmp_path, methods=["erm"], architectures=[given]))


def test_a_file_that_changes_while_the_sweep_runs_changes_no_trial(tmp_path: Path, weights: str) -> None:
    begin = load_file(weights)

    class Spoils(QuietTraining):
        """Changes the file once it was read."""

        def sweep(self, names: Sequence[str], epochs: Sequence[int]) -> None:
            """Every weight is another one."""
            save_file({name: value * 2 for name, value in begin.items()}, weights)

    started = sweep(tmp_path, methods=["erm"], architectures=[{**SMALL, "init": weights}], recipe=ONCE)
    (result,) = run_sweep(started, Spoils()).result.trials
    ends = load_weights(result.weights)
    assert all(torch.allclose(ends[name], begin[name], atol=1e-6) for name in begin)


@pytest.fixture
def graph(tmp_path: Path, weights: str) -> str:
    """The network of these weights as MLflow gets it: a graph, normalisation and offsets inside."""
    network = build("small_cnn", seed=0, width=4, classes=10, channels=1, size=8)
    network.load_state_dict(load_file(weights))
    contract, offsets = InputContract(mean=(0.3,), std=(0.4,)), [0.1] * 10
    whole = Graphable(ContractedNetwork(network, contract, offsets=offsets)).eval()
    torch.export.save(torch.export.export(whole, (torch.rand(2, 1, 8, 8),)), tmp_path / "g.pt2")
    return f"export:{tmp_path / 'g.pt2'}"


def test_training_starts_from_a_model_source_as_from_its_weights(tmp_path: Path, weights: str, graph: str) -> None:
    factory = f"factory:services.training.architectures:small_cnn?width=4&weights={weights}"
    runs = {
        init: trained(tmp_path / str(n), architectures=[{**SMALL, "init": init}])
        for n, init in enumerate((weights, factory, graph))
    }
    ends = [load_weights(done.result.trials[0].weights) for done in runs.values()]
    assert all(torch.equal(ends[0][name], other[name]) for other in ends[1:] for name in ends[0])
    keys = {done.result.trials[0].key for done in runs.values()}
    assert len(keys) == 3, "what it was read from is part of a trial's identity"


@pytest.mark.parametrize(
    ("init", "message"),
    [
        ("factory:services.training.architectures:small_cnn?width=8&weights=WIDE", r"found \d+ shapes: "),
        ("factory:services.training.architectures:resnet2b?weights=OTHER", r"every weight|weights whose keys match"),
        ("factory:os.path:join?weights=WEIGHTS", r"os.path"),
        ("export:nowhere.pt2", r"nowhere.pt2"),
        ("logits:nowhere.npz", r"nowhere.npz"),
        ("mlflow:models:/none/1", r"expected the MLflow store of the mlflow: sources, found none at sqlite"),
    ],
)
def test_a_model_that_has_not_these_weights_is_refused_before_the_first_epoch(
    tmp_path: Path, weights: str, init: str, message: str
) -> None:
    for word, network in (("WIDE", {"name": "small_cnn", "width": 8, "size": 8}), ("OTHER", {"name": "resnet2b"})):
        file = tmp_path / f"{word}.safetensors"
        if word in init:
            save_file(build(network.pop("name"), seed=0, **network).state_dict(), file)
            init = init.replace(word, str(file))
    with pytest.raises(ClasswiseError, match=message):
        plan_training(
            sweep(tmp_path, methods=["erm"], architectures=[{**SMALL, "init": init.replace("WEIGHTS", weights)}])
        )


def test_any_sample_source_is_a_training_set(tmp_path: Path) -> None:
    samples = open_samples(SampleSpec("sklearn:digits?split=train", limit=200))
    images = np.rint(samples.images(0, 200) * 255).astype(np.uint8)
    np.savez(tmp_path / "d.npz", images=images, labels=samples.labels, classes=np.array(list("abcdefghij")))
    entry = {"name": "samples", "label": "mine", "root": f"npz:{tmp_path / 'd.npz'}?layout=NCHW", "holdout": 0.2}
    plan = plan_training(sweep(tmp_path, methods=["erm"], datasets=[entry]))
    data = plan.sets["mine"]
    assert data.train.images.dtype == np.uint8 and data.facts.classes == tuple("abcdefghij")
    assert data.held is not None and len(data.train.labels) + len(data.held.labels) == 200
    (result,) = trained(tmp_path / "run", datasets=[entry]).result.trials
    assert result.state == "finished" and result.name == "erm-small_cnn-mine-s0"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"root": None}, r"expected the URI of a sample source, found None; set root to it, such as npz:train.npz"),
        ({"root": "data/train"}, r"expected the URI of a sample source, found 'data/train'"),
        ({"root": "npz:none.npz"}, r"none.npz"),
        ({"root": "generator:m:f"}, r"expected samples that are stored, found a generator"),
        ({"root": "sklearn:digits", "size": 32}, r"expected no size: the source has one, found 32"),
    ],
)
def test_what_is_no_source_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ClasswiseError, match=message):
        plan_training(sweep(tmp_path, methods=["erm"], datasets=[{"name": "samples", **change}]))


def test_a_start_that_knows_the_images_under_another_normalisation_is_noted(
    tmp_path: Path, digit_weights: dict[str, str]
) -> None:
    """Its first epochs went into forgetting, without a word."""
    start = {"name": "small_cnn", "width": 8, "init": digit_weights["good"]}

    def notes(**recipe: Any) -> tuple[str, ...]:
        return plan_training(sweep(tmp_path, methods=["erm"], architectures=[start], recipe={**ONCE, **recipe})).notes

    assert notes() == ()
    (note,) = notes(mean=[0.95], std=[0.1])
    assert "under the normalisation given (the recipe's mean and std) and " in note and "under another (" in note
    heard = Heard()
    run_sweep(
        sweep(tmp_path, methods=["erm"], architectures=[start], recipe={**ONCE, "mean": [0.95], "std": [0.1]}), heard
    )
    assert heard.notes == [note]


class Heard(QuietTraining):
    """Keeps what is noted."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        """Keep it."""
        self.notes.append(text)
