"""What an image's colours could be read as in two ways: transparency over a background, and more than 8 bits."""

from __future__ import annotations

from typing import Any

import numpy as np
from PIL import Image, ImageColor

DEEP = 255
"""Largest value of a channel of 8 bits."""


def is_deep(image: Image.Image) -> bool:
    """Whether an opened image has more than 8 bits a channel, which Pillow cuts to 8 without a word (PNG, PPM)."""
    tiles = getattr(image, "tile", ())
    return image.mode.startswith(("I", "F")) or any(_deep(tile[3]) for tile in tiles)


def _deep(arguments: Any) -> bool:
    """Whether a decoder's arguments name a raw mode of 16 bits or a larger maximum."""
    listed = arguments if isinstance(arguments, tuple | list) else (arguments,)
    raw = any(isinstance(each, str) and ";16" in each for each in listed)
    return raw or (len(listed) == 2 and isinstance(listed[1], int) and listed[1] > DEEP)


def is_transparent(image: Image.Image) -> bool:
    """Whether a decoded image has a pixel that is not opaque."""
    if not image.has_transparency_data:
        return False
    return bool(np.asarray(image.convert("RGBA"))[..., 3].min() < DEEP)


def over(image: Image.Image, background: str) -> Image.Image:
    """A decoded image over a background, as RGB; one without transparency as it is."""
    if not image.has_transparency_data:
        return image
    below = Image.new("RGBA", image.size, colour(background))
    return Image.alpha_composite(below, image.convert("RGBA")).convert("RGB")


def colour(text: str) -> str:
    """`white`, `black`, `#80ff00` or another colour that CSS names."""
    try:
        ImageColor.getrgb(text)
    except ValueError:
        raise ValueError("a colour such as white, black or #808080") from None
    return text
