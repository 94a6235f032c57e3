"""What cameras and files do: images (n, H, W, C), float64 in [0, 1] or 8 bits, to the same, not yet clipped."""

from __future__ import annotations

import io

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from services.measures.corrupting.noises import Draws, Images

Bytes = NDArray[np.uint8]


def brightness(x: Images, draws: Draws, added: float) -> Images:
    """The value of the HSV colour raised, hue and saturation kept."""
    value = x.max(axis=-1, keepdims=True)
    raised = np.clip(value + added, 0, 1)
    return np.asarray(np.where(value > 0, x / np.where(value > 0, value, 1.0) * raised, raised))


def contrast(x: Images, draws: Draws, kept: float) -> Images:
    """Differences from the mean of each channel made smaller."""
    means = x.mean(axis=(1, 2), keepdims=True)
    return np.asarray((x - means) * kept + means)


def saturate(x: Images, draws: Draws, parameters: tuple[float, float]) -> Images:
    """The saturation of the HSV colour scaled and raised; grey counts as red. Grey images stay as they are."""
    if x.shape[-1] == 1:
        return x
    factor, added = parameters
    value = x.max(axis=-1, keepdims=True)
    distance = value - x
    saturation = distance.max(axis=-1, keepdims=True) / np.where(value > 0, value, 1.0)
    wanted = np.clip(saturation * factor + added, 0, 1)
    red = value * np.array([0.0, 1.0, 1.0])
    scaled = distance / np.where(saturation > 0, saturation, 1.0)
    return np.asarray(value - wanted * np.where(saturation > 0, scaled, red))


def elastic_transform(x: Images, draws: Draws, parameters: tuple[float, float, float], scale: float) -> Images:
    """A random affine map, then a random smooth displacement; lengths are of images of the published size, scaled."""
    strength, smooth, shift = (scale * each for each in parameters)
    out = np.empty_like(x)
    grid = np.indices(x.shape[1:3]).astype(np.float64)
    for place, draw in enumerate(draws):
        image = _affine(x[place], draw.uniform(-shift, shift, size=(3, 2)))
        fields = [
            strength * ndimage.gaussian_filter(draw.uniform(-1, 1, x.shape[1:3]), smooth, mode="reflect", truncate=3)
            for _ in range(2)
        ]
        where = grid + np.stack(fields[::-1])
        for channel in range(x.shape[-1]):
            out[place, ..., channel] = ndimage.map_coordinates(image[..., channel], where, order=1, mode="reflect")
    return out


def _affine(image: Images, moves: Images) -> Images:
    """The image under the affine map that moves three points around its middle by `moves` (3, 2), in (x, y)."""
    height, width = image.shape[:2]
    middle, reach = np.array([height // 2, width // 2], dtype=np.float64), min(height, width) // 3
    points = np.array([middle + reach, [middle[0] + reach, middle[1] - reach], middle - reach])
    ones = np.ones((3, 1))
    back = np.linalg.solve(np.hstack([points + moves, ones]), np.hstack([points, ones])).T  # new (x, y, 1) to old
    matrix, offset = back[:2, :2][::-1, ::-1], back[:2, 2][::-1]
    layers = [
        ndimage.affine_transform(image[..., channel], matrix, offset, order=1, mode="mirror")
        for channel in range(image.shape[-1])
    ]
    return np.stack(layers, axis=-1)


def pixelate(pixels: Bytes, share: float) -> Bytes:
    """Made smaller and larger again, by the mean of the pixels that fall together."""
    from PIL import Image

    height, width = pixels.shape[1:3]
    small = max(1, int(width * share)), max(1, int(height * share))
    out = [
        Image.fromarray(each).resize(small, Image.Resampling.BOX).resize((width, height), Image.Resampling.BOX)
        for each in _pictures(pixels)
    ]
    return np.stack([np.asarray(each) for each in out]).reshape(pixels.shape)


def jpeg_compression(pixels: Bytes, quality: int) -> Bytes:
    """Written as JPEG of a quality, and read."""
    from PIL import Image

    out = []
    for each in _pictures(pixels):
        file = io.BytesIO()
        Image.fromarray(each).save(file, "JPEG", quality=quality)
        with Image.open(file) as picture:
            out.append(np.asarray(picture))
    return np.stack(out).reshape(pixels.shape)


def _pictures(pixels: Bytes) -> Bytes:
    return pixels if pixels.shape[-1] == 3 else pixels[..., 0]
