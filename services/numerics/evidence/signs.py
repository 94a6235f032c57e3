"""From columns of samples to counts of signs, for `services.numerics.evidence.adequacy`.

A column of a probe says of each sample 1 where a sign was seen, 0 where not, and -1 where nobody looked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from services.errors import MeasureError, Problem
from services.numerics.evidence.adequacy import DELTA, RATES, Sign, SignCount, most_favour

OF_GRADIENT = (Sign.ZERO_GRADIENT, Sign.NON_FINITE, Sign.SATURATED, Sign.UNPREDICTIVE)
"""Signs of a single gradient, which are counted by class as well."""
SUSPECT = 1 / 3
"""A class or part of which so large a share of a few samples shows a sign is looked at on more of them."""

Columns = Mapping[str, NDArray[Any]]


def paired_count(sign: Sign, correct: ArrayLike, attack: ArrayLike, weaker: ArrayLike) -> SignCount:
    """How often only the weaker attack, and only the attack under scrutiny, broke a correctly classified sample.

    Args:
        correct, attack: (n,) correctly classified; survival of the attack, 1 or 0.
        weaker: (n,) survival of the weaker one; of noise, the share of draws survived in [0, 1].

    Raises:
        MeasureError: columns of different lengths.
    """
    right, against, favour = _pairs(sign, correct, attack, weaker)
    return SignCount(sign, int(against.sum()), int(right.sum()), int(favour.sum()))


def rate_count(sign: Sign, counted: ArrayLike, shown: ArrayLike) -> SignCount:
    """How many of the counted samples (n,) show a sign that is not paired.

    Raises:
        MeasureError: columns of different lengths.
    """
    right, seen = _columns(sign, counted, shown)
    return SignCount(sign, int(((right > 0) & (seen > 0)).sum()), int((right > 0).sum()))


def by_class(sign: Sign, labels: ArrayLike, *columns: ArrayLike) -> Iterator[SignCount]:
    """The count of `paired_count` (of three columns) or `rate_count` (of two) of each class that has samples.

    Args:
        labels: (n,) of the samples.

    Raises:
        MeasureError: columns of different lengths.
    """
    label = _columns(sign, labels, *columns)[0].astype(np.int64)
    if len(columns) == 3:
        right, against, favour = _pairs(sign, *columns)
    else:
        right, shown = (column > 0 for column in _columns(sign, *columns))
        against, favour = right & shown, np.zeros_like(right)
    counted, shows, other = (np.bincount(label[part], minlength=1) for part in (right, against, favour))
    for value in np.flatnonzero(counted).tolist():
        many, few = (int(part[value]) if value < len(part) else 0 for part in (shows, other))
        yield SignCount(sign, many, int(counted[value]), few, part=class_part(value), label=value)


def class_part(label: int) -> str:
    """A class as a part of the samples, where its name is not known."""
    return f"class {label}"


def _pairs(sign: Sign, correct: ArrayLike, attack: ArrayLike, weaker: ArrayLike) -> tuple[NDArray[np.bool_], ...]:
    right, stands, left = _columns(sign, correct, attack, weaker)
    stands, left, right = stands >= 1, left >= 1, right > 0
    return right, right & stands & ~left, right & ~stands & left


def probe_counts(
    first: Columns, second: Columns | None = None, parts: Columns | None = None, classes: Sequence[Columns] = ()
) -> Iterator[SignCount]:
    """The counts of a probe: over all, by part of the input, and by class.

    Args:
        first: what was seen by sign, each (n,), and `stands` (n,): 1 where the attack left the sample.
        second: of paired signs that need it, what was seen on the samples that the attack broke.
        parts: of suspect parts of the input, what was seen on all samples of `first`, in place of its own.
        classes: signs of the gradient on further samples, and the `label` of each.
    """
    stands = first["stands"] > 0
    for sign, detail, values in _signs(first):
        if not (values >= 0).any():
            continue
        if sign in RATES:
            part = detail if sign is Sign.UNPREDICTIVE else ""
            values = _again(sign, detail, values, parts) if part else values
            yield SignCount(sign, int((values == 1).sum()), int((values >= 0).sum()), probe=True, part=part)
            continue
        others = values[~stands]
        if (others < 0).any() and second is not None and (name := _named(sign, detail)) in second:
            others = second[name]
        favour = None if (others < 0).any() else int((others == 0).sum())
        yield SignCount(sign, int((stands & (values == 1)).sum()), len(values), favour, probe=True)
    if "label" in first:
        yield from _fallen_by_class(first, stands)
        yield from gradients_by_class([first, *classes])


def _fallen_by_class(first: Columns, stands: NDArray[np.bool_]) -> Iterator[SignCount]:
    """Of the classes in which a weaker attack broke what the attack left, how many of those looked at."""
    for sign, _, values in _signs(first):
        fallen = stands & (values == 1)
        for label in np.unique(first["label"][fallen]).tolist() if sign not in RATES else ():
            mine = first["label"] == label
            counts = int((fallen & mine).sum()), int(mine.sum())
            yield SignCount(sign, *counts, None, probe=True, part=class_part(label), label=label)


def gradients_by_class(tables: Sequence[Columns]) -> Iterator[SignCount]:
    """The signs of a gradient in each class, over tables of different samples."""
    for sign in OF_GRADIENT:
        known = [table for table in tables if sign.value in table]
        if not known:
            continue
        values, labels = (np.concatenate([table[name] for table in known]) for name in (sign.value, "label"))
        for label in np.unique(labels[values >= 0]).tolist():
            mine = values[(labels == label) & (values >= 0)]
            yield SignCount(sign, int(mine.sum()), len(mine), probe=True, part=class_part(label), label=label)


def suspects(counts: Iterable[SignCount]) -> list[SignCount]:
    """The parts and classes of which too few samples were looked at for what they show."""
    of_part = (count for count in counts if count.part and not count.paired)
    return [count for count in of_part if count.against >= 2 and count.against >= SUSPECT * count.counted]


def _again(sign: Sign, detail: str, values: NDArray[Any], parts: Columns | None) -> NDArray[Any]:
    return values if parts is None else parts.get(_named(sign, detail), values)


def _named(sign: Sign, detail: str) -> str:
    return f"{sign}:{detail}" if detail else sign.value


def unsettled(columns: Columns, delta: float = DELTA) -> dict[str, int]:
    """Columns of paired signs that may show, and how many samples the attack alone may have broken for that."""
    stands = columns["stands"] > 0
    open_signs: dict[str, int] = {}
    for sign, detail, values in _signs(columns):
        if sign not in RATES and (values[~stands] < 0).any():
            most = most_favour(int((stands & (values == 1)).sum()), len(values), delta)
            if most >= 0:
                open_signs[_named(sign, detail)] = most
    return open_signs


def _signs(columns: Columns) -> Iterator[tuple[Sign, str, NDArray[Any]]]:
    """A column is named after its sign, and what tells it from others of that sign."""
    known = {sign.value: sign for sign in Sign}
    for name, values in columns.items():
        first, _, detail = name.partition(":")
        if (sign := known.get(first)) is not None:
            yield sign, detail, values


def _columns(sign: Sign, *columns: ArrayLike) -> list[NDArray[Any]]:
    arrays = [np.asarray(column) for column in columns]
    if any(array.ndim != 1 or len(array) != len(arrays[0]) for array in arrays):
        shapes = ", ".join(str(array.shape) for array in arrays)
        raise MeasureError(Problem(f"attack adequacy, {sign}", "columns of one length", shapes))
    return arrays
