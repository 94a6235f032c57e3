"""Colours in another order: seen by the probe, declared in the contract, never cried of a network that is right."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from services.loading.models.contract import ContractedNetwork
from services.loading.models.source import fingerprint, load_model
from services.loading.preflight.look import preflight
from services.loading.protocols import LoadedModel
from services.loading.samples.source import open_samples
from services.records import InputContract, ModelSpec, SampleSpec

IMAGES = torch.rand(5, 3, 4, 4)
MEAN, STD = (0.1, 0.2, 0.3), (0.5, 0.6, 0.7)


def test_the_contract_turns_colours_before_it_normalises() -> None:
    turned = ContractedNetwork(torch.nn.Identity(), InputContract(mean=MEAN, std=STD, channel_order="BGR"))
    plain = ContractedNetwork(torch.nn.Identity(), InputContract(mean=MEAN, std=STD))
    assert torch.equal(turned.prepare(IMAGES), plain.prepare(IMAGES[:, [2, 1, 0]]))
    grey = ContractedNetwork(torch.nn.Identity(), InputContract(channels=1, channel_order="BGR"))
    assert torch.equal(grey.prepare(IMAGES), replaced_channels(grey).prepare(IMAGES))


def replaced_channels(network: ContractedNetwork) -> ContractedNetwork:
    return ContractedNetwork(network.network, replace(network.contract, channel_order="RGB"))


def test_the_order_is_part_of_the_digest_only_where_it_is_not_the_usual_one(tmp_path: Path) -> None:
    torch.save({}, tmp_path / "w.pt")
    spec = ModelSpec("m", f"torchscript:{tmp_path / 'w.pt'}")
    turned = replace(spec, input=InputContract(channel_order="BGR"))
    assert fingerprint(turned) != fingerprint(spec) == fingerprint(replace(spec, input=InputContract()))


def problems(shared_data: Path, name: str, n: int, order: Any, contract: InputContract | None) -> str:
    """Of a real network trained on RGB, wrapped so that it takes `order`, and audited under a contract."""
    imagenet = contract or InputContract(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    weights = shared_data / f"networks/cifar10/cifar10_{name}.pt"
    spec = ModelSpec(name, f"factory:services.training.architectures:cifar_resnet?n={n}&weights={weights}", imagenet)
    network = load_model(spec).network
    assert isinstance(network, ContractedNetwork)
    inner = network.network

    def taken(images: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = inner(images if order == "RGB" else images.flip(1))
        return result

    samples = open_samples(SampleSpec(f"npz:{shared_data / 'cifar10/test.npz'}"))
    made = LoadedModel(spec, ContractedNetwork(taken, imagenet, where=name), "d")
    return "\n".join(map(str, preflight(made, samples, device="cpu")[1]))


@pytest.mark.slow
def test_a_network_of_the_other_order_is_named(shared_data: Path) -> None:
    """0.1.0: .873 for .920 without a note."""
    found = problems(shared_data, "resnet20", 3, "BGR", None)
    assert "expected RGB, as declared, found accuracy 8" in found and "as BGR, on 1024 samples" in found
    assert "set input.channel_order: BGR, with input.mean and input.std in that order" in found
    mean, std = (0.406, 0.456, 0.485), (0.225, 0.224, 0.229)
    assert problems(shared_data, "resnet20", 3, "BGR", InputContract(mean=mean, std=std, channel_order="BGR")) == ""
    assert problems(shared_data, "resnet20", 3, "RGB", None) == ""
