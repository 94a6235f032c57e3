"""What each class is taken for: confusion matrices of the clean predictions and of each attack, at each radius."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from services.measures.measure import Measure
from services.numerics.arguments import Floats, Ints
from services.numerics.confusion_matrix import ConfusionMatrix
from services.records import ATTACKED, PREDICTED, ConfusedPair, ConfusionResult, Estimate, Series
from tracking.bundle.reasons.confusions import Cells
from tracking.bundle.scores import Scores, columns_beside

WEAKEST = 10
"""Classes whose destinations stand in the record; all are in the bundle's table."""
DESTINATIONS = 2
"""Of each."""
MOST_ORDERED = 60
"""Classes up to which a matrix is a picture, whose rows are put in order."""


@dataclass(frozen=True)
class Confused:
    """The confusion matrix of a series, and that of the clean predictions where they are known."""

    series: Series
    matrix: ConfusionMatrix
    delta: float
    clean: ConfusionMatrix | None = None

    @cached_property
    def limits(self) -> tuple[Floats, Floats]:
        """(M,) of the shares of its cells, for all pairs of classes together at level delta."""
        return self.matrix.intervals(self.delta)


def matrices(measures: Sequence[Measure], scores: Scores, classes: int, delta: float) -> list[Confused]:
    """Clean predictions first, then each attack: at a radius, what its ball left counts as its own class."""
    labels, found, attacks = scores["label"], [], []
    predicted: Ints | None = None
    for measure in measures:
        series = measure.series()
        beside = columns_beside(scores, series[0].key)
        if PREDICTED in beside:
            predicted = beside[PREDICTED]
            found.append(Confused(series[0], ConfusionMatrix.of(labels, predicted, classes), delta))
        if ATTACKED in beside:
            attacks.append((series, beside[ATTACKED]))
            if predicted is None:  # an attack leaves what was misclassified before it where it was
                predicted = np.where(beside["correct"] > 0, labels, beside[ATTACKED])
    clean = None if predicted is None else ConfusionMatrix.of(labels, predicted, classes)
    for series, attacked in attacks:
        for each in series:
            reached = np.where(scores[each.key] > 0, labels, attacked) if each.binary else attacked
            found.append(Confused(each, ConfusionMatrix.of(labels, reached, classes), delta, clean))
    return found


def confusion_results(confused: Sequence[Confused]) -> tuple[ConfusionResult, ...]:
    """The largest shares of the weakest classes, with limits that hold for all pairs of classes together."""
    return tuple(
        ConfusionResult(
            each.series.key,
            each.series.title,
            each.series.attack,
            _under(each.series),
            tuple(_pairs(each)),
            int(each.matrix.counts[each.matrix.wrong].sum()),
            tuple(each.matrix.block_order().tolist()) if each.matrix.size <= MOST_ORDERED else (),
            each.delta,
        )
        for each in confused
    )


def _under(series: Series) -> str:
    if not series.attack:
        return "without an attack"
    return f"under {series.title.replace(' accuracy (', ' (')}" if series.binary else "at the nearest adversarial found"


def _pairs(of: Confused) -> Iterator[ConfusedPair]:
    matrix, (low, high) = of.matrix, of.limits
    totals = matrix.totals
    kept = matrix.share_of(np.arange(matrix.size), np.arange(matrix.size))
    classes = [k for k in np.argsort(kept, kind="stable").tolist() if totals[k]]
    for label in classes[:WEAKEST]:
        cells = np.flatnonzero((matrix.labels == label) & matrix.wrong)
        for cell in cells[np.argsort(-matrix.counts[cells], kind="stable")][:DESTINATIONS].tolist():
            share = Estimate(float(matrix.shares[cell]), float(low[cell]), float(high[cell]))
            place = matrix.labels[cell : cell + 1], matrix.predicted[cell : cell + 1]
            clean = None if of.clean is None else float(of.clean.share_of(*place)[0])
            count, to = int(matrix.counts[cell]), int(matrix.predicted[cell])
            yield ConfusedPair(label, to, count, int(totals[label]), share, clean)


def cells(confused: Sequence[Confused], classes: Sequence[str]) -> Iterator[Cells]:
    """All cells that hold samples, for the bundle."""
    for each in confused:
        matrix, (low, high) = each.matrix, each.limits
        clean = None if each.clean is None else each.clean.share_of(matrix.labels, matrix.predicted)
        yield Cells(
            each.series.key,
            each.series.title,
            tuple(classes),
            matrix.labels,
            matrix.predicted,
            matrix.counts,
            matrix.totals[matrix.labels],
            low,
            high,
            clean,
        )
