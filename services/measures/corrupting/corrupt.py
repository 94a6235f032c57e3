"""Common corruptions of images, made as ImageNet-C and CIFAR-10-C were made, by numpy, scipy and Pillow.

The authors' programs need OpenCV, scikit-image and ImageMagick; what is made here differs from theirs by the rounding
of 8-bit values, and of `spatter` and `elastic_transform` by how those libraries find edges and interpolate. All random
numbers are keyed by (seed, sample id, corruption, severity): neither batch, worker nor order matters. Their own random
numbers were not kept, so no program makes the published files bit by bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.measures.corrupting import blurs, digital, noises, weather
from services.measures.corrupting.strengths import LARGE, NAMES, Name, Parameters, parameters_of

STREAM = 64
"""Fourth word of the Philox counter of the first corruption; see `sampling.noise`."""
PUBLISHED: dict[Parameters, int] = {"cifar": 32, "imagenet": 224}
"""Sides of the published images."""
_PLASMA: dict[Parameters, int] = {"cifar": 32, "imagenet": 256}

_SIMPLE: dict[str, Callable[..., noises.Images]] = {
    "gaussian_noise": noises.gaussian_noise,
    "shot_noise": noises.shot_noise,
    "impulse_noise": noises.impulse_noise,
    "speckle_noise": noises.speckle_noise,
    "defocus_blur": blurs.defocus_blur,
    "gaussian_blur": blurs.gaussian_blur,
    "glass_blur": blurs.glass_blur,
    "motion_blur": blurs.motion_blur,
    "zoom_blur": blurs.zoom_blur,
    "snow": weather.snow,
    "spatter": weather.spatter,
    "brightness": digital.brightness,
    "contrast": digital.contrast,
    "saturate": digital.saturate,
}


def table_for(height: int, width: int) -> Parameters:
    """Whose parameters images of a size get where nothing is said."""
    return "cifar" if min(height, width) < LARGE else "imagenet"


def corrupted(
    name: Name,
    pixels: NDArray[np.uint8],
    ids: NDArray[np.int64],
    *,
    severity: int,
    table: Parameters,
    seed: int,
) -> NDArray[np.uint8]:
    """Corrupt images (n, H, W, C) of 8 bits with C 1 or 3; values are cut to whole ones, as the authors do."""
    parameters = parameters_of(name, severity, table)
    if name == "pixelate":
        return digital.pixelate(pixels, parameters)
    if name == "jpeg_compression":
        return digital.jpeg_compression(pixels, parameters)
    made = _made(name, pixels / 255.0, _draws(name, ids, severity, seed), parameters, table)
    return (np.clip(made, 0.0, 1.0) * 255 + 1e-9).astype(np.uint8)


def _made(name: Name, x: noises.Images, draws: noises.Draws, parameters: Any, table: Parameters) -> noises.Images:
    side = max(x.shape[1:3])
    if name == "frost":
        return weather.frost(x, draws, parameters, shrunk=table == "cifar")
    if name == "fog":
        return weather.fog(x, draws, parameters, max(_PLASMA[table], 1 << (side - 1).bit_length()))
    if name == "elastic_transform":
        return digital.elastic_transform(x, draws, parameters, side / PUBLISHED[table])
    return _SIMPLE[name](x, draws, parameters)


def _draws(name: Name, ids: NDArray[np.int64], severity: int, seed: int) -> noises.Draws:
    word = [0, 0, severity, STREAM + NAMES.index(name)]
    keys = [[seed % 2**64, int(sample) % 2**64] for sample in ids.tolist()]
    return [np.random.Generator(np.random.Philox(key=np.array(key, np.uint64), counter=word)) for key in keys]
