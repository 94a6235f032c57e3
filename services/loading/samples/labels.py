"""Labels as a source holds them, checked and turned into int64 in [0, K). Nothing is repaired in silence."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.errors import Problem, SourceError

MOST_CLASSES = 100_000
"""Without class names K is read off the largest label; a stray id among the labels must not become so many classes."""

LONGEST = 1_000
"""Characters of the name of a class or a group: it stands in tables, reports and answers of servers."""

MISSING = frozenset({"", "nan", "na", "n/a", "<na>"})
"""What tables write where a value is missing, in lower case."""


def checked_labels(
    raw: NDArray[Any], classes: tuple[str, ...] | None, *, count: int, where: str
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return labels (N,) int64 in [0, K) and the K class names; labels (N, 1) are labels (N,).

    Text labels are looked up in `classes` (or in their own sorted set); whole numbers index it. Without class names
    K is the largest label plus one and the names are the numbers.

    Raises:
        SourceError: one-hot or floating labels, a wrong number of them, negative ones, or ones beyond K; with counts.
    """
    if raw.shape == (count, 1):
        raw = raw[:, 0]
    problems = [*_shape_problems(raw, count, where), *_class_problems(classes, where)]
    if not problems and raw.dtype.kind in "US":
        return _from_text(raw.astype(str), classes, where)
    problems = problems or [*_dtype_problems(raw, where), *_range_problems(raw, classes, where)]
    if problems:
        raise SourceError(problems)
    labels = raw.astype(np.int64)
    return labels, classes or tuple(str(k) for k in range(int(labels.max()) + 1))


def in_order(
    labels: NDArray[Any], listed: tuple[str, ...] | None, wanted: tuple[str, ...] | None
) -> tuple[NDArray[Any], tuple[str, ...] | None]:
    """Labels and class names in the order that is wanted, where a source lists the same names in another order.

    Whole numbers index the source's own list, so they are moved with the names; other names take the place of the
    source's.
    """
    if not (wanted and listed and wanted != listed and sorted(wanted) == sorted(listed)):
        return labels, wanted or listed
    if labels.dtype.kind not in "iu" or (labels.size and not 0 <= labels.min() <= labels.max() < len(listed)):
        return labels, wanted
    return np.array([wanted.index(name) for name in listed])[labels], wanted


def spelled_alike(values: Iterable[str]) -> list[tuple[str, ...]]:
    """Those of distinct values that read as one: apart from case, spaces around, Unicode's forms, and `1` for `1.0`.

    All words for a missing value read as one as well.
    """
    by_reading: dict[str, list[str]] = {}
    for value in sorted(set(values)):
        by_reading.setdefault(_reading(value), []).append(value)
    return [tuple(spellings) for spellings in by_reading.values() if len(spellings) > 1]


def _reading(value: str) -> str:
    plain = unicodedata.normalize("NFKC", value).strip().casefold()
    if plain in MISSING:
        return ""
    try:
        return repr(float(plain))
    except ValueError:
        return plain


def _shape_problems(raw: NDArray[Any], count: int, where: str) -> list[Problem]:
    if count == 0:
        return [Problem(where, "at least one sample", "none")]
    if raw.ndim == 2 and raw.shape[1] > 1 and raw.dtype.kind in "biuf" and np.all(raw.sum(axis=1) == 1):
        actual = f"one-hot rows {raw.shape}"
        return [Problem(where, "labels (N,) of whole numbers", actual, "store labels.argmax(axis=1)")]
    if raw.shape != (count,):
        return [Problem(where, f"labels ({count},), one an image", f"shape {raw.shape}")]
    return []


def _class_problems(classes: tuple[str, ...] | None, where: str) -> list[Problem]:
    """Two spellings of one name in Unicode look the same, and are the same class."""
    spelled = Counter(unicodedata.normalize("NFC", name) for name in classes or ())
    repeated = sorted(name for name, times in spelled.items() if times > 1)
    problems = too_long(spelled, f"{where} (classes)")
    if len(spelled) > MOST_CLASSES:
        problems.append(Problem(f"{where} (classes)", f"at most {MOST_CLASSES:,} classes", f"{len(spelled):,}"))
    if repeated:
        problems.append(Problem(f"{where} (classes)", "distinct class names", f"{repeated[:5]} more than once"))
    return problems


def too_long(names: Iterable[str], where: str) -> list[Problem]:
    """A problem where a name of a class or group has more than `LONGEST` characters."""
    longest = max(map(len, names), default=0)
    return [Problem(where, f"names of at most {LONGEST:,} characters", f"one of {longest:,}")] * (longest > LONGEST)


def _dtype_problems(raw: NDArray[Any], where: str) -> list[Problem]:
    if raw.dtype.kind in "iu":
        return []
    actual = f"{raw.dtype}"
    if raw.dtype.kind == "f":
        odd = int(np.sum(~np.isfinite(raw) | (raw != np.floor(raw))))
        actual = f"{raw.dtype}, {odd} of {raw.size} not whole"
    return [Problem(where, "labels of an integer type", actual, "store them as int64")]


def _range_problems(raw: NDArray[Any], classes: tuple[str, ...] | None, where: str) -> list[Problem]:
    if raw.dtype.kind not in "iu":
        return []
    problems = []
    if negative := int(np.sum(raw < 0)):
        problems.append(Problem(where, "labels of at least 0", f"{negative} of {raw.size} negative, least {raw.min()}"))
    if classes is None and raw.max() >= MOST_CLASSES:
        remedy = "number the classes from 0, or give their names in classes"
        problems.append(Problem(where, f"labels below {MOST_CLASSES}", f"{raw.max()} as the largest", remedy))
    if classes is not None and (beyond := int(np.sum(raw >= len(classes)))):
        actual = f"{beyond} of {raw.size} beyond (largest {raw.max()})"
        problems.append(
            Problem(where, f"labels below K = {len(classes)}", actual, "list every class or correct the labels")
        )
    return problems


def _from_text(
    raw: NDArray[Any], classes: tuple[str, ...] | None, where: str
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    names = classes or tuple(sorted(set(raw.tolist())))
    if problems := _class_problems(names, where):
        raise SourceError(problems)
    index = {name: k for k, name in enumerate(names)}
    labels = np.array([index.get(name, -1) for name in raw.tolist()], dtype=np.int64)
    if unknown := int(np.sum(labels < 0)):
        example = raw[int(np.argmin(labels))]
        actual = f"{unknown} of {raw.size} unknown, for example {str(example)!r}"
        raise SourceError(Problem(where, f"labels among the {len(names)} class names", actual))
    return labels, names
