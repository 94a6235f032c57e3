"""Brightness, contrast and colourfulness of images (N, 3, H, W) or (N, 1, H, W) in [0, 1]."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.numerics.arguments import Floats, fault

LUMA = np.array([0.299, 0.587, 0.114])
"""Weights of red, green and blue in brightness, ITU-R BT.601."""


def brightness(images: NDArray[Any]) -> Floats:
    """(N,) mean luma in [0, 1]."""
    return np.asarray(_luma(images).mean(axis=(1, 2)))


def contrast(images: NDArray[Any]) -> Floats:
    """(N,) standard deviation of the luma in [0, 0.5] (RMS contrast)."""
    return np.asarray(_luma(images).std(axis=(1, 2)))


def colour(images: NDArray[Any]) -> Floats:
    """(N,) colourfulness of Hasler & Suesstrunk (2003), of values in [0, 1] instead of [0, 255]; 0 for grey.

    ``sqrt(var(rg) + var(yb)) + 0.3 sqrt(mean(rg)**2 + mean(yb)**2)``, ``rg = R - G``, ``yb = (R + G) / 2 - B``.
    """
    array = _checked(images)
    if array.shape[1] != 3:
        raise fault("images", "3 channels for the attribute colour", f"{array.shape[1]}")
    red, green, blue = np.moveaxis(array, 1, 0)
    parts = np.stack([red - green, (red + green) / 2.0 - blue], axis=1)
    spread = np.sqrt(parts.var(axis=(2, 3)).sum(axis=1))
    return np.asarray(spread + 0.3 * np.sqrt((parts.mean(axis=(2, 3)) ** 2).sum(axis=1)))


def _luma(images: NDArray[Any]) -> Floats:
    array = _checked(images)
    return np.asarray(np.tensordot(LUMA, array, axes=(0, 1))) if array.shape[1] == 3 else array[:, 0]


def _checked(images: NDArray[Any]) -> Floats:
    array = np.asarray(images, dtype=np.float64)
    if array.ndim != 4 or array.shape[1] not in (1, 3):
        raise fault("images", "shape (N, C, H, W) with C of 1 or 3", f"shape {array.shape}")
    return array
