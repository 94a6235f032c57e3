"""The registry of architectures that `train` builds: one line an architecture, torch imported at first use."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from services.errors import ConfigError, Problem
from services.registry import Registry, did_you_mean

if TYPE_CHECKING:
    from torch import nn

_HERE = "services.training.architectures"

ARCHITECTURES: Registry[Callable[..., nn.Module]] = Registry(
    "architecture",
    "classwise.architectures",
    {
        "cifar_resnet": f"{_HERE}.cifar_resnet:cifar_resnet",
        "cnn4": f"{_HERE}.cnn4:cnn4",
        "deit_s": f"{_HERE}.vit:deit_s",
        "deit_t": f"{_HERE}.vit:deit_t",
        "mobile": f"{_HERE}.mobile:mobile",
        "resnet18": f"{_HERE}.resnet18:resnet18",
        "resnet2b": f"{_HERE}.resnet2b:resnet2b",
        "resnet34": f"{_HERE}.resnet18:resnet34",
        "sequential": f"{_HERE}.sequential:sequential",
        "small_cnn": f"{_HERE}.small_cnn:small_cnn",
        "vgg19": f"{_HERE}.vgg:vgg19",
        "vit_b": f"{_HERE}.vit:vit_b",
        "vit_l": f"{_HERE}.vit:vit_l",
        "vit_s": f"{_HERE}.vit:vit_s",
        "wrn28_10": f"{_HERE}.wrn:wrn28_10",
    },
)


def build(name: str, *, seed: int, **options: Any) -> nn.Module:
    """A freshly initialised network, the same for the same seed; the global generator is left as it was.

    Raises:
        ConfigError: the name, or an option of the architecture, is unknown.
    """
    factory = ARCHITECTURES.get(name)
    known = list(inspect.signature(factory).parameters)
    wrong = [option for option in options if option not in known]
    if wrong:
        raise ConfigError(
            [Problem(f"{name}.{option}", "an option of it", "no such", did_you_mean(option, known)) for option in wrong]
        )
    import torch

    from services.training.keys import Purpose, number, seed_layers

    with torch.random.fork_rng(devices=[]):
        seed_layers(torch.device("cpu"), number(seed, Purpose.WEIGHTS))
        return factory(**options)
