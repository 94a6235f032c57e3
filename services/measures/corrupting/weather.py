"""Weather: images (n, H, W, C) float64 in [0, 1], one generator an image, to the same, not yet clipped."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from services.measures.corrupting.blurs import moved, zoomed
from services.measures.corrupting.frost_photos import USED, photo
from services.measures.corrupting.noises import Draws, Images

GREY = np.array([0.299, 0.587, 0.114])
WATER, MUD = np.array([175, 238, 238]) / 255, np.array([63, 42, 20]) / 255

Map = NDArray[np.float64]


def snow(x: Images, draws: Draws, parameters: tuple[float, float, float, float, int, float, float]) -> Images:
    """Flakes that fall at a random angle, twice, over a whitened image."""
    mean, spread, zoom, least, radius, sigma, kept = parameters
    flakes = np.stack([draw.normal(mean, spread, size=x.shape[1:3]) for draw in draws])
    flakes = zoomed(flakes[..., None], zoom)
    flakes = np.floor(np.clip(np.where(flakes < least, 0.0, flakes), 0, 1) * 255) / 255
    angles = [draw.uniform(-135, -45) for draw in draws]
    flakes = np.rint(255 * moved(flakes, radius, sigma, angles)) / 255
    white = np.maximum(x, _grey(x) * 1.5 + 0.5)
    return kept * x + (1 - kept) * white + flakes + np.rot90(flakes, 2, (1, 2))


def frost(x: Images, draws: Draws, parameters: tuple[float, float], shrunk: bool) -> Images:
    """A random piece of a photograph of frost, laid over the image; of small images a fifth of its size."""
    (kept, laid), (height, width) = parameters, x.shape[1:3]
    pieces = []
    for draw in draws:
        picture = photo(int(draw.integers(USED)))
        picture = picture[2::5, 2::5] if shrunk else picture
        top = int(draw.integers(picture.shape[0] - height))
        left = int(draw.integers(picture.shape[1] - width))
        pieces.append(picture[top : top + height, left : left + width] / 255)
    return kept * x + laid * _in_colours_of(x, np.stack(pieces))


def fog(x: Images, draws: Draws, parameters: tuple[float, float], side: int) -> Images:
    """Plasma over the image, which keeps its brightest value."""
    amount, decay = parameters
    height, width = x.shape[1:3]
    layers = np.stack([plasma(draw, side, decay)[:height, :width] for draw in draws])
    brightest = x.max(axis=(1, 2, 3), keepdims=True)
    return np.asarray((x + amount * layers[..., None]) * brightest / (brightest + amount))


def spatter(x: Images, draws: Draws, parameters: tuple[float, float, float, float, float, bool]) -> Images:
    """Drops of water or mud."""
    mean, spread, sigma, least, amount, mud = parameters
    out = np.empty_like(x)
    for place, draw in enumerate(draws):
        layer = ndimage.gaussian_filter(draw.normal(mean, spread, size=x.shape[1:3]), sigma, mode="nearest")
        layer = np.where(layer < least, 0.0, layer)
        if mud:
            cover = ndimage.gaussian_filter((layer > least).astype(np.float64), amount, mode="nearest")
            cover = np.where(cover < 0.8, 0.0, cover)[..., None]
            out[place] = x[place] * (1 - cover) + _in_colours_of(x[:1], cover * MUD)
        else:
            out[place] = x[place] + _in_colours_of(x[:1], (amount * water(layer))[..., None] * WATER)
    return out


def plasma(draw: np.random.Generator, side: int, decay: float) -> Map:
    """(side, side) in [0, 1] by the diamond-square algorithm on a torus; `side` is a power of two."""
    heights, step, wobble = np.zeros((side, side)), side, 100.0

    def mean_of(total: Map) -> Map:
        return total / 4 + wobble * draw.uniform(-wobble, wobble, total.shape)

    while step >= 2:
        half = step // 2
        corners = heights[::step, ::step]
        total = corners + np.roll(corners, -1, axis=0)
        heights[half::step, half::step] = mean_of(total + np.roll(total, -1, axis=1))
        middles, corners = heights[half::step, half::step], heights[::step, ::step]
        total = middles + np.roll(middles, 1, axis=0) + corners + np.roll(corners, -1, axis=1)
        heights[::step, half::step] = mean_of(total)
        total = middles + np.roll(middles, 1, axis=1) + corners + np.roll(corners, -1, axis=0)
        heights[half::step, ::step] = mean_of(total)
        step, wobble = half, wobble / decay
    heights -= heights.min()
    return np.asarray(heights / heights.max())


def water(layer: Map) -> Map:
    """How much light drops add, in [0, 1]: more the farther from the edge of a drop, lit from the upper left."""
    values = np.floor(np.clip(layer, 0, 1) * 255)
    edges = _edges(values)
    far = ndimage.distance_transform_edt(~edges) if edges.any() else np.full(layer.shape, np.inf)
    far = np.floor(_box(np.minimum(far, 20.0)))
    slope = np.array([[-2.0, -1, 0], [-1, 1, 1], [0, 1, 2]])
    lit = np.clip(np.rint(ndimage.correlate(_equalised(far), slope, mode="mirror")), 0, 255)
    light = values * np.rint(_box(lit))
    return light / light.max() if light.max() > 0 else light


def _edges(values: Map) -> NDArray[np.bool_]:
    """Canny's edges, with the thresholds 50 and 150 of the sum of the absolute slopes."""
    down, across = (ndimage.sobel(values, axis=axis, mode="nearest") for axis in (0, 1))
    strength = np.pad(np.abs(down) + np.abs(across), 1)
    centre, steep = strength[1:-1, 1:-1], np.abs(down) / np.maximum(np.abs(across), 1e-9)
    shifts = {(1, 0): steep > 2.4142, (0, 1): steep < 0.4142}
    diagonal = ~shifts[1, 0] & ~shifts[0, 1]
    shifts |= {(1, 1): diagonal & (down * across >= 0), (1, -1): diagonal & (down * across < 0)}
    ridge = np.zeros(values.shape, dtype=bool)
    height, width = values.shape
    for (i, j), along in shifts.items():
        before = strength[1 - i : 1 - i + height, 1 - j : 1 - j + width]
        after = strength[1 + i : 1 + i + height, 1 + j : 1 + j + width]
        ridge |= along & (centre > before) & (centre >= after)
    weak, strong = ridge & (centre > 50), ridge & (centre > 150)
    parts, count = ndimage.label(weak, structure=np.ones((3, 3)))
    kept = np.zeros(count + 1, dtype=bool)
    kept[parts[strong]] = True
    kept[0] = False
    return np.asarray(kept[parts])


def _equalised(values: Map) -> Map:
    """Whole values up to 255 with their histogram made even."""
    counts = np.bincount(values.astype(np.int64).ravel(), minlength=256)
    first = int(np.flatnonzero(counts)[0])
    rest = values.size - counts[first]
    if not rest:
        return values
    table = np.rint((np.cumsum(counts) - counts[first]) * 255 / rest)
    return np.asarray(np.clip(table, 0, 255)[values.astype(np.int64)])


def _box(values: Map) -> Map:
    filtered: Map = ndimage.uniform_filter(values, 3, mode="mirror")
    return filtered


def _grey(x: Images) -> Images:
    return x if x.shape[-1] == 1 else (x @ GREY)[..., None]


def _in_colours_of(x: Images, layer: Images) -> Images:
    """A coloured layer, grey where the images are."""
    return layer if x.shape[-1] == 3 else (layer @ GREY)[..., None]
