"""Places in a ranking with confidence: which places a row may have, given limits that hold for all rows together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def place_sets(
    lows: Sequence[float | None], highs: Sequence[float | None], *, lower_is_better: bool = False
) -> list[tuple[int, int] | None]:
    """Best and worst place of each row; None where its limits are unknown.

    Row i is behind every row whose low lies above its high, and before every row whose high lies below its low. With
    limits that all hold with probability 1 - delta, all these sets hold the true places with the same probability. A
    row without limits may be anywhere, and takes a place from the others both ways.
    """
    low = np.array([np.nan if value is None else value for value in lows], dtype=np.float64)
    high = np.array([np.nan if value is None else value for value in highs], dtype=np.float64)
    if lower_is_better:
        low, high = -high, -low
    known = ~(np.isnan(low) | np.isnan(high))
    behind = (low[None, :] > high[:, None]).sum(axis=1)  # false for NaN
    before = (high[None, :] < low[:, None]).sum(axis=1)
    return [
        (int(1 + back), int(len(low) - front)) if sure else None
        for back, front, sure in zip(behind, before, known, strict=True)
    ]
