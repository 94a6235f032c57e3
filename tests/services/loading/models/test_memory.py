"""A network that is handed over: its digest tells it from every other, or is a new one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from services.errors import SourceError
from services.loading.models.schemes.memory import held
from services.loading.models.source import fingerprint, load_model
from services.records import ModelSpec
from services.training.architectures import small_cnn


def uri_of(network: nn.Module) -> str:
    with held(network, "net") as uri:
        return uri


def changed(change: Callable[[Any], object]) -> nn.Module:
    network = small_cnn(width=4)
    network.load_state_dict(
        small_cnn(width=4).state_dict() | {k: torch.zeros_like(v) for k, v in network.state_dict().items()}
    )
    change(network)
    return network


CHANGES: dict[str, Callable[[Any], object]] = {
    "a weight": lambda network: next(network.parameters()).data.view(-1)[0].add_(1),
    "a buffer": lambda network: network.register_buffer("more", torch.zeros(1)),
    "an attribute": lambda network: setattr(network, "scale", 2.0),
    "an array": lambda network: setattr(network, "mean", np.zeros(3)),
    "another layer": lambda network: network.add_module("more", nn.ReLU()),
    "the precision": lambda network: network.double(),
}


@pytest.mark.parametrize("what", CHANGES)
def test_every_change_is_another_network(what: str) -> None:
    plain, other = changed(lambda network: None), changed(CHANGES[what])
    assert uri_of(plain) == uri_of(changed(lambda network: None)) != uri_of(other) == uri_of(changed(CHANGES[what]))


def test_a_value_of_an_attribute_counts() -> None:
    one, two = (changed(lambda network, value=value: setattr(network, "scale", value)) for value in (2.0, 3.0))
    assert uri_of(one) != uri_of(two)


@pytest.mark.parametrize(
    "change",
    [
        lambda network: network.register_forward_hook(lambda module, args, output: output),
        lambda network: setattr(network, "own", object()),
        lambda network: setattr(network, "function", lambda images: images),
    ],
)
def test_what_cannot_be_read_is_new_each_time(change: Callable[[Any], object]) -> None:
    network = changed(change)
    assert uri_of(network) != uri_of(network)


def test_a_copy_is_held_and_only_as_long_as_it_is_needed() -> None:
    network = changed(lambda network: None)
    with held(network, "net") as uri:
        spec = ModelSpec("net", uri)
        digest = fingerprint(spec)
        next(network.parameters()).data.add_(1)
        loaded = load_model(spec)
        assert fingerprint(spec) == digest == loaded.digest
        assert loaded.network is not None and not loaded.network(torch.rand(1, 1, 8, 8)).any(), "the copy of before"
        assert network.training
    with pytest.raises(SourceError, match="a network that this process holds"):
        load_model(spec)


def test_what_is_no_network_is_refused() -> None:
    with pytest.raises(SourceError, match=r"net: expected a torch\.nn\.Module, found dict"), held({}, "net"):
        pass
