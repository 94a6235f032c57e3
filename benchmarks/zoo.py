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

from services.training.architectures.build import build


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


def _architecture(arch: dict[str, Any]) -> nn.Module:
    if arch["type"] == "sequential":
        return build("sequential", seed=0, layers=json.dumps(arch["layers"]))
    return (
        build("cifar_resnet", seed=0, n=arch["args"][0])
        if arch["type"] == "cifar_resnet"
        else build("resnet2b", seed=0)
    )


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
