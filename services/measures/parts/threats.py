"""Radii as users write them: numbers or fractions in [0, 1] pixel units, one or a list."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from services import limits

Norm = Literal["Linf", "L2"]


def read_radius(value: Any) -> Any:
    """A number as it is, ``"8/255"`` as the float it means; anything else is left to the type's own message."""
    if not isinstance(value, str):
        return value
    try:
        return limits.fraction(value)
    except ValueError:
        raise ValueError(f"expected a number or a fraction like '8/255', found {value[:100]!r}") from None


def _as_list(value: Any) -> Any:
    return (value,) if isinstance(value, int | float | str) else value


MOST_RADII = 100
"""Radii, or strengths, of one measure."""

FRACTION = r"^ *[0-9.]+ */ *[0-9.]+ *$"
"""How the JSON Schema knows a fraction."""

Written = Annotated[float, Field(gt=0)] | Annotated[str, Field(pattern=FRACTION)]
"""What the JSON Schema says of a positive number: it may stand as the fraction that people write."""

Radius = Annotated[
    float, BeforeValidator(read_radius, json_schema_input_type=Written), Field(gt=0, allow_inf_nan=False)
]
"""A positive radius."""

Radii = Annotated[
    tuple[Radius, ...],
    BeforeValidator(_as_list, json_schema_input_type=Written | Annotated[tuple[Written, ...], Field(min_length=1)]),
    Field(min_length=1, max_length=MOST_RADII),
]
"""One or several radii; a single one need not be a list."""


def check_radii(radii: tuple[float, ...], norm: Norm) -> tuple[float, ...]:
    """Return the radii in rising order.

    Raises:
        ValueError: an Linf radius above 1, which exceeds the pixel range and is meant in 255ths; two radii that round
            to the same five decimals, which the keys of their series could not distinguish.
    """
    if norm == "Linf":
        check_pixel_units("an Linf epsilon", radii)
    if len({f"{radius:.5f}" for radius in radii}) < len(radii):
        raise ValueError(f"expected epsilons that differ in five decimals, found {list(radii)}")
    return tuple(sorted(radii))


def check_pixel_units(what: str, values: tuple[float, ...]) -> None:
    """Raise a ValueError for what exceeds the range of a pixel: 8 was meant as 8/255."""
    for value in values:
        if value > 1:
            raise ValueError(f"expected {what} in [0, 1] pixel units, found {value:g}; meant {value:g}/255?")


def radius_key(norm: Norm, radius: float) -> str:
    """``linf-0.03137``: how a radius stands in the key of a series."""
    return f"{norm.lower()}-{radius:.5f}"


WRITTEN = re.compile(r"(.{1,200}/(?:linf|l2|l1)-)(\d{1,4}(?:\.\d{1,12})?)(?:/(\d{1,6}))?")


def key_as_written(text: str) -> str:
    """A key with its radius as people write it, ``pgd20/linf-8/255`` or ``cw/l2-0.5``, as the series has it."""
    written = WRITTEN.fullmatch(text)
    if written is None or (divisor := int(written[3] or 1)) == 0:
        return text
    return f"{written[1]}{float(written[2]) / divisor:.5f}"


def radius_title(norm: Norm, radius: float) -> str:
    """``Linf 8/255`` for whole 255ths, else ``L2 0.5``."""
    steps = radius * 255
    if norm == "Linf" and abs(steps - round(steps)) < 1e-6:
        return f"{norm} {round(steps)}/255"
    return f"{norm} {radius:.5g}"
