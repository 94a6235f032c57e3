"""VGG-19 with batch norm (Simonyan & Zisserman 2015, configuration E) and the stem and head of small images."""

from __future__ import annotations

from torch import nn

STAGES = ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4))
"""(channels, 3x3 convolutions) of each stage; a 2x2 pool ends it."""


def vgg19(classes: int = 10, width: float = 1.0, channels: int = 3) -> nn.Sequential:
    """(N, channels, H, W) to logits (N, classes); H and W at least 32.

    Sixteen convolutions, an average over what is left of the image, one linear layer: 20,040,522 parameters for 10
    classes. `width` multiplies the channels.
    """
    layers: list[nn.Module] = []
    inputs = channels
    for outputs, count in STAGES:
        outputs = max(1, round(width * outputs))
        for _ in range(count):
            layers += [nn.Conv2d(inputs, outputs, 3, 1, 1), nn.BatchNorm2d(outputs), nn.ReLU()]
            inputs = outputs
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))
