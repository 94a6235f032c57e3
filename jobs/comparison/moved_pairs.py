"""Which classes are taken for which more often, or less, than in an earlier audit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from services.numerics.confusion_matrix import ConfusionMatrix
from services.records import NO_CLASS, Estimate
from tracking.bundle.comparison import MovedPair
from tracking.bundle.reasons.confusions import Cells

MOST = 50
"""Pairs of classes of one model."""


def moved_pairs(
    then: Sequence[Cells], now: Sequence[Cells], classes: Sequence[str], alpha: float
) -> tuple[MovedPair, ...]:
    """The pairs of classes whose shares differ for certain, in series that both have, the largest difference first.

    The limits of a difference are those of the two shares, each matrix's at level alpha / 2 for all its pairs together:
    ``[low_now - high_then, high_now - low_then]``. All of a series hold together with probability at least 1 - alpha,
    however the two sides depend on each other (the samples may be the same). Named is a pair whose limits leave out 0.
    """
    earlier = {part.series: part for part in then}
    moved = [
        pair for part in now if part.series in earlier for pair in _moved(earlier[part.series], part, classes, alpha)
    ]
    return tuple(sorted(moved, key=lambda pair: -abs(pair.difference.value or 0.0))[:MOST])


def _moved(then: Cells, now: Cells, classes: Sequence[str], alpha: float) -> list[MovedPair]:
    old, new = (ConfusionMatrix(len(classes), part.labels, part.predicted, part.counts) for part in (then, now))
    joined = old.merge(new)
    kept = joined.wrong & (old.totals * new.totals > 0)[joined.labels]
    labels, predicted = joined.labels[kept], joined.predicted[kept]
    before, after = old.share_of(labels, predicted), new.share_of(labels, predicted)
    (old_low, old_high), (new_low, new_high) = (side.intervals_of(labels, predicted, alpha / 2) for side in (old, new))
    low, high = new_low - old_high, new_high - old_low
    return [
        MovedPair(
            now.series,
            now.title,
            classes[int(labels[k])],
            classes[int(predicted[k])] if predicted[k] != NO_CLASS else "",
            float(before[k]),
            float(after[k]),
            Estimate(float(after[k] - before[k]), float(low[k]), float(high[k])),
        )
        for k in np.flatnonzero((low > 0) | (high < 0)).tolist()
    ]
