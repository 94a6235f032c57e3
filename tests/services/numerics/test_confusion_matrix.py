"""Confusion matrices against a dense oracle, and the level of their intervals by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix
from statsmodels.stats.proportion import proportion_confint

from services.errors import MeasureError
from services.numerics.confusion_matrix import ConfusionMatrix

RNG = np.random.default_rng(0)


def test_counts_shares_and_merge_are_those_of_the_dense_matrix() -> None:
    labels, predicted = RNG.integers(0, 7, 500), RNG.integers(-1, 7, 500)
    whole = ConfusionMatrix.of(labels, predicted, 7)
    dense = confusion_matrix(labels, predicted, labels=range(-1, 7))[1:]
    sparse = np.zeros((7, 8), dtype=int)
    sparse[whole.labels, whole.predicted + 1] = whole.counts
    assert np.array_equal(sparse, dense)
    parts = ConfusionMatrix.of(labels[:200], predicted[:200], 7).merge(
        ConfusionMatrix.of(labels[200:], predicted[200:], 7)
    )
    assert np.array_equal(parts.counts, whole.counts) and np.array_equal(parts.labels, whole.labels)
    share = whole.share_of(np.array([3, 3]), np.array([4, -1]))
    assert share == pytest.approx(dense[3, [5, 0]] / dense[3].sum())
    low, high = whole.intervals(0.05)
    exact = proportion_confint(whole.counts, whole.totals[whole.labels], 0.05 / 49, "beta")
    assert low == pytest.approx(exact[0]) and high == pytest.approx(exact[1])


def test_the_pair_that_looks_worst_is_covered() -> None:
    """Uniform confusion of 5 classes: the largest of 20 cells is chosen by looking, and its limit still holds."""
    missed, runs = 0, 400
    for _ in range(runs):
        labels = np.repeat(np.arange(5), 60)
        predicted = RNG.integers(0, 5, 300)
        matrix = ConfusionMatrix.of(labels, predicted, 5)
        low, _ = matrix.intervals(0.05)
        missed += low[np.argmax(np.where(matrix.wrong, matrix.shares, 0.0))] > 0.2
    assert missed / runs <= 0.05


def test_a_thousand_classes_are_few_cells() -> None:
    labels = np.repeat(np.arange(1000), 50)
    matrix = ConfusionMatrix.of(labels, (labels + RNG.integers(0, 3, len(labels))) % 1000, 1000)
    assert len(matrix.counts) == 3000 and matrix.totals.sum() == 50_000


def test_blocks_stand_together() -> None:
    """Classes 0, 2, 4 are taken for each other, and 1, 3, 5: neighbours in the order."""
    labels = np.repeat(np.arange(6), 30)
    predicted = (labels + 2 * RNG.integers(0, 3, len(labels))) % 6
    order = ConfusionMatrix.of(labels, predicted, 6).block_order().tolist()
    assert {k % 2 for k in order[:3]} != {0, 1}


@pytest.mark.parametrize("predicted", [[0, 5], [0, -2], [0]])
def test_predictions_outside_the_classes_are_refused(predicted: list[int]) -> None:
    with pytest.raises(MeasureError, match="predicted"):
        ConfusionMatrix.of(np.array([0, 1]), np.array(predicted), 5)
