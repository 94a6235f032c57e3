"""From columns of samples to counts of signs, for `services.numerics.evidence.adequacy`.

A column of a probe says of each sample 1 where a sign was seen, 0 where not, and -1 where nobody looked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from services.errors import MeasureError, Problem
from services.numerics.evidence.adequacy import DELTA, RATES, Sign, SignCount, undecidable

Columns = Mapping[str, NDArray[Any]]


def paired_count(sign: Sign, correct: ArrayLike, attack: ArrayLike, weaker: ArrayLike) -> SignCount:
    """How often only the weaker attack, and only the attack under scrutiny, broke a correctly classified sample.

    Args:
        correct, attack: (n,) correctly classified; survival of the attack, 1 or 0.
        weaker: (n,) survival of the weaker one; of noise, the share of draws survived in [0, 1].

    Raises:
        MeasureError: columns of different lengths.
    """
    right, stands, left = _columns(sign, correct, attack, weaker)
    stands, left, right = stands >= 1, left >= 1, right > 0
    against, favour = right & stands & ~left, right & ~stands & left
    return SignCount(sign, int(against.sum()), int(right.sum()), int(favour.sum()))


def rate_count(sign: Sign, counted: ArrayLike, shown: ArrayLike) -> SignCount:
    """How many of the counted samples (n,) show a sign that is not paired.

    Raises:
        MeasureError: columns of different lengths.
    """
    right, seen = _columns(sign, counted, shown)
    return SignCount(sign, int(((right > 0) & (seen > 0)).sum()), int((right > 0).sum()))


def probe_counts(first: Columns, second: Columns | None = None) -> Iterator[SignCount]:
    """The counts of a probe.

    Args:
        first: what was seen by sign, each (n,), and `stands` (n,): 1 where the attack left the sample.
        second: of paired signs that need it, what was seen on the samples that the attack broke.
    """
    stands = first["stands"] > 0
    for sign, name, values in _signs(first):
        if not (values >= 0).any():
            continue
        if sign in RATES:
            yield SignCount(sign, int((values == 1).sum()), int((values >= 0).sum()), probe=True)
            continue
        others = values[~stands]
        if (others < 0).any() and second is not None and name in second:
            others = second[name]
        favour = None if (others < 0).any() else int((others == 0).sum())
        yield SignCount(sign, int((stands & (values == 1)).sum()), len(values), favour, probe=True)


def unsettled(columns: Columns, delta: float = DELTA) -> set[Sign]:
    """Paired signs that may show, once it is known how often the attack alone broke a sample."""
    stands = columns["stands"] > 0
    return {
        sign
        for sign, _, values in _signs(columns)
        if sign not in RATES
        and (values[~stands] < 0).any()
        and not undecidable(int((stands & (values == 1)).sum()), 1, delta)
    }


def _signs(columns: Columns) -> Iterator[tuple[Sign, str, NDArray[Any]]]:
    """A column is named after its sign, and what tells it from others of that sign."""
    known = {sign.value: sign for sign in Sign}
    for name, values in columns.items():
        if (sign := known.get(name.partition(":")[0])) is not None:
            yield sign, name, values


def _columns(sign: Sign, *columns: ArrayLike) -> list[NDArray[Any]]:
    arrays = [np.asarray(column) for column in columns]
    if any(array.ndim != 1 or len(array) != len(arrays[0]) for array in arrays):
        shapes = ", ".join(str(array.shape) for array in arrays)
        raise MeasureError(Problem(f"attack adequacy, {sign}", "columns of one length", shapes))
    return arrays
