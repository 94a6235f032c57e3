"""A MobileNet-like network (Sandler et al. 2018) for small images: inverted residuals with depthwise convolutions."""

from __future__ import annotations

from torch import Tensor, nn


class Inverted(nn.Module):
    """Expand by `factor`, filter each channel by itself, project; with a shortcut where the shape stays."""

    def __init__(self, inputs: int, outputs: int, stride: int, factor: int = 4) -> None:
        super().__init__()
        inside = factor * inputs
        self.body = nn.Sequential(
            nn.Conv2d(inputs, inside, 1, bias=False),
            nn.BatchNorm2d(inside),
            nn.ReLU6(),
            nn.Conv2d(inside, inside, 3, stride, 1, groups=inside, bias=False),
            nn.BatchNorm2d(inside),
            nn.ReLU6(),
            nn.Conv2d(inside, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.same = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.body(x)
        return x + out if self.same else out


def mobile(classes: int = 10, width: float = 1.0, channels: int = 3) -> nn.Sequential:
    """(N, channels, H, W) to logits (N, classes), for images of 16 to 64 pixels; a stem and six inverted residuals."""
    first, second, third = (max(4, round(width * n)) for n in (16, 24, 48))
    return nn.Sequential(
        nn.Conv2d(channels, first, 3, 1, 1, bias=False),
        nn.BatchNorm2d(first),
        nn.ReLU6(),
        Inverted(first, first, 1),
        Inverted(first, second, 2),
        Inverted(second, second, 1),
        Inverted(second, third, 2),
        Inverted(third, third, 1),
        Inverted(third, third, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(third, classes),
    )
