"""Wide residual networks (Zagoruyko & Komodakis 2016), by default WRN-28-10."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class WideBlock(nn.Module):
    """Batch norm and relu before each of two 3x3 convolutions; a projecting shortcut starts after the first relu."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.shortcut = None if inputs == outputs else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        active = F.relu(self.bn1(x))
        out: Tensor = self.conv2(F.relu(self.bn2(self.conv1(active))))
        return out + (x if self.shortcut is None else self.shortcut(active))


class WideResNet(nn.Module):
    """(N, channels, H, W) to logits (N, classes); three stages of (depth - 4) / 6 blocks, strides 1, 2, 2."""

    def __init__(self, depth: int, classes: int, width: float, channels: int) -> None:
        super().__init__()
        count = (depth - 4) // 6
        sizes = [max(1, round(width * n)) for n in (160, 320, 640)]
        self.conv1 = nn.Conv2d(channels, 16, 3, 1, 1, bias=False)
        self.layer1 = _stage(16, sizes[0], count, 1)
        self.layer2 = _stage(sizes[0], sizes[1], count, 2)
        self.layer3 = _stage(sizes[1], sizes[2], count, 2)
        self.bn = nn.BatchNorm2d(sizes[2])
        self.linear = nn.Linear(sizes[2], classes)

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn(self.layer3(self.layer2(self.layer1(self.conv1(x))))))
        logits: Tensor = self.linear(torch.mean(out, dim=(2, 3)))
        return logits


def wrn28_10(classes: int = 10, width: float = 1.0, channels: int = 3, depth: int = 28) -> WideResNet:
    """36,479,194 parameters for 10 classes at width 1, which is ten times the channels of the plain network."""
    return WideResNet(depth, classes, width, channels)


def _stage(inputs: int, outputs: int, count: int, stride: int) -> nn.Sequential:
    first = WideBlock(inputs, outputs, stride)
    return nn.Sequential(first, *(WideBlock(outputs, outputs, 1) for _ in range(count - 1)))
