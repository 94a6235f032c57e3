"""Attributes of drawn digits, computed from their strokes as Morpho-MNIST does (Castro et al. 2019, section 3).

Images (N, H, W) in [0, 1], light strokes on dark. Slant and width come from the grey values; thickness and length from
the image enlarged four times, cut at half its largest value, and its skeleton.

========== ====================================================================== ==========
thickness  twice the mean distance of the skeleton to the background              pixels
length     length of the skeleton                                                 pixels
slant      ``arctan(-M11 / M02)`` of the central moments, positive to the right   degrees
width      between the 2 % and 98 % quantiles of the light across, after the
           slant is taken out                                                     pixels
========== ====================================================================== ==========

An image without light has none of them: NaN. Departures: the skeleton is Zhang & Suen's, the enlargement bilinear.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import distance_transform_edt, zoom

from services.numerics.arguments import Floats, fault
from services.numerics.attributes.thinning import lengths, thinned

SCALE = 4
BLOCK = 128
QUANTILES = (0.02, 0.98)
_WITHIN = (np.arange(SCALE) - (SCALE - 1) / 2.0) / SCALE
"""Where the light of a pixel is put: evenly over its breadth."""


def thickness(images: NDArray[Any]) -> Floats:
    """(N,) mean stroke thickness in pixels of the image; to about a quarter of a pixel."""
    return _blocks(images, lambda strokes, skeletons: mean_distance(strokes, skeletons))


def length(images: NDArray[Any]) -> Floats:
    """(N,) total length of the strokes in pixels of the image."""
    return _blocks(images, lambda strokes, skeletons: lengths(skeletons) / SCALE)


def slant(images: NDArray[Any]) -> Floats:
    """(N,) degrees in (-90, 90): 0 upright, positive leaning to the right."""
    return np.asarray(np.degrees(np.arctan(-_shear(_checked(images)))))


def width(images: NDArray[Any]) -> Floats:
    """(N,) pixels across, measured along rows after the slant is taken out."""
    light = _checked(images)
    size, rows, columns = light.shape
    total, down, across = _centred(light)
    straight = across[:, None, :] - _shear(light)[:, None, None] * down[:, :, None]
    reach, first = rows + columns, np.arange(size)[:, None, None]
    bins = 2 * reach * SCALE
    usable = np.where(np.isfinite(straight), straight, 0.0)
    mass = np.zeros(bins * size)
    for shift in _WITHIN:
        place = np.clip(((usable + shift + reach) * SCALE).astype(np.int64), 0, bins - 1) + bins * first
        mass += np.bincount(place.ravel(), weights=light.ravel() / SCALE, minlength=bins * size)
    share = np.cumsum(mass.reshape(size, bins), axis=1) / np.where(total > 0, total, 1.0)[:, None]
    low, high = ((share >= quantile - 1e-12).argmax(axis=1) for quantile in QUANTILES)
    return np.where(total > 0, (high - low + 1) / SCALE, np.nan)


def _shear(light: Floats) -> Floats:
    """(N,) ``M11 / M02`` about the centre of the light; NaN without light, 0 for one row of it."""
    total, down, across = _centred(light)
    joint = ((light @ across[:, :, None])[:, :, 0] * down).sum(axis=1)
    vertical = (light.sum(axis=2) * down**2).sum(axis=1)
    return np.where(total > 0, joint / np.where(vertical > 0, vertical, 1.0), np.nan)


def _centred(light: Floats) -> tuple[Floats, Floats, Floats]:
    """Total light (N,), and row and column coordinates (N, H), (N, W) about its centre."""
    _, height, columns = light.shape
    total = light.sum(axis=(1, 2))
    safe = np.where(total > 0, total, 1.0)
    down = np.arange(height) - (light.sum(axis=2) @ np.arange(height) / safe)[:, None]
    across = np.arange(columns) - (light.sum(axis=1) @ np.arange(columns) / safe)[:, None]
    return total, down, across


def mean_distance(strokes: NDArray[np.bool_], skeletons: NDArray[np.bool_]) -> Floats:
    """The distance of a pixel's centre to the next background pixel's is half a pixel more than to the edge."""
    padded = np.pad(strokes, ((0, 0), (1, 1), (1, 1)))
    count = skeletons.sum(axis=(1, 2))
    distances = (distance_transform_edt(image)[1:-1, 1:-1] for image in padded)
    sums = np.array([distance[skeletons[i]].sum() for i, distance in enumerate(distances)])
    mean = np.divide(sums, count, out=np.full(len(count), np.nan), where=count > 0)
    return np.asarray((2.0 * mean - 0.5) / SCALE)


def _blocks(images: NDArray[Any], measure: Any) -> Floats:
    """Apply `measure` to enlarged strokes and their skeletons, a block of images at a time."""
    light = _checked(images)
    parts = [_of_block(light[i : i + BLOCK], measure) for i in range(0, len(light), BLOCK)]
    return np.concatenate(parts) if parts else np.zeros(0)


def _of_block(light: Floats, measure: Any) -> Floats:
    large = zoom(light, (1, SCALE, SCALE), order=1, grid_mode=True, mode="grid-constant")
    most = light.max(axis=(1, 2))
    strokes = large >= most[:, None, None] / 2.0
    return np.where(most > 0, measure(strokes, thinned(strokes)), np.nan)


def _checked(images: NDArray[Any]) -> Floats:
    array = np.asarray(images, dtype=np.float64)
    if array.ndim != 3 or not np.isfinite(array).all() or (array.size and array.min() < 0):
        raise fault("images", "finite numbers of at least 0, (N, H, W)", f"shape {array.shape}")
    return array
