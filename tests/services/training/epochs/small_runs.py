"""A small network, samples and a run over them, shared by the tests of epochs."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from services.training.epochs.loop import TrainReport, train
from services.training.methods import method_from


def network(*, norm: bool = False) -> nn.Sequential:
    """A tiny network for 1x8x8 images, its weights always the same."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        middle: list[nn.Module] = [nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.2)] if norm else [nn.ReLU()]
        return nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), *middle, nn.Flatten(), nn.Linear(128, 4))


def samples(count: int = 120, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Four classes, each a bright quadrant under noise."""
    rng = np.random.default_rng(seed)
    y = np.arange(count) % 4
    x = rng.random((count, 1, 8, 8)).astype(np.float32) * 0.5
    for i, k in enumerate(y):
        x[i, 0, 4 * (k // 2) : 4 * (k // 2) + 4, 4 * (k % 2) : 4 * (k % 2) + 4] += 0.4
    return np.clip(x, 0, 1), y


def run(net: nn.Module, *, data: tuple[np.ndarray, np.ndarray] | None = None, **knobs: Any) -> TrainReport:
    x, y = data or samples()
    fields = {"method": method_from("pgd"), "epochs": 3, "batch": 16, "lr": 0.1, "weight_decay": 0.0, **knobs}
    return train(net, x, y, **fields)


def weights(net: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in net.state_dict().items()}


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


HELD: dict[str, Any] = {"validation": samples(80, 1), "attack": {"epsilon": 0.12, "step": 0.04, "steps": 4}, "lr": 0.3}
