"""Small networks whose decision boundaries are known, for the tests of attacks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch


@dataclass
class Plane:
    """A linear classifier over flattened images, with distances to its boundary in closed form."""

    weights: torch.Tensor
    seen: list[torch.Tensor] = field(default_factory=list)

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        self.seen.append(images.detach().clone())
        return (images - 0.5).flatten(1) @ self.weights.T

    def distances(self, images: torch.Tensor, labels: torch.Tensor, order: float) -> np.ndarray[Any, Any]:
        """min_k (z_y - z_k) / |w_y - w_k|_dual for correctly classified images, where [0, 1] does not bind."""
        points, weights = (images.double() - 0.5).flatten(1).numpy(), self.weights.double().numpy()
        result = []
        for point, label in zip(points, labels.numpy(), strict=True):
            gaps = [
                (weights[label] - other) @ point / np.linalg.norm(weights[label] - other, ord=order)
                for k, other in enumerate(weights)
                if k != label
            ]
            result.append(min(gaps))
        return np.array(result)


@pytest.fixture
def plane() -> Callable[[int], tuple[Plane, torch.Tensor, torch.Tensor, np.ndarray[Any, Any]]]:
    """For K classes: a plane, 24 images of 1x6x6 near grey, the labels it gives them (all correct), and ids."""

    def make(classes: int) -> tuple[Plane, torch.Tensor, torch.Tensor, np.ndarray[Any, Any]]:
        source = torch.Generator().manual_seed(classes)
        network = Plane(torch.randn(classes, 36, generator=source))
        images = 0.5 + 0.05 * torch.randn(24, 1, 6, 6, generator=source).clamp(-3, 3)
        labels = network(images).argmax(1)
        network.seen.clear()
        return network, images, labels, np.arange(100, 124)

    return make
