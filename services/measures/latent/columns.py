"""The columns of a latent dimension: named here, written by `projection`, read back for Tol, Dev and Cou by group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count, takewhile
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from services.errors import MeasureError, Problem
from services.numerics.attributes.tolerance import Boundaries

WAYS = ("down", "up")
"""From the centre, in the order of the last axis of moves."""


@dataclass(frozen=True)
class LatentColumns:
    """Names of the columns of one dimension: `d003/centre`, `d003/up`, `d003/up_censored` and so on."""

    dimension: int

    @property
    def centre(self) -> str:
        return f"d{self.dimension:03d}/centre"

    @property
    def unit(self) -> str:
        return f"d{self.dimension:03d}/unit"

    @property
    def moves(self) -> tuple[str, ...]:
        """One a way."""
        return tuple(f"d{self.dimension:03d}/{way}" for way in WAYS)

    @property
    def censored(self) -> tuple[str, ...]:
        """One a way."""
        return tuple(f"{name}_censored" for name in self.moves)


def dimensions_of(columns: Mapping[str, NDArray[Any]], chosen: Sequence[int] | Literal["all"]) -> tuple[int, ...]:
    """The latent dimensions of a table of the measure `projection`, ascending: those it chose, or all it has."""
    if isinstance(chosen, str):
        return tuple(takewhile(lambda d: LatentColumns(d).unit in columns, count()))
    return tuple(sorted(chosen))


def boundaries_of(columns: Mapping[str, NDArray[Any]], dimensions: Sequence[int]) -> Boundaries:
    """Boundaries of the samples of a table of the measure `projection`, in latent units.

    Args:
        columns: with those of `LatentColumns` for each dimension; `centre` and `unit` (`reach` in the unit) are the
            same in every row.
        dimensions: whose boundaries, in this order.

    Raises:
        MeasureError: the table is of another measure.
    """
    of = [LatentColumns(d) for d in dimensions]
    if not of or any(each.unit not in columns for each in of):
        listed = ", ".join(sorted(columns)[:5]) or "none"
        raise MeasureError(Problem("columns", "those of the measure projection, d000/up and so on", listed))
    middle = np.array([_constant(columns[each.centre]) for each in of])
    width = np.array([_constant(columns[each.unit]) for each in of])
    moves = np.stack([np.stack([columns[name] for name in each.moves], axis=1) for each in of], axis=1)
    censored = np.stack([np.stack([columns[name] for name in each.censored], axis=1) for each in of], axis=1)
    positions = middle[:, None] + width[:, None] * moves * np.array([-1.0, 1.0])
    return Boundaries.of(positions, censored.astype(bool), middle, width)


def _constant(column: NDArray[Any]) -> float:
    """The value of a column that is the same in every row; 1 where there are no rows."""
    return float(column[0]) if len(column) else 1.0
