"""EXIF orientation: which way up an image is, and its pixels upright or as they are stored."""

from __future__ import annotations

from typing import NamedTuple

from PIL import Image

from services.loading.samples.unusable import DAMAGE, CorruptImage

ORIENTATION = 0x0112
"""The EXIF tag."""
UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""What turns the stored pixels upright, by orientation (EXIF 2.32, tag 274)."""
STORED = {**UPRIGHT, 6: Image.Transpose.ROTATE_90, 8: Image.Transpose.ROTATE_270}
"""What turns them back."""
PNG_NOTES = (b"eXIf", b"Raw profile type", b"XML:com.adobe.xmp")
"""Where a PNG may keep an orientation; without them it need not be decoded to know that it has none."""


class Looked(NamedTuple):
    """One image as it will be used.

    Attributes:
        image: its pixels may be unread yet.
        orientation: its EXIF orientation, 1 to 8, where that decided the pixels; else 1.
        turned: whether it was turned upright.
        colours: what its colours are that is not applied, or not exactly (`colours.unapplied`); "" for sRGB or grey.
    """

    image: Image.Image
    orientation: int = 1
    turned: bool = False
    colours: str = ""


def orientation_of(image: Image.Image, data: bytes) -> int:
    """EXIF orientation of an opened image, 1 to 8; 1 where it has none, or one that cannot be read."""
    if image.format == "PNG" and not any(note in data for note in PNG_NOTES):
        return 1
    try:
        orientation = image.getexif().get(ORIENTATION, 1)
    except (*DAMAGE, UserWarning):
        return 1
    return orientation if orientation in UPRIGHT else 1


def oriented(image: Image.Image, data: bytes, *, stored: bool) -> Looked:
    """The decoded image, upright or with its pixels as stored; Pillow turns TIFF by itself.

    `orientation` of the answer is 1 where the pixels are those that a plain decoding gives.

    Raises:
        CorruptImage: it cannot be decoded.
    """
    orientation = orientation_of(image, data)
    try:
        image.load()
    except DAMAGE as error:
        raise CorruptImage(str(error) or type(error).__name__) from error
    if orientation == 1:
        return Looked(image)
    if image.format == "TIFF":
        return Looked(image.transpose(STORED[orientation]), orientation) if stored else Looked(image, turned=True)
    return Looked(image) if stored else Looked(image.transpose(UPRIGHT[orientation]), orientation, turned=True)
