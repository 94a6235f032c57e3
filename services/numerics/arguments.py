"""Checks of arguments that several numerics share; every fault names what was expected and what was found."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.errors import MeasureError, Problem

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def fault(where: str, expected: str, actual: str, remedy: str = "") -> MeasureError:
    """The error that numerics raise for arguments they cannot work with."""
    return MeasureError(Problem(where, expected, actual, remedy))


def as_indices(values: NDArray[Any], n: int, size: int, where: str) -> Ints:
    """Return `values` as int64 (N,) after checking that there are `n` of them, integers in [0, size).

    Raises:
        MeasureError: another shape, a type that is not an integer, or indices out of range (with their count).
    """
    array = np.asarray(values)
    if array.shape != (n,):
        raise fault(where, f"shape ({n},)", f"shape {array.shape}")
    if n and not np.issubdtype(array.dtype, np.integer):
        raise fault(where, "integers", f"dtype {array.dtype}")
    if n and (array.min() < 0 or array.max() >= size):
        wrong = int(np.count_nonzero((array < 0) | (array >= size)))
        raise fault(where, f"integers in [0, {size})", f"{wrong} of {n} outside, from {array.min()} to {array.max()}")
    return np.asarray(array, dtype=np.int64)


def as_scores(values: NDArray[Any], bound: float, where: str = "scores") -> Floats:
    """Return `values` as float64 (N,) in [0, bound]; rounding beyond the ends (1e-9 of the bound) is clipped.

    Raises:
        MeasureError: not one-dimensional, a NaN, or a value out of range; the count is in the message.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1:
        raise fault(where, "shape (N,)", f"shape {array.shape}")
    slack = 1e-9 * bound
    if not array.size or (array.min() >= 0.0 and array.max() <= bound):
        return array
    if not (array.min() >= -slack and array.max() <= bound + slack):
        wrong = int(np.count_nonzero(~((array >= -slack) & (array <= bound + slack))))
        raise fault(where, f"numbers in [0, {bound:.6g}]", f"{wrong} of {array.size} outside or NaN")
    return np.clip(array, 0.0, bound)


def check_bound(bound: float) -> None:
    """Raise MeasureError unless `bound` is a positive finite number."""
    if not (math.isfinite(bound) and bound > 0):
        raise fault("bound", "a positive finite number", str(bound))


def check_level(level: float, where: str) -> None:
    """Raise MeasureError unless `level` lies strictly between 0 and 1."""
    if not 0.0 < level < 1.0:
        raise fault(where, "a number strictly between 0 and 1", str(level))


def check_temperature(temperature: float) -> None:
    """Raise MeasureError unless `temperature` is a positive finite number."""
    if not (math.isfinite(temperature) and temperature > 0):
        raise fault("temperature", "a positive finite number", str(temperature))
