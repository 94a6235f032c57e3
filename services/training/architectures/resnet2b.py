"""ResNet-2b of the Verification of Neural Networks Competition: two residual blocks without batch norm."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F


class PlainBlock(nn.Module):
    """Two 3x3 convolutions with bias; the shortcut is a 1x1 convolution where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1)
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Sequential() if same else nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.conv2(F.relu(self.conv1(x))) + self.shortcut(x))


class ResNet2b(nn.Module):
    """(N, 3, 32, 32) to logits (N, classes)."""

    def __init__(self, classes: int, width: float) -> None:
        super().__init__()
        first, second, hidden = (max(1, round(width * n)) for n in (8, 16, 100))
        self.conv1 = nn.Conv2d(3, first, 3, 2, 1)
        self.layer1 = nn.Sequential(PlainBlock(first, second, 2), PlainBlock(second, second, 1))
        self.linear1 = nn.Linear(64 * second, hidden)
        self.linear2 = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        out = self.layer1(F.relu(self.conv1(x)))
        logits: Tensor = self.linear2(F.relu(self.linear1(out.flatten(1))))
        return logits


def resnet2b(classes: int = 10, width: float = 1.0) -> ResNet2b:
    """At width 1 the network of `cifar10_resnet2b`: 112,006 parameters."""
    return ResNet2b(classes, width)
