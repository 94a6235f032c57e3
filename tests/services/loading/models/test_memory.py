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


def uri_of(network: nn.Module) -> str:
    with held(network, "net") as uri:
        return uri


def plain() -> Any:
    """A network of torch's own modules, always with the same weights."""
    torch.manual_seed(0)
    layers = (nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3))
    return nn.Sequential(*layers)


def changed(change: Callable[[Any], object]) -> Any:
    network = plain()
    change(network)
    return network


CHANGES: dict[str, Callable[[Any], object]] = {
    "a weight": lambda network: next(network.parameters()).data.view(-1)[0].add_(1),
    "a buffer": lambda network: network.register_buffer("more", torch.zeros(1)),
    "an attribute": lambda network: setattr(network, "scale", 2.0),
    "an array": lambda network: setattr(network, "mean", np.zeros(3)),
    "another layer": lambda network: network.add_module("more", nn.ReLU()),
    "the precision": lambda network: network.double(),
    "a buffer that is not saved": lambda network: network.register_buffer("by", torch.tensor(2.0), persistent=False),
    "a module that stands twice": lambda network: network.append(network[2]),
    "a number of batches": lambda network: network[1].num_batches_tracked.add_(1),
    "the rate of a batch norm": lambda network: setattr(network[1], "eps", 0.5),
}


@pytest.mark.parametrize("what", CHANGES)
def test_every_change_is_another_network(what: str) -> None:
    plain, other = changed(lambda network: None), changed(CHANGES[what])
    assert uri_of(plain) == uri_of(changed(lambda network: None)) != uri_of(other) == uri_of(changed(CHANGES[what]))


def test_a_value_of_an_attribute_counts() -> None:
    one, two = (changed(lambda network, value=value: setattr(network, "scale", value)) for value in (2.0, 3.0))
    assert uri_of(one) != uri_of(two)


class Own(nn.Module):
    """What it computes depends on more than its instance."""

    gain = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.network = plain()

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.gain * self.network(images)
        return logits


OPAQUE: dict[str, Callable[[], nn.Module]] = {
    "a hook": lambda: changed(lambda network: network.register_forward_hook(lambda module, args, output: output)),
    "an object": lambda: changed(lambda network: setattr(network, "own", object())),
    "a function": lambda: changed(lambda network: setattr(network, "function", lambda images: images)),
    "a forward of its own": lambda: changed(lambda network: setattr(network, "forward", lambda images: images)),
    "a sparse tensor": lambda: changed(lambda network: setattr(network, "sparse", torch.eye(3).to_sparse())),
    "a class of the user's": Own,
    "one inside": lambda: nn.Sequential(plain(), Own()),
    "a script": lambda: torch.jit.trace(plain().eval(), torch.rand(1, 1, 8, 8)),  # type: ignore[no-untyped-call]
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("what", OPAQUE)
def test_what_cannot_be_read_is_new_each_time(what: str) -> None:
    """A closure, a class attribute, a method put in its place or a helper's function change it, and no weight does."""
    network = OPAQUE[what]()
    assert uri_of(network) != uri_of(network)


def test_a_class_that_computes_something_else_now_is_measured_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Own()
    before = uri_of(network)
    monkeypatch.setattr(Own, "gain", -1.0)
    assert uri_of(network) != before


def test_a_copy_is_held_and_only_as_long_as_it_is_needed() -> None:
    network = changed(lambda network: None)
    with held(network, "net") as uri:
        spec = ModelSpec("net", uri)
        digest = fingerprint(spec)
        images = torch.rand(2, 1, 8, 8)
        expected = plain().eval()(images)
        next(network.parameters()).data.add_(1)
        loaded = load_model(spec)
        assert fingerprint(spec) == digest == loaded.digest
        assert loaded.network is not None
        torch.testing.assert_close(loaded.network(images), expected), "the copy of before"
        assert network.training
    with pytest.raises(SourceError, match="a network that this process holds"):
        load_model(spec)


def test_what_is_no_network_is_refused() -> None:
    with pytest.raises(SourceError, match=r"net: expected a torch\.nn\.Module, found dict"), held({}, "net"):
        pass
