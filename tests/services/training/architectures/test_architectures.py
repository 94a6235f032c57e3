"""The small networks: shapes, refusals, and the accuracies measured when the networks were collected."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import torch

from services.errors import ConfigError
from services.loading.models.source import load_model
from services.loading.samples.source import open_samples
from services.records import InputContract, ModelSpec, SampleSpec
from services.training.architectures import cifar_resnet, sequential, small_cnn


def spec_of(entry: dict[str, Any], data: Path) -> ModelSpec:
    """The fleet entry of a collected network."""
    arch = entry["arch"]
    call = {
        "sequential": lambda: f"sequential?layers={quote(json.dumps(arch['layers']))}&",
        "cifar_resnet": lambda: f"cifar_resnet?n={arch['args'][0]}&",
        "resnet2b": lambda: "resnet2b?",
    }[arch["type"]]()
    uri = f"factory:services.training.architectures:{call}weights={data / entry['file']}"
    contract = InputContract(mean=tuple(entry["input"]["mean"]), std=tuple(entry["input"]["std"]))
    return ModelSpec(entry["id"], uri, contract)


def first_thousand_correct(entry: dict[str, Any], data: Path) -> int:
    """Correct predictions on the first 1,000 test images."""
    file = "cifar10/test.npz" if entry["dataset"] == "cifar10" else "mnist/t10k.npz"
    samples = open_samples(SampleSpec(f"npz:{data / file}"))
    network = load_model(spec_of(entry, data)).network
    assert network is not None
    with torch.no_grad():
        predicted = network(torch.from_numpy(samples.images(0, 1000))).argmax(dim=1).numpy()
    return int((predicted == samples.labels[:1000]).sum())


QUICK = ["cifar10_resnet2b", "cifar10_wide_std", "mnist_kw_01"]


def entries(data: Path) -> dict[str, dict[str, Any]]:
    return {entry["id"]: entry for entry in json.loads((data / "networks/networks.json").read_text())}


@pytest.mark.parametrize("name", QUICK)
def test_clean_accuracy_is_the_measured_one(name: str, shared_data: Path) -> None:
    entry = entries(shared_data)[name]
    assert first_thousand_correct(entry, shared_data) == round(10 * entry["measured"]["clean_acc_first1000"])


@pytest.mark.slow
def test_clean_accuracy_of_every_network(shared_data: Path) -> None:
    by_name = {name: first_thousand_correct(entry, shared_data) for name, entry in entries(shared_data).items()}
    wanted = {
        name: round(10 * entry["measured"]["clean_acc_first1000"]) for name, entry in entries(shared_data).items()
    }
    assert by_name == wanted
    assert len(by_name) == 22


def test_depth_and_parameters_of_resnet20() -> None:
    network = cifar_resnet(3)
    assert sum(parameter.numel() for parameter in network.parameters()) == 269_722
    assert network(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


@pytest.mark.parametrize(("channels", "size"), [(1, 8), (1, 28), (3, 9)])
def test_small_cnn(channels: int, size: int) -> None:
    assert small_cnn(channels, 7, 4, size)(torch.zeros(3, channels, size, size)).shape == (3, 7)


def test_every_wrong_layer_is_named() -> None:
    with pytest.raises(ConfigError) as caught:
        sequential('[["covn", 1, 2, 3, 1, 1], ["linear", 4], ["relu"], ["maxpool", 2, -1]]')
    text = str(caught.value)
    assert "layers[0]: expected a known layer, found 'covn'; did you mean 'conv'?" in text
    assert "layers[1] (linear): expected 2 whole numbers, found [4]" in text
    assert "layers[3] (maxpool)" in text


@pytest.mark.parametrize("layers", ["[", "{}", "[]", '["relu"]'])
def test_layers_must_be_a_list_of_lists(layers: str) -> None:
    with pytest.raises(ConfigError, match="JSON list"):
        sequential(layers)
