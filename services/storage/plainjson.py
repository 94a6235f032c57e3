"""JSON that others wrote: whatever is wrong with it is a `ValueError`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any


def parsed(data: bytes | str, *, constant: Callable[[str], Any] | None = None) -> Any:
    """The value of a JSON text.

    Args:
        constant: what stands for NaN and the infinities; default: the floating-point numbers.

    Raises:
        ValueError: it is no JSON, no UTF-8, has a number of thousands of digits, or is nested hundreds of levels deep.
    """
    try:
        return json.loads(data, parse_constant=constant)
    except RecursionError:
        raise ValueError("JSON nested hundreds of levels deep") from None
