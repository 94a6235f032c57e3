"""Images that stand in a source more than once: copies are no further samples, and make every interval too narrow.

Each image ten times, and gates err in 29 to 43 % of audits where 5 % is promised. So an image counts once under each
label, unless the fleet file asks for all; one image under two labels is named; and images that only look alike, as
the same one encoded again, are counted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

THUMBNAIL = 8
"""Sides of the grey images that look-alikes are searched by."""
COMPONENTS = 8
ALIKE_THUMBNAILS = 4.0 / 255
ALIKE_PIXELS = 16.0 / 255
"""Root mean squares below which two images look alike: JPEG of quality 75 moves a 32x32 photograph by 4 to 8 / 255."""
MOST_PIXELS = 2_000_000_000
"""Sets of more pixel values than this are not searched for look-alikes."""
CHUNK = 256


@dataclass(frozen=True)
class Distinct:
    """What is left when each image counts once under each label.

    Attributes:
        rows: (n,) positions of the first copies, ascending.
        copies: further ones.
        conflicts: by pair of labels that one image stands under, the smaller first: positions of such pairs of samples.
    """

    rows: NDArray[np.int64]
    copies: int
    conflicts: dict[tuple[int, int], list[tuple[int, int]]]


def fingerprint(pixels: NDArray[np.generic]) -> bytes:
    """16 bytes of an image (H, W, C): alike for equal pixels, uint8 or the same as floating numbers in [0, 1]."""
    return next(fingerprints(pixels[None]))


def fingerprints(images: NDArray[Any]) -> Iterator[bytes]:
    """Those of images (n, H, W, C), or of another layout that all have."""
    shape = f"{images.shape[1:]} ".encode()
    if images.dtype == np.uint8:
        for image in images:
            yield _digest(image, shape + b"uint8")
        return
    for start in range(0, len(images), CHUNK):
        part = images[start : start + CHUNK]
        exact = np.asarray(part, dtype=np.float64)
        grid = np.rint(exact * 255.0)
        on_grid = np.all(np.abs(grid / 255.0 - exact) <= 1e-6, axis=(1, 2, 3))
        for row, is_on in enumerate(on_grid):
            if is_on:
                yield _digest(grid[row].astype(np.uint8), shape + b"uint8")
            else:
                yield _digest(np.asarray(part[row], dtype=np.float32), shape + b"float32")


def _digest(pixels: NDArray[np.generic], kind: bytes) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(pixels).tobytes(), digest_size=16, key=kind[:64]).digest()


def distinct(prints: Sequence[bytes], labels: NDArray[np.int64]) -> Distinct:
    """The first copy of each image under each label.

    Args:
        prints: fingerprints, one a sample.
        labels: (N,).
    """
    first: dict[tuple[bytes, int], int] = {}
    for row, pair in enumerate(zip(prints, labels.tolist(), strict=True)):
        first.setdefault(pair, row)
    by_print: dict[bytes, list[tuple[int, int]]] = {}
    for (image, label), row in first.items():
        by_print.setdefault(image, []).append((label, row))
    conflicts: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for places in by_print.values():
        (label, row), *others = sorted(places)
        for other, at in others:
            conflicts.setdefault((label, other), []).append((row, at))
    return Distinct(np.array(sorted(first.values()), dtype=np.int64), len(prints) - len(first), conflicts)


def lookalikes(read: Callable[[int, int], NDArray[np.float32]], count: int) -> NDArray[np.int64] | None:
    """(P, 2) rows of different images that look alike, the first smaller; None for a set too large to search.

    Grey thumbnails of 8 x 8 within 4 / 255 (root mean square), found through their first principal components, a
    projection that moves no two of them apart, then pixels within 9 / 255.

    Args:
        read: rows [start, stop) as (n, C, H, W) in [0, 1].
    """
    from scipy.spatial import cKDTree

    shape = read(0, min(1, count)).shape[1:]
    if not count or 0 in shape or count * int(np.prod(shape)) > MOST_PIXELS:
        return None
    thumbs = np.concatenate([_thumbnails(read(start, start + CHUNK)) for start in range(0, count, CHUNK)])
    centred = thumbs - thumbs.mean(0)
    _, vectors = np.linalg.eigh(centred.T @ centred)
    reach = ALIKE_THUMBNAILS * THUMBNAIL
    pairs = cKDTree(centred @ vectors[:, -COMPONENTS:]).query_pairs(reach, output_type="ndarray")
    near = np.linalg.norm(thumbs[pairs[:, 0]] - thumbs[pairs[:, 1]], axis=1) <= reach
    return np.array([pair for pair in np.sort(pairs[near], axis=1) if _alike(read, *pair)], np.int64).reshape(-1, 2)


def _thumbnails(images: NDArray[np.float32]) -> NDArray[np.float64]:
    """(n, 64) grey means over an 8 x 8 grid; of smaller images fewer."""
    grey = images.mean(1, dtype=np.float64)
    for axis in (1, 2):
        length = grey.shape[axis]
        edges = np.unique(np.arange(THUMBNAIL) * length // THUMBNAIL)
        sizes = np.diff([*edges, length])
        grey = np.add.reduceat(grey, edges, axis=axis) / np.expand_dims(sizes, (0, 3 - axis))
    flat = grey.reshape(len(grey), -1)
    return np.asarray(flat * THUMBNAIL / np.sqrt(flat.shape[1]))


def _alike(read: Callable[[int, int], NDArray[np.float32]], first: int, second: int) -> bool:
    gap = read(first, first + 1) - read(second, second + 1)
    return 0.0 < float(np.sqrt(np.mean(np.square(gap, dtype=np.float64)))) <= ALIKE_PIXELS
