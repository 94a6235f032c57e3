"""Networks that name the colour of an image, sound and broken."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from services.loading.models.contract import ContractedNetwork
from services.loading.preflight.look import preflight
from services.loading.protocols import LoadedModel
from services.loading.samples.source import SelectedSamples
from services.records import ModelSpec

CLASSES = ("red", "green", "blue")


class Colours(nn.Module):
    """Mean of each channel, times ten: right about images that are mostly of one colour."""

    def __init__(self, gain: float = 10.0) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.tensor(gain))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean(dim=(2, 3)) * self.gain


def colour_samples(count: int = 90, *, classes: tuple[str, ...] = CLASSES) -> SelectedSamples:
    """Noise in which the channel of the label is brighter."""
    rng = np.random.default_rng(0)
    labels = np.arange(count) % 3
    images = rng.random((count, 3, 4, 4), dtype=np.float32) * 0.5
    images[np.arange(count), labels] += 0.4
    return SelectedSamples(
        labels, np.arange(count), classes, {}, "d", {}, (3, 4, 4), lambda start, stop: images[start:stop].copy()
    )


def loaded(network: Any, **spec: Any) -> LoadedModel:
    made = ModelSpec("m", "factory:none:none", **spec)
    wrapped = ContractedNetwork(network, made.input, made.outputs, made.output, made.name)
    return LoadedModel(made, wrapped, "digest")


def text(network: Any, samples: SelectedSamples | None = None, **spec: Any) -> str:
    _, problems = preflight(loaded(network, **spec), samples or colour_samples(), device="cpu")
    return "\n".join(str(problem) for problem in problems)
