"""Tails of the binomial distribution without `scipy.stats`, whose import costs half a second of every audit."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import bdtr, bdtrc

from services.numerics.arguments import Floats


def at_least(count: Any, trials: Any, chance: float) -> Floats:
    """P(X >= count) for X of Binomial(trials, chance), elementwise; 1 for counts up to 0."""
    return np.where(np.less_equal(count, 0), 1.0, bdtrc(np.maximum(count, 1) - 1.0, np.asarray(trials), chance))


def gained_by_chance(gained: int, lost: int) -> float:
    """McNemar's exact p-value, one-sided: of pairs that differ, at least `gained` go that way by a fair coin."""
    return float(at_least(gained, gained + lost, 0.5))


def at_most(count: Any, trials: Any, chance: float) -> Floats:
    """P(X <= count) for counts from 0 to `trials`, elementwise."""
    return np.asarray(bdtr(np.asarray(count, dtype=float), np.asarray(trials), chance))
