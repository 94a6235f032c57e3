"""The small CIFAR-10 networks of the shared data folder, as functions of images in [0, 1]."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

LAYERS = {
    "conv": lambda i, o, k, s, p: nn.Conv2d(i, o, k, s, p),
    "linear": nn.Linear,
    "relu": nn.ReLU,
    "sigmoid": nn.Sigmoid,
    "flatten": nn.Flatten,
    "maxpool": nn.MaxPool2d,
}


class Block(nn.Module):
    """Basic block of a CIFAR ResNet; the shortcut has no parameters."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
        self.stride, self.extra = stride, outputs - inputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(x)))))
        if self.extra:
            half = self.extra // 2
            x = functional.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, half, half))
        return functional.relu(out + x)


class CifarResNet(nn.Module):
    """ResNet-20, -32, ... of He et al. for 32x32 images."""

    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
        for index, (inputs, outputs) in enumerate(((16, 16), (16, 32), (32, 64))):
            stage = [Block(inputs if b == 0 else outputs, outputs, 2 if b == 0 and index else 1) for b in range(blocks)]
            setattr(self, f"layer{index + 1}", nn.Sequential(*stage))
        self.linear = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.relu(self.bn1(self.conv1(x)))
        for layer in (self.layer1, self.layer2, self.layer3):
            x = layer(x)
        return self.linear(x.mean((2, 3)))


class Normalised(nn.Module):
    """(x - mean) / std, then the network."""

    def __init__(self, body: nn.Module, mean: list[float], std: list[float]) -> None:
        super().__init__()
        self.body, self.count = body, 0
        self.register_buffer("mean", torch.tensor(mean).view(1, -1, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(1, -1, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += len(x)
        return self.body((x - self.mean) / self.std)


def load(folder: Path, name: str) -> Normalised:
    """Network `name` of networks.json (sequential or cifar_resnet), in eval mode; counts the images it sees."""
    entries = json.loads((folder / "networks" / "networks.json").read_text())
    entries = entries if isinstance(entries, list) else entries["networks"]
    entry: dict[str, Any] = next(e for e in entries if e["id"] == name)
    arch = entry["arch"]
    if arch["type"] == "sequential":
        body: nn.Module = nn.Sequential(*(LAYERS[kind](*args) for kind, *args in arch["layers"]))
    else:
        body = CifarResNet(*arch["args"])
    body.load_state_dict(torch.load(folder / entry["file"], weights_only=True))
    contract = entry["input"]
    return Normalised(body, contract["mean"], contract["std"]).eval()


def images(folder: Path, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The first `count` CIFAR-10 test images, (count, 3, 32, 32) in [0, 1], and their labels."""
    with np.load(folder / "cifar10" / "test.npz") as data:
        pixels, labels = data["images"][:count], data["labels"][:count]
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).float().div(255).contiguous(), torch.from_numpy(labels)
