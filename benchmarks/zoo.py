"""The small pretrained networks of the shared data folder, for benchmarks and tests of attacks.

Networks take images in [0, 1] and normalise inside. This is no part of the product, which loads models from URIs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


class Normalised(nn.Module):
    """(x - mean) / std, then the network."""

    def __init__(self, network: nn.Module, mean: list[float], std: list[float]) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("mean", torch.tensor(mean).view(1, -1, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(1, -1, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.network((x - self.mean) / self.std)
        return logits


class Counted(nn.Module):
    """A network that counts the images it sees."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network, self.count = network, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += len(x)
        logits: torch.Tensor = self.network(x)
        return logits


class CifarBlock(nn.Module):
    """Two 3x3 convolutions with batch norm and a shortcut without parameters."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)
        self.pad = (outside - inside) // 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        if self.pad:
            x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.pad, self.pad))
        return F.relu(y + x)


class CifarResNet(nn.Module):
    """The residual networks of He et al. for 32x32 images: 6n + 2 layers."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        widths = [(16, 16, 1), (16, 32, 2), (32, 64, 2)]
        for number, (inside, outside, stride) in enumerate(widths, 1):
            first = CifarBlock(inside, outside, stride)
            rest = [CifarBlock(outside, outside, 1) for _ in range(n - 1)]
            self.add_module(f"layer{number}", nn.Sequential(first, *rest))
        self.linear = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        logits: torch.Tensor = self.linear(x.mean(dim=(2, 3)))
        return logits


class PlainBlock(nn.Module):
    """Two 3x3 convolutions without batch norm; a 1x1 convolution where the shape changes."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1)
        change = stride != 1 or inside != outside
        self.shortcut = nn.Sequential(nn.Conv2d(inside, outside, 1, stride)) if change else nn.Sequential()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.conv2(F.relu(self.conv1(x))) + self.shortcut(x))


class ResNet2b(nn.Module):
    """The residual network with two blocks of VNN-COMP 2021."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, 2, 1)
        self.layer1 = nn.Sequential(PlainBlock(8, 16, 2), PlainBlock(16, 16, 1))
        self.linear1, self.linear2 = nn.Linear(1024, 100), nn.Linear(100, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.layer1(F.relu(self.conv1(x))).flatten(1)
        logits: torch.Tensor = self.linear2(F.relu(self.linear1(x)))
        return logits


def _layer(kind: str, *sizes: int) -> nn.Module:
    makers: dict[str, Any] = {
        "conv": nn.Conv2d,
        "linear": nn.Linear,
        "maxpool": nn.MaxPool2d,
        "relu": nn.ReLU,
        "sigmoid": nn.Sigmoid,
        "flatten": nn.Flatten,
    }
    module: nn.Module = makers[kind](*sizes)
    return module


def _architecture(arch: dict[str, Any]) -> nn.Module:
    if arch["type"] == "sequential":
        return nn.Sequential(*(_layer(*layer) for layer in arch["layers"]))
    return CifarResNet(*arch["args"]) if arch["type"] == "cifar_resnet" else ResNet2b()


def entries(data: Path, dataset: str) -> list[dict[str, Any]]:
    """The catalogue's entries for one data set."""
    catalogue: list[dict[str, Any]] = json.loads((data / "networks" / "networks.json").read_text())
    return [entry for entry in catalogue if entry["dataset"] == dataset]


def load(data: Path, name: str) -> nn.Module:
    """One network by its id, in eval mode, mapping images in [0, 1] to logits."""
    catalogue: list[dict[str, Any]] = json.loads((data / "networks" / "networks.json").read_text())
    entry = next(entry for entry in catalogue if entry["id"] == name)
    network = _architecture(entry["arch"])
    network.load_state_dict(torch.load(data / entry["file"], weights_only=True))
    return Normalised(network, entry["input"]["mean"], entry["input"]["std"]).eval()


def audited(data: str, name: str) -> nn.Module:
    """`load` as a `factory:` source calls it."""
    return load(Path(data), name)


def images(data: Path, file: str, rows: slice | list[int]) -> tuple[torch.Tensor, torch.Tensor, np.ndarray[Any, Any]]:
    """Images (n, C, H, W) in [0, 1], labels (n,) and ids (n,) of rows of an npz file below the data folder."""
    with np.load(data / file) as archive:
        pixels, labels = archive["images"], archive["labels"]
    ids = np.arange(len(labels), dtype=np.int64)[rows]
    x = torch.from_numpy(np.ascontiguousarray(pixels[rows])).permute(0, 3, 1, 2).float().div(255).contiguous()
    return x, torch.from_numpy(labels[rows].astype(np.int64)), ids
