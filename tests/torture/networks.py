"""A network of dense layers and batch norm, beside the convolutions of `services.training.architectures`."""

from __future__ import annotations

from torch import nn


def dense_bn(width: int = 32) -> nn.Sequential:
    """(N, 1, 8, 8) to logits (N, 10)."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 10))
