"""Noise: images (n, H, W, C) float64 in [0, 1], one generator an image, to the same, not yet clipped."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Images = NDArray[np.float64]
Draws = Sequence[np.random.Generator]


def gaussian_noise(x: Images, draws: Draws, scale: float) -> Images:
    """x + N(0, scale^2)."""
    return x + _normal(x, draws, scale)


def shot_noise(x: Images, draws: Draws, photons: float) -> Images:
    """Poisson(photons x) / photons."""
    return np.stack([draw.poisson(image * photons) for image, draw in zip(x, draws, strict=True)]) / photons


def impulse_noise(x: Images, draws: Draws, share: float) -> Images:
    """A share of the values, each on its own, becomes 0 or 1."""
    out = x.copy()
    for image, draw in zip(out, draws, strict=True):
        struck, white = draw.random(image.shape) <= share, draw.random(image.shape) <= 0.5
        image[struck] = white[struck]
    return out


def speckle_noise(x: Images, draws: Draws, scale: float) -> Images:
    """x + x N(0, scale^2)."""
    return x + x * _normal(x, draws, scale)


def _normal(x: Images, draws: Draws, scale: float) -> Images:
    return np.stack([draw.normal(scale=scale, size=x.shape[1:]) for draw in draws])
