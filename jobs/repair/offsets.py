"""Class offsets that raise the weakest class: which to try next, and which of those tried is best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

DIGITS = 4
"""Decimals of an offset: what is printed is what was measured."""


@dataclass(frozen=True)
class Tried:
    """Offsets with what an audit measured under them.

    Attributes:
        offsets: (K,) added to the logits.
        scores: (K,) mean score of each class; NaN where it has no samples.
    """

    offsets: tuple[float, ...]
    scores: tuple[float, ...]
    mean: float

    @property
    def worst(self) -> float:
        """The smallest class mean."""
        return float(np.nanmin(self.scores))

    @property
    def lower_half(self) -> float:
        """Mean of the weaker half of the classes: what tells two apart whose worst class is the same, such as 0."""
        known = np.sort(np.array(self.scores)[~np.isnan(self.scores)])
        return float(known[: max(1, len(known) // 2)].mean())


def proposals(best: Tried, steps: Sequence[float]) -> list[tuple[float, ...]]:
    """For each step the offsets moved by it: up for classes below the mean class, down for those above.

    ``b + step * (m - s) / max |m - s|`` with class means s and their mean m, less the mean of the offsets, which
    changes no prediction. Empty where all classes are equal.
    """
    scores = np.array(best.scores)
    away = np.nan_to_num(np.nanmean(scores) - scores)
    largest = np.abs(away).max()
    if largest == 0:
        return []
    moved = [np.array(best.offsets) + step * away / largest for step in steps]
    return [tuple((offsets - offsets.mean()).round(DIGITS).tolist()) for offsets in moved]


def best_of(tried: Sequence[Tried], least_mean: float) -> Tried:
    """The one with the best worst class, then the best weaker half, then the best mean, of those that keep the mean."""
    kept = [each for each in tried if each.mean >= least_mean]
    return max(kept, key=lambda each: (each.worst, each.lower_half, each.mean))


def front(tried: Sequence[Tried]) -> list[Tried]:
    """Those than which none is better in worst class and mean, the best mean first."""
    ordered = sorted(tried, key=lambda each: (-each.mean, -each.worst))
    kept: list[Tried] = []
    for each in ordered:
        if not kept or each.worst > kept[-1].worst:
            kept.append(each)
    return kept
