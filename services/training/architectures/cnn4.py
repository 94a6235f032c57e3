"""The 4-layer CNN of robust training on small images (Wong & Kolter 2018): two convolutions, two linear layers."""

from __future__ import annotations

from torch import nn


def cnn4(classes: int = 10, width: float = 1.0, channels: int = 1, size: int = 28) -> nn.Sequential:
    """(N, channels, size, size) to logits (N, classes).

    4x4 convolutions with stride 2 and 16 and 32 channels, then 100 hidden units, all times `width`; 166,406 parameters
    on MNIST. No batch norm and no dropout.
    """
    first, second, hidden = (max(1, round(width * n)) for n in (16, 32, 100))
    side = size // 2 // 2
    return nn.Sequential(
        nn.Conv2d(channels, first, 4, 2, 1),
        nn.ReLU(),
        nn.Conv2d(first, second, 4, 2, 1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(second * side * side, hidden),
        nn.ReLU(),
        nn.Linear(hidden, classes),
    )
