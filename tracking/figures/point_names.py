"""Which points of a scatter panel get their name written beside them."""

from __future__ import annotations

import math

import numpy as np

from tracking.figures.charts import Cloud, Values

MOST_LABELS = 12
_APART = (0.36, 0.08)
"""Shares of the panel's width and height within which two labels would collide."""


def numbers(values: Values) -> np.ndarray:
    """The values as floats, NaN where undefined."""
    return np.array([math.nan if value is None else value for value in values], dtype=float)


def spread(cloud: Cloud) -> list[int]:
    """Points to label: greedily those apart from the ones labelled already, so that labels do not collide."""
    points = np.stack([numbers(cloud.x), numbers(cloud.y)], axis=1)
    known = np.flatnonzero(np.isfinite(points).all(axis=1))
    if known.size == 0:
        return []
    size = np.ptp(points[known], axis=0)
    scaled = points / np.where(size > 0, size, 1.0)
    chosen: list[int] = []
    for index in known:
        gaps = np.abs(scaled[chosen] - scaled[index])
        if len(chosen) < MOST_LABELS and bool((gaps > _APART).any(axis=1).all()):
            chosen.append(int(index))
    return chosen
