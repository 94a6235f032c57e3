"""Images with known generating factors, and a classifier whose dependence on each is known in closed form.

The decoder paints D factors into D equal bands of an image: the pixels of band d all have the value ``(1 + tanh z_d) /
2``. A linear classifier of two classes reads the bands back and has the logit difference

::

    f(z) = b + sum_d w_d artanh(2 pixel_d - 1) = b + sum_d w_d z_d

so that the label flips along dimension d exactly where f = 0: at ``z_d = -(b + sum_{e != d} w_e z_e) / w_d``. What the
measure finds by moving images through networks is held against that.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

EDGE = 1e-6
"""Pixels are kept this far inside (0, 1), where artanh is finite: factors in (-7, 7) come back."""


class Bands(nn.Module):
    """Encoder and decoder in closed form: factors (n, D) to images (n, 1, height D, width) and back, in float64.

    Attributes:
        centre, unit: (D,) zeros and ones.
    """

    centre: Tensor
    unit: Tensor

    def __init__(self, factors: int = 3, height: int = 2, width: int = 4) -> None:
        super().__init__()
        self.height, self.width = height, width
        self.register_buffer("centre", torch.zeros(factors))
        self.register_buffer("unit", torch.ones(factors))

    def decode(self, latents: Tensor) -> Tensor:
        """(n, D) to (n, 1, height D, width)."""
        pixels = ((1.0 + latents.double().tanh()) / 2.0).repeat_interleave(self.height, dim=1)
        return pixels[:, None, :, None].expand(-1, 1, -1, self.width)

    def encode(self, images: Tensor) -> Tensor:
        """The inverse of `decode`."""
        return read_bands(images, self.height)


class BandClassifier(nn.Module):
    """Two classes with logits ``(0, b + sum_d w_d z_d)`` of the factors read back from an image."""

    weights: Tensor

    def __init__(self, weights: Sequence[float], bias: float = 0.0, height: int = 2) -> None:
        super().__init__()
        self.register_buffer("weights", torch.tensor(weights, dtype=torch.float64))
        self.bias, self.height = bias, height

    def forward(self, images: Tensor) -> Tensor:
        """(n, 1, height D, width) to (n, 2)."""
        score = read_bands(images, self.height).double() @ self.weights + self.bias
        return torch.stack([torch.zeros_like(score), score], dim=1)


def read_bands(images: Tensor, height: int) -> Tensor:
    """Factors (n, D) of images made of bands of so many rows."""
    bands = images.double().mean(dim=(1, 3)).view(len(images), -1, height).mean(dim=2)
    return torch.atanh(2.0 * bands.clamp(EDGE, 1.0 - EDGE) - 1.0)


def analytic_moves(
    latents: NDArray[np.float64], weights: Sequence[float], bias: float = 0.0
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Where the label flips: moves (n, D, 2) down and up from 0 in [0, 1], and which directions never flip, (n, D, 2).

    Along dimension d the score is ``c_d + w_d z_d`` with ``c_d = b + sum_{e != d} w_e z_e``. It vanishes at
    ``r = -c_d / w_d``, which lies on one side of the centre 0: below when r < 0, above when r > 0.
    """
    slope = np.asarray(weights, dtype=np.float64)
    rest = (latents @ slope + bias)[:, None] - latents * slope
    with np.errstate(divide="ignore"):
        root = np.where(slope != 0, -rest / np.where(slope != 0, slope, 1.0), np.inf)
    moves = np.stack([np.where(root < 0, -root, np.inf), np.where(root > 0, root, np.inf)], axis=2)
    return np.minimum(moves, 1.0), moves > 1.0
