"""Images made to fit: the shorter side resized, the centre cropped, as torchvision does."""

from __future__ import annotations

from PIL import Image

from services.loading.samples.unusable import CorruptImage, SmallImage

PIXEL_LIMIT = 64_000_000
"""Images that claim more pixels than this are treated as corrupt (decompression bombs)."""


def with_shorter_side(image: Image.Image, side: int) -> Image.Image:
    """The image at that shorter side, in proportion (bilinear, antialiased): torchvision's `Resize`, to the pixel.

    Raises:
        CorruptImage: it is so narrow that it would have more than `PIXEL_LIMIT` pixels.
    """
    longer = int(side * max(image.size) / min(image.size))
    if side * longer > PIXEL_LIMIT:
        raise CorruptImage(f"{image.width}x{image.height} pixels would become {side} times {longer}")
    size = (side, longer) if image.width <= image.height else (longer, side)
    return image if image.size == size else image.resize(size, Image.Resampling.BILINEAR)


def middle(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    """The central (height, width): torchvision's `CenterCrop`, to the pixel, but nothing is padded.

    Raises:
        SmallImage: it is smaller.
    """
    height, width = size
    if image.width < width or image.height < height:
        raise SmallImage(f"{image.height}x{image.width}")
    left, top = round((image.width - width) / 2), round((image.height - height) / 2)
    return image.crop((left, top, left + width, top + height))
