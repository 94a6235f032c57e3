"""Images as PNG bytes: what an attack did to single samples, for people to look at."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

LARGEST = 256
"""Pixels of the longer side up to which a picture is kept as it is; larger ones are reduced to it."""


def png_of(image: NDArray[Any]) -> bytes:
    """An image (C, H, W) in [0, 1] of 1 or 3 channels as PNG: 8 bits a channel, the mean over pixels where reduced."""
    pixels = np.rint(np.clip(image, 0.0, 1.0) * 255).astype(np.uint8)
    picture = Image.fromarray(pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0)))
    if (longest := max(picture.size)) > LARGEST:
        width, height = (max(1, round(side * LARGEST / longest)) for side in picture.size)
        picture = picture.resize((width, height), Image.Resampling.BOX)
    file = io.BytesIO()
    picture.save(file, "PNG", optimize=True)
    return file.getvalue()
