"""Limits on what others write, checked before anything is computed with it.

A number as text has a length and an exponent that bound what reading it costs: ``Fraction("1e7000000")`` takes half a
minute, ``int`` of many digits grows with their square. Plain data of a file or a request have a depth and a size.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

CHARACTERS = 64
"""Of a number as text."""
DEPTH = 32
NODES = 200_000
TEXT = 10_000
"""Characters of one text, or of a key."""
WHOLE = 2**63
"""Whole numbers are below it, and above its negative: what a column or a file format can hold."""
SHOWN = 20
FILE = 1 << 30
"""Bytes of a file of results that is read whole by a process that serves others."""
NOTE = 1 << 20
"""Bytes of a file that holds a few fields."""

Path = tuple[str | int, ...]
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?", re.ASCII)
_WHOLE = re.compile(r"\d{1,18}", re.ASCII)


def number(text: str) -> float:
    """A decimal number such as ``0.03`` or ``1e-3``.

    Raises:
        ValueError: it is none, longer than `CHARACTERS`, or not finite as a float64.
    """
    text = text.strip() if len(text) <= CHARACTERS else ""
    value = float(text) if _NUMBER.fullmatch(text) else float("nan")
    if not abs(value) < float("inf"):
        raise ValueError(f"expected a finite number of at most {CHARACTERS} characters")
    return value


def fraction(text: str) -> float:
    """A decimal number, or a fraction of two such as ``8/255``.

    Raises:
        ValueError: it is neither, has a denominator of 0, or a value beyond float64.
    """
    above, mark, below = text[: 2 * CHARACTERS + 2].partition("/")
    if not mark:
        return number(text)
    if len(text) > 2 * CHARACTERS + 1 or not (divisor := number(below)):
        raise ValueError("expected a fraction of two numbers, the lower one not 0")
    value = number(above) / divisor
    if abs(value) == float("inf"):
        raise ValueError("expected a fraction that is finite")
    return value


def whole(text: str) -> int:
    """A whole number of at least 0 and at most 18 digits.

    Raises:
        ValueError: it is none.
    """
    if not _WHOLE.fullmatch(text):
        raise ValueError("expected a whole number of at most 18 digits")
    return int(text)


def excesses(data: Any) -> Iterator[tuple[Path, str, str]]:
    """Where plain data exceed a limit, what was expected, and what stands there: at most `SHOWN`.

    Nothing is descended into twice as deep as allowed, and a tree that is too large ends the search.
    """
    todo: list[tuple[Path, Any]] = [((), data)]
    nodes = shown = 0
    while todo and shown < SHOWN:
        path, value = todo.pop()
        nodes += 1
        if nodes > NODES:
            yield (), f"at most {NODES} values", "more"
            return
        if excess := _excess(path, value):
            shown += 1
            yield path, *excess
        elif isinstance(value, dict):
            todo += [((*path, str(key)[:TEXT]), inner) for key, inner in value.items()]
            long = next((key for key in value if isinstance(key, str) and len(key) > TEXT), None)
            if long is not None:
                yield path, f"keys of at most {TEXT} characters", f"{len(long)} characters"
                return
        elif isinstance(value, list | tuple):
            todo += [((*path, index), inner) for index, inner in enumerate(value)]


def _excess(path: Path, value: Any) -> tuple[str, str] | None:
    if len(path) > DEPTH:
        return f"at most {DEPTH} levels", "more"
    if isinstance(value, str) and len(value) > TEXT:
        return f"at most {TEXT} characters", f"{len(value)} characters"
    if isinstance(value, int) and not -WHOLE < value < WHOLE:
        return "a whole number of at most 63 bits", f"one of {value.bit_length()} bits"
    if isinstance(value, list | tuple | dict) and len(value) > NODES:
        return f"at most {NODES} values", str(len(value))
    return None
