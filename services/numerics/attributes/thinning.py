"""Skeletons of binary images: the parallel thinning of Zhang & Suen (1984), for a whole stack of images.

The 8 neighbours of a pixel, clockwise from above, are the bits of a code of one byte; which codes are deleted in each
of the two half-steps is a table of 256 entries, so a half-step is eight shifts and one look-up for all pixels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.numerics.arguments import Bools

_AROUND = ((-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1))
"""Offsets of the neighbours p2 .. p9, clockwise from above."""
_DIAGONAL = 2.0**0.5


def deletable(step: int) -> Bools:
    """(256,) codes that the half-step deletes: 2 to 6 neighbours, one run of them, and two triples not all set."""
    bits = ((np.arange(256)[:, None] >> np.arange(8)) & 1).astype(bool)
    neighbours = bits.sum(axis=1)
    runs = (~bits & np.roll(bits, -1, axis=1)).sum(axis=1)
    above, right, below, left = (bits[:, k] for k in (0, 2, 4, 6))
    first, second = ((above & right & below), (right & below & left))
    if step:
        first, second = ((above & right & left), (above & below & left))
    return np.asarray((neighbours >= 2) & (neighbours <= 6) & (runs == 1) & ~first & ~second)


_TABLES = (deletable(0), deletable(1))


def thinned(images: NDArray[np.bool_]) -> Bools:
    """Skeletons (N, H, W) of images (N, H, W), True on the strokes; lines of one pixel, save for rare 2x2 corners."""
    size, height, width = images.shape
    padded = np.zeros((size, height + 2, width + 2), dtype=bool)
    padded[:, 1:-1, 1:-1] = images
    alive = np.arange(size)
    while alive.size:
        stack = padded[alive]
        before = stack.sum(axis=(1, 2))
        for table in _TABLES:
            stack[:, 1:-1, 1:-1] &= ~table[neighbour_codes(stack)]
        padded[alive] = stack
        alive = alive[stack.sum(axis=(1, 2)) < before]
    return padded[:, 1:-1, 1:-1]


def lengths(skeletons: NDArray[np.bool_]) -> NDArray[np.float64]:
    """(N,) lengths in pixels: 1 a step along a row or column, sqrt(2) a diagonal one that no such two steps replace."""
    s = skeletons
    straight = (s[:, 1:] & s[:, :-1]).sum(axis=(1, 2)) + (s[:, :, 1:] & s[:, :, :-1]).sum(axis=(1, 2))
    falling = s[:, 1:, 1:] & s[:, :-1, :-1] & ~(s[:, 1:, :-1] | s[:, :-1, 1:])
    rising = s[:, 1:, :-1] & s[:, :-1, 1:] & ~(s[:, 1:, 1:] | s[:, :-1, :-1])
    return np.asarray(straight + _DIAGONAL * (falling.sum(axis=(1, 2)) + rising.sum(axis=(1, 2))))


def neighbour_codes(padded: NDArray[Any]) -> NDArray[np.uint8]:
    _, height, width = padded.shape
    codes = np.zeros((len(padded), height - 2, width - 2), dtype=np.uint8)
    for bit, (down, right) in enumerate(_AROUND):
        part = padded[:, 1 + down : height - 1 + down, 1 + right : width - 1 + right]
        codes |= part.astype(np.uint8) << np.uint8(bit)
    return codes
