"""PRBench's CNN for MNIST: two convolutions, dropout, two linear layers."""

from __future__ import annotations

from torch import nn


def simple_cnn(classes: int = 10, width: float = 1.0, channels: int = 1, size: int = 28) -> nn.Sequential:
    """(N, channels, size, size) to logits (N, classes).

    3x3 convolutions without padding with 32 and 64 channels, a maximum over 2x2, then 128 hidden units, all times
    `width`; 1,199,882 parameters on MNIST. PRBench gives channels, kernels, units and the number of weights; where the
    pool stands, and the dropout of 0.25 and 0.5, are those of PyTorch's MNIST example, which has that number.
    """
    first, second, hidden = (max(1, round(width * n)) for n in (32, 64, 128))
    side = (size - 4) // 2
    return nn.Sequential(
        nn.Conv2d(channels, first, 3),
        nn.ReLU(),
        nn.Conv2d(first, second, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.25),
        nn.Flatten(),
        nn.Linear(second * side * side, hidden),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(hidden, classes),
    )
