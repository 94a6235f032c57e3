"""Blur: images (n, H, W, C) float64 in [0, 1], one generator an image, to the same, not yet clipped."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from services.measures.corrupting.noises import Draws, Images

Kernel = NDArray[np.float64]


def gaussian(x: Images, sigma: float) -> Images:
    """A Gaussian filter of each channel, the border repeated."""
    filtered: Images = ndimage.gaussian_filter(x, (0, sigma, sigma, 0), mode="nearest", truncate=4.0)
    return filtered


def gaussian_blur(x: Images, draws: Draws, sigma: float) -> Images:
    """A Gaussian filter."""
    return gaussian(x, sigma)


def defocus_blur(x: Images, draws: Draws, disk: tuple[float, float]) -> Images:
    """Correlation with a disk."""
    filtered: Images = ndimage.correlate(x, disk_kernel(*disk)[None, :, :, None], mode="mirror")
    return filtered


def glass_blur(x: Images, draws: Draws, parameters: tuple[float, int, int]) -> Images:
    """A Gaussian filter, pixels replaced by random neighbours, and the filter again.

    Pixel by pixel from the lower right, so a pixel may travel. The authors' program means to swap the two and copies
    one over the other; the published images are made by that.
    """
    sigma, reach, rounds = parameters
    height, width = x.shape[1:3]
    pixels = (gaussian(x, sigma) * 255).astype(np.uint8)
    rows, columns = range(height - reach, reach, -1), range(width - reach, reach, -1)
    size = (rounds, len(rows), len(columns), 2)
    moves = np.stack([draw.integers(-reach, reach, size=size) for draw in draws])
    every = np.arange(len(x))
    for turn in range(rounds):
        for i, row in enumerate(rows):
            for j, column in enumerate(columns):
                across, down = moves[:, turn, i, j].T
                pixels[:, row, column] = pixels[every, row + down, column + across]
    return gaussian(pixels / 255.0, sigma)


def motion_blur(x: Images, draws: Draws, parameters: tuple[int, float]) -> Images:
    """Motion along a line at a random angle within 45 degrees of the horizontal, in whole values of 8 bits."""
    angles = [draw.uniform(-45, 45) for draw in draws]
    return np.rint(255 * moved(x, *parameters, angles)) / 255


def zoom_blur(x: Images, draws: Draws, zooms: NDArray[np.float64]) -> Images:
    """The mean of the image and of its zooms."""
    out = x + sum(zoomed(x, factor) for factor in zooms.tolist())
    return np.asarray(out / (len(zooms) + 1))


def disk_kernel(radius: float, blur: float) -> Kernel:
    """(k, k) a disk of ones that sum to 1, its edge softened by a Gaussian of standard deviation `blur`.

    Where the disk reaches the edge of the square, softening it there adds to the sum, as in the authors' program.
    """
    reach, half = (8, 1) if radius <= 8 else (int(radius), 2)
    side = np.arange(-reach, reach + 1)
    disk = (side[:, None] ** 2 + side**2 <= radius**2).astype(np.float64)
    disk /= disk.sum()
    taps = np.exp(-(np.arange(-half, half + 1) ** 2) / (2 * blur**2))
    for axis in (0, 1):
        disk = ndimage.correlate1d(disk, taps / taps.sum(), axis=axis, mode="mirror")
    used = max(1, int(np.flatnonzero(disk.sum(axis=0) > 1e-12)[-1]) - reach)
    kernel: Kernel = disk[reach - used : reach + used + 1, reach - used : reach + used + 1]
    return kernel


def moved(x: Images, radius: int, sigma: float, angles: Sequence[float]) -> Images:
    """Each image averaged along a line from the pixel on, with weights of half a Gaussian, as ImageMagick does."""
    taps = np.exp(-(np.arange(2 * radius + 1) ** 2) / (2 * sigma**2))
    taps /= taps.sum()
    height, width = x.shape[1:3]
    sines = np.array([(math.sin(math.radians(angle)), math.cos(math.radians(angle))) for angle in angles])
    every, out = np.arange(len(x))[:, None, None], np.zeros_like(x)
    for place, weight in enumerate(taps.tolist()):
        steps = np.ceil(place * sines - 0.5).astype(np.int64)
        rows = np.clip(np.arange(height) + steps[:, :1], 0, height - 1)
        columns = np.clip(np.arange(width) + steps[:, 1:], 0, width - 1)
        out += weight * x[every, rows[:, :, None], columns[:, None, :]]
    return out


def zoomed(x: Images, factor: float) -> Images:
    """The middle of each image, magnified linearly to the image's size."""
    for axis in (1, 2):
        size = x.shape[axis]
        length = math.ceil(size / factor)
        large = round(length * factor)
        start, trimmed = (size - length) // 2, (large - size) // 2
        places = np.arange(trimmed, trimmed + size) * ((length - 1) / max(1, large - 1))
        left = np.minimum(places.astype(np.int64), max(0, length - 2))
        share = (places - left).reshape(-1, *[1] * (x.ndim - 1 - axis))
        right = np.minimum(left + 1, length - 1)
        x = x.take(start + left, axis) * (1 - share) + x.take(start + right, axis) * share
    return x
