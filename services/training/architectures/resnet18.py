"""ResNet-18 and -34 (He et al. 2016) with the stem of small images: one 3x3 convolution and no pool."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Block(nn.Module):
    """Two 3x3 convolutions with batch norm; the shortcut is a 1x1 convolution where the shape changes (option B)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        same = stride == 1 and inputs == outputs
        projection = (nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        self.shortcut = nn.Sequential() if same else nn.Sequential(*projection)

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(out + self.shortcut(x))


class ResNet(nn.Module):
    """(N, channels, H, W) to logits (N, classes); four stages of basic blocks, strides 1, 2, 2, 2."""

    def __init__(self, blocks: tuple[int, int, int, int], classes: int, width: float, channels: int) -> None:
        super().__init__()
        sizes = [max(1, round(width * n)) for n in (64, 128, 256, 512)]
        self.conv1 = nn.Conv2d(channels, sizes[0], 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(sizes[0])
        inputs = [sizes[0], *sizes[:3]]
        stages = [_stage(inputs[i], sizes[i], blocks[i], 1 if i == 0 else 2) for i in range(4)]
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.linear = nn.Linear(sizes[3], classes)

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.layer4(self.layer3(self.layer2(self.layer1(out))))
        logits: Tensor = self.linear(torch.mean(out, dim=(2, 3)))
        return logits


def resnet18(classes: int = 10, width: float = 1.0, channels: int = 3) -> ResNet:
    """11,173,962 parameters for 10 classes at width 1."""
    return ResNet((2, 2, 2, 2), classes, width, channels)


def resnet34(classes: int = 10, width: float = 1.0, channels: int = 3) -> ResNet:
    """21,282,122 parameters for 10 classes at width 1."""
    return ResNet((3, 4, 6, 3), classes, width, channels)


def _stage(inputs: int, outputs: int, count: int, stride: int) -> nn.Sequential:
    return nn.Sequential(Block(inputs, outputs, stride), *(Block(outputs, outputs, 1) for _ in range(count - 1)))
