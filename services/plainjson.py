"""JSON that others wrote: whatever is wrong with it is a `ValueError`."""

from __future__ import annotations

import json
from typing import Any


def parsed(data: bytes | str) -> Any:
    """The value of a JSON text.

    Raises:
        ValueError: it is no JSON, no UTF-8, has a number of thousands of digits, or is nested hundreds of levels deep.
    """
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("JSON nested hundreds of levels deep") from None
