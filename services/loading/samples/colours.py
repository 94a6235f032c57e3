"""What an image file could be read as in two ways: transparency, depth, several pictures, colours other than sRGB."""

from __future__ import annotations

import io
from functools import lru_cache
from typing import Any

import numpy as np
from PIL import Image, ImageColor

DEEP = 255
"""Largest value of a channel of 8 bits."""
BC6H = 6
"""Number of DDS's compression of half-precision floats."""
GREY_OR_RGB = ("L", "RGB")
"""Modes that need no conversion."""
GAMMA_TOLERANCE = 0.05
SEEN = 3
"""Difference of a channel, in steps of 255, from which a colour profile is another one than sRGB."""

ONE_PICTURE = frozenset({"MPO", "PSD"})
"""Formats whose further frames are views, previews or layers of the one picture."""
NEW_SUBFILE_TYPE, SMALL_OR_MASK = 254, 1 | 4
"""TIFF's tag of a page, and its bits for a smaller copy and a mask (TIFF 6.0, page 36)."""


def is_deep(image: Image.Image, data: bytes) -> bool:
    """Whether an opened image has more than 8 bits a channel, which Pillow cuts to 8 without a word."""
    if image.mode.startswith(("I", "F")):
        return True
    if image.format in ("JPEG2000", "AVIF"):
        return _declared_bits(data) > 8
    return any(_deep(tile[0], tile[3]) for tile in getattr(image, "tile", ()))


def pictures(image: Image.Image) -> int:
    """How many pictures an opened image holds: frames of an animation, or pages but for smaller copies and masks."""
    count = int(getattr(image, "n_frames", 1))
    if count == 1 or image.format in ONE_PICTURE:
        return 1
    if image.format == "TIFF":
        count = 0
        for page in range(int(image.n_frames)):  # type: ignore[attr-defined]
            image.seek(page)
            count += not image.tag_v2.get(NEW_SUBFILE_TYPE, 0) & SMALL_OR_MASK  # type: ignore[attr-defined]
        image.seek(0)
    return count


def _declared_bits(data: bytes) -> int:
    """Bits a channel: of JPEG 2000 in the marker SIZ (ISO 15444-1, A.5.1), of AVIF in the box av1C (AV1 in ISOBMFF)."""
    if (size := data.find(b"\xff\x4f\xff\x51")) >= 0 and size + 42 < len(data):
        return (data[size + 42] & 0x7F) + 1
    if (box := data.find(b"av1C")) >= 0 and box + 6 < len(data):
        return (12 if data[box + 6] & 0x20 else 10) if data[box + 6] & 0x40 else 8
    return 8


def _deep(decoder: str, arguments: Any) -> bool:
    """Whether a decoder, or a raw mode or a maximum among its arguments, is one of more than 8 bits."""
    listed = arguments if isinstance(arguments, tuple | list) else (arguments,)
    if decoder == "SGI16" or (decoder == "bcn" and listed[:1] == (BC6H,)):
        return True
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


def unapplied(image: Image.Image) -> str:
    """What an opened image says of its colours that its pixels alone do not show; "" for those of sRGB, and for grey.

    The words go into `37 of 200 images WORDS`.
    """
    profile = image.info.get("icc_profile")
    if isinstance(profile, bytes) and profile:
        return "" if _is_srgb(profile, image.mode) else "carry a colour profile other than sRGB, which is not applied"
    if image.mode in ("CMYK", "LAB"):
        return f"hold {image.mode} colours, of which a plain formula makes RGB"
    gamma = image.info.get("gamma")
    if isinstance(gamma, float) and "srgb" not in image.info and abs(2.2 * gamma - 1) > GAMMA_TOLERANCE:
        return f"declare a gamma of {gamma:.3g} (sRGB: 0.455), which is not applied"
    return ""


@lru_cache(maxsize=256)
def _is_srgb(profile: bytes, mode: str) -> bool:
    """Whether a profile shows colours as sRGB does, within `SEEN`; one that nothing can read is left to be so."""
    if mode not in GREY_OR_RGB:
        return False
    from PIL import ImageCms

    levels = np.linspace(0, 255, 6).astype(np.uint8)
    grid = np.stack(np.meshgrid(levels, levels, levels), axis=-1).reshape(6, 36, 3)
    colours = Image.fromarray(grid if mode == "RGB" else grid[..., 0])
    try:
        shown = ImageCms.profileToProfile(
            colours, ImageCms.ImageCmsProfile(io.BytesIO(profile)), ImageCms.createProfile("sRGB"), outputMode="RGB"
        )
    except (ImageCms.PyCMSError, OSError, ValueError, TypeError):
        return True
    moved = np.asarray(shown, np.int64) - np.asarray(colours.convert("RGB"), np.int64)
    return int(np.abs(moved).max()) < SEEN
