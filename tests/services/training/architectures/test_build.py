"""Architectures: published parameter counts at full size, shapes and a training step when tiny."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from services.errors import ConfigError
from services.training.architectures.build import ARCHITECTURES, build
from services.training.methods import method_from
from services.training.step import Batch

TIMM = pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning")
"""timm uses what this torch has deprecated."""

COUNTS = {
    "cnn4": 166_406,
    "simple_cnn": 1_199_882,
    "vgg19": 20_040_522,
    "resnet18": 11_173_962,
    "resnet34": 21_282_122,
    "wrn28_10": 36_479_194,
}
TIMM_COUNTS = {
    "vit_s": 22_050_664,
    "vit_b": 86_567_656,
    "vit_l": 304_326_632,
    "deit_t": 5_717_416,
    "deit_s": 22_050_664,
}
TINY: dict[str, dict[str, Any]] = {
    "cnn4": {"width": 0.25, "channels": 3, "size": 32},
    "simple_cnn": {"width": 0.25, "channels": 3, "size": 32},
    "vgg19": {"width": 1 / 32},
    "mobile": {"width": 0.25},
    "resnet18": {"width": 1 / 16},
    "resnet34": {"width": 1 / 16},
    "wrn28_10": {"width": 0.05, "depth": 10},
}
TINY_TIMM = {name: {"width": 0.01, "size": 32, "patch": 8, "depth": 2} for name in TIMM_COUNTS}


def parameters(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def check_step(name: str, options: dict[str, Any]) -> None:
    network = build(name, seed=0, classes=7, **options)
    images = torch.rand(4, 3, 32, 32)
    assert network(images).shape == (4, 7)
    batch = Batch(images, torch.arange(4), 7, torch.Generator().manual_seed(0))
    method = method_from({"name": "pgd", "budget": {"steps": 1}})
    method.step(network, batch).loss.backward()  # type: ignore[no-untyped-call]
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in network.parameters())


@pytest.mark.parametrize("name", COUNTS)
def test_full_size_has_the_published_number_of_parameters(name: str) -> None:
    with torch.device("meta"):
        network = ARCHITECTURES.get(name)(classes=10)
    assert parameters(network) == COUNTS[name]
    shape = (1, 28, 28) if name in ("cnn4", "simple_cnn") else (3, 32, 32)
    images = torch.empty(2, *shape, device="meta")
    assert network(images).shape == (2, 10)


@pytest.mark.parametrize("name", TINY)
def test_a_tiny_version_trains(name: str) -> None:
    check_step(name, TINY[name])


@TIMM
@pytest.mark.usefixtures("torchvision_operators")
@pytest.mark.parametrize("name", TIMM_COUNTS)
def test_transformers_have_the_published_number_of_parameters(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "linspace", partial(torch.linspace, device="cpu"))
    with torch.device("meta"):
        network = ARCHITECTURES.get(name)(classes=1000)
    assert parameters(network) == TIMM_COUNTS[name]


@TIMM
@pytest.mark.usefixtures("torchvision_operators")
@pytest.mark.parametrize("name", TINY_TIMM)
def test_a_tiny_transformer_trains(name: str) -> None:
    check_step(name, TINY_TIMM[name])


def test_building_is_seeded_and_leaves_the_global_generator_alone() -> None:
    before = torch.random.get_rng_state()
    nets = [build("cnn4", seed=seed, width=0.1).state_dict() for seed in (1, 1, 2)]
    assert all(torch.equal(nets[0][name], nets[1][name]) for name in nets[0])
    assert not torch.equal(nets[0]["0.weight"], nets[2]["0.weight"])
    assert torch.equal(torch.random.get_rng_state(), before)


def test_unknown_names_and_options_are_refused() -> None:
    with pytest.raises(ConfigError, match="did you mean 'resnet18'"):
        build("resnet-18", seed=0)
    with pytest.raises(ConfigError, match="did you mean 'width'"):
        build("cnn4", seed=0, witdh=2)
