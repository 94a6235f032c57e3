"""How coarse numbers in [0, 1] are, and whether that explains sums of rows that are not 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.errors import counted

DECIMALS = range(6)
"""Decimals that are looked for; float32 has no more than seven digits."""
LEVELS = (127, 128, 255, 256)
"""Steps from 0 to 1 of signed and unsigned numbers of 8 bits."""
SAMPLED = 1 << 20
"""Numbers looked at."""
NEAR = 2e-7
"""Largest distance from a step that float32 makes."""


@dataclass(frozen=True, slots=True)
class Rounding:
    """What numbers were rounded to.

    Attributes:
        words: "3 decimals", "255 steps (8 bits)", "float16" or "bfloat16".
        step: distance of neighbouring numbers near 1.
        relative: steps shrink with the number, as those of floating formats do.
    """

    words: str
    step: float
    relative: bool


def rounding(values: NDArray[np.floating[Any]]) -> Rounding | None:
    """The coarsest form that holds all values (n, K) in [0, 1] exactly; None for full float32 precision."""
    values = values[: max(1, SAMPLED // max(1, values.shape[1]))]
    numbers = np.asarray(values, dtype=np.float64)
    for decimals in DECIMALS:
        if _on_grid(numbers, 10**decimals):
            return Rounding(counted(decimals, "decimal"), 10.0**-decimals, relative=False)
    for levels in LEVELS:
        if _on_grid(numbers, levels):
            return Rounding(f"{levels} steps (8 bits)", 1 / levels, relative=False)
    single = np.ascontiguousarray(values, dtype=np.float32)
    if not (single.view(np.uint32) & 0xFFFF).any():
        return Rounding("bfloat16", 2.0**-8, relative=True)
    with np.errstate(over="ignore"):
        if np.array_equal(single.astype(np.float16).astype(np.float32), single):
            return Rounding("float16", 2.0**-11, relative=True)
    return None


def explains_sums(values: NDArray[np.floating[Any]], known: Rounding | None, tolerance: float) -> bool:
    """Whether rows of values (n, K) sum to 1 within what rounding can do, and `tolerance`.

    On a grid each number is off by at most half a step, and those that became 0 can only have lost; in a floating
    format each is off by at most half of its own step.
    """
    sums = np.asarray(values, dtype=np.float64).sum(axis=1)
    more = less = np.zeros(len(sums))
    if known is not None and known.relative:
        more = less = known.step / 2 * np.maximum(sums, 1.0)
    elif known is not None:
        more = known.step / 2 * np.count_nonzero(np.asarray(values) > known.step / 2, axis=1)
        less = np.full(len(sums), known.step / 2 * values.shape[1])
    return bool(np.all((sums <= 1 + tolerance + more) & (sums >= 1 - tolerance - less)))


def _on_grid(numbers: NDArray[np.float64], steps: int) -> bool:
    scaled = numbers * steps
    return bool(np.all(np.abs(scaled - np.round(scaled)) <= NEAR * steps))
