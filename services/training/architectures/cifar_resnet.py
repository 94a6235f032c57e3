"""The residual networks of He et al. 2016 (section 4.2) for 32x32 images: 6n + 2 layers, parameter-free shortcuts."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with batch norm and a shortcut (option A of the paper).

    Where the shape changes the shortcut takes every second pixel and pads the channels with zeros, half before and half
    after.
    """

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.stride, self.padding = stride, (outputs - inputs) // 2

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return F.relu(out + self.shortcut(x))

    def shortcut(self, x: Tensor) -> Tensor:
        """The input, brought to the output's shape without parameters."""
        if self.stride == 1 and self.padding == 0:
            return x
        return F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.padding, self.padding))


class CifarResNet(nn.Module):
    """(N, 3, 32, 32) to logits (N, classes); three stages of n blocks with 16, 32, 64 channels."""

    def __init__(self, n: int, classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = _stage(16, 16, n, 1)
        self.layer2 = _stage(16, 32, n, 2)
        self.layer3 = _stage(32, 64, n, 2)
        self.linear = nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.layer3(self.layer2(self.layer1(out)))
        logits: Tensor = self.linear(torch.mean(out, dim=(2, 3)))
        return logits


def cifar_resnet(n: int = 3, classes: int = 10) -> CifarResNet:
    """ResNet-(6n + 2): n = 3 is ResNet-20, n = 9 is ResNet-56."""
    return CifarResNet(n, classes)


def _stage(inputs: int, outputs: int, n: int, stride: int) -> nn.Sequential:
    return nn.Sequential(BasicBlock(inputs, outputs, stride), *(BasicBlock(outputs, outputs, 1) for _ in range(n - 1)))
