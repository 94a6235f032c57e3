"""From a score table back to boundary positions, for Tol, Dev and Cou by group (`numerics.attributes.tolerance`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.errors import MeasureError, Problem
from services.numerics.attributes.tolerance import Boundaries

MOVES = re.compile(r"d(\d{3,})/up")


def dimensions_of(columns: Mapping[str, NDArray[Any]]) -> tuple[int, ...]:
    """The latent dimensions that a table of the measure `projection` has columns of, ascending."""
    return tuple(sorted(int(match[1]) for name in columns if (match := MOVES.fullmatch(name))))


def boundaries_of(columns: Mapping[str, NDArray[Any]]) -> Boundaries:
    """Boundaries of the samples of a table of the measure `projection`, in latent units.

    Args:
        columns: with `d000/down`, `d000/up`, `d000/down_censored`, `d000/up_censored`, `d000/centre` and `d000/unit`
            (the same in every row, `reach` in the unit) for each dimension.

    Raises:
        MeasureError: the table is of another measure.
    """
    which = dimensions_of(columns)
    if not which:
        listed = ", ".join(sorted(columns)[:5]) or "none"
        raise MeasureError(Problem("columns", "those of the measure projection, d000/up and so on", listed))
    middle, width = (_constant(columns, which, end) for end in ("centre", "unit"))
    moves, censored = (
        np.stack([np.stack([columns[f"d{d:03d}/{way}{end}"] for way in ("down", "up")], axis=1) for d in which], axis=1)
        for end in ("", "_censored")
    )
    positions = middle[:, None] + width[:, None] * moves * np.array([-1.0, 1.0])
    return Boundaries.of(positions, censored.astype(bool), middle, width)


def _constant(columns: Mapping[str, NDArray[Any]], which: tuple[int, ...], end: str) -> NDArray[np.float64]:
    """(D,) values of columns that are the same in every row; 1 where there are no rows."""
    return np.array([columns[f"d{d:03d}/{end}"][0] if len(columns[f"d{d:03d}/{end}"]) else 1.0 for d in which])
