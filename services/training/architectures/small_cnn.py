"""A small convolutional network for digits and other tiny images; trains in seconds on a CPU."""

from __future__ import annotations

from torch import nn


def small_cnn(channels: int = 1, classes: int = 10, width: int = 16, size: int = 8) -> nn.Sequential:
    """(N, channels, size, size) to logits (N, classes).

    Two 3x3 convolutions, the second with stride 2, and two linear layers; no batch norm and no dropout, so that
    training and evaluation mode are the same function.
    """
    half = (size + 1) // 2
    return nn.Sequential(
        nn.Conv2d(channels, width, 3, 1, 1),
        nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, 2, 1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(2 * width * half * half, 4 * width),
        nn.ReLU(),
        nn.Linear(4 * width, classes),
    )
