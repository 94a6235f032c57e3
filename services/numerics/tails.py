"""Tails of the binomial distribution without `scipy.stats`, whose import costs half a second of every audit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import bdtr, bdtrc, ndtr

from services.numerics.arguments import Floats


def at_least(count: Any, trials: Any, chance: float) -> Floats:
    """P(X >= count) for X of Binomial(trials, chance), elementwise; 1 for counts up to 0."""
    return np.where(np.less_equal(count, 0), 1.0, bdtrc(np.maximum(count, 1) - 1.0, np.asarray(trials), chance))


def gained_by_chance(gained: int, lost: int) -> float:
    """McNemar's exact p-value, one-sided: of pairs that differ, at least `gained` go that way by a fair coin."""
    return float(at_least(gained, gained + lost, 0.5))


def gained_beyond(gained: int, lost: int, counted: int, margin: float) -> float:
    """One-sided p-value of "of all pairs at most a share `margin` more are gained than lost".

    The score test of Tango 1998 (Statistics in Medicine 17, 891), ``(b - c - n d) / sqrt(n (2 q + d (1 - d)))`` with
    the share q lost that is likeliest where the hypothesis just holds; but no less than the exact binomial test of the
    gained alone against d, and than McNemar's, for where there are few. Simulated for n from 10 to 5,652, d of .05 and
    .1: at levels from .04 to .004 the true one is at most 1.3 times as large, at .00025 1.8 times.

    Args:
        counted: n, all pairs, whether or not they differ.
    """
    if not gained:
        return 1.0
    linear = -gained - lost + (2 * counted - gained + lost) * margin
    likeliest = math.sqrt(linear**2 + 8 * counted * lost * margin * (1 - margin)) - linear
    spread = math.sqrt(counted * (likeliest / (2 * counted) + margin * (1 - margin)))
    score = (gained - lost - counted * margin) / spread
    return max(float(ndtr(-score)), float(at_least(gained, counted, margin)), gained_by_chance(gained, lost))


def at_most(count: Any, trials: Any, chance: float) -> Floats:
    """P(X <= count) for counts from 0 to `trials`, elementwise."""
    return np.asarray(bdtr(np.asarray(count, dtype=float), np.asarray(trials), chance))
