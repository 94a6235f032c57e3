"""Attributes of images that need no network: how bright, flat, sharp and colourful each is."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.numerics.arguments import Floats


def pixel_attributes(images: NDArray[Any]) -> dict[str, Floats]:
    """Of images (n, C, H, W) in [0, 1] each (n,), by name.

    `brightness` is the mean, `contrast` the standard deviation of the grey image, `sharpness` the mean absolute
    difference of neighbouring pixels over the contrast, `edge weight` how much darker or brighter the outer quarter of
    the image is than its middle, and `colourfulness`, of three channels alone, the mean spread of a pixel's channels.
    """
    values = np.asarray(images, dtype=np.float64)
    grey = values.mean(axis=1)
    contrast = grey.std(axis=(1, 2))
    steps = [np.abs(np.diff(grey, axis=axis)).mean(axis=(1, 2)) for axis in (1, 2) if grey.shape[axis] > 1]
    rough = np.mean(steps, axis=0) if steps else np.zeros(len(grey))
    attributes = {
        "brightness": grey.mean(axis=(1, 2)),
        "contrast": contrast,
        "sharpness": np.divide(rough, contrast, out=np.zeros_like(rough), where=contrast > 1e-9),
        "edge weight": _edge(grey),
    }
    return {**attributes, "colourfulness": values.std(axis=1).mean(axis=(1, 2))} if values.shape[1] == 3 else attributes


def _edge(grey: Floats) -> Floats:
    high, wide = grey.shape[1:]
    top, left = high // 8, wide // 8
    inner = grey[:, top : high - top, left : wide - left]
    outside = high * wide - inner.shape[1] * inner.shape[2]
    if not outside:
        return np.zeros(len(grey))
    rim = (grey.sum(axis=(1, 2)) - inner.sum(axis=(1, 2))) / outside
    difference: Floats = rim - inner.mean(axis=(1, 2))
    return difference
