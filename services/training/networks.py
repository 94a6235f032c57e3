"""The registry of architectures: one line an architecture. Listing them imports no torch, which the package does."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from services.registry import Registry

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
        "sequential": f"{_HERE}.layers:sequential",
        "simple_cnn": f"{_HERE}.simple_cnn:simple_cnn",
        "small_cnn": f"{_HERE}.small_cnn:small_cnn",
        "vgg19": f"{_HERE}.vgg:vgg19",
        "vit_b": f"{_HERE}.vit:vit_b",
        "vit_l": f"{_HERE}.vit:vit_l",
        "vit_s": f"{_HERE}.vit:vit_s",
        "wrn28_10": f"{_HERE}.wrn:wrn28_10",
    },
)
