"""Confusions of two audits: what is named moved, and how often chance alone names something."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import beta

from jobs.comparison.moved_pairs import moved_pairs
from services.numerics.confusion_matrix import ConfusionMatrix
from tracking.bundle.reasons.confusions import Cells

NAMES = ("cat", "dog", "eel")


def cells(rows: list[list[int]], series: str = "pgd20") -> Cells:
    counts = np.array(rows)
    labels, predicted = np.nonzero(counts)
    matrix = ConfusionMatrix(len(rows), labels, predicted, counts[labels, predicted])
    low, high = matrix.intervals(0.05)
    totals = matrix.totals[labels]
    return Cells(series, "PGD-20", NAMES[: len(rows)], labels, predicted, matrix.counts, totals, low, high, None)


def test_a_pair_is_named_that_moved_also_from_none_and_a_small_change_is_not() -> None:
    then = cells([[100, 0, 0], [3, 90, 7], [0, 0, 100]])
    now = cells([[60, 40, 0], [5, 88, 7], [0, 0, 100]])
    (pair,) = moved_pairs([then], [now], NAMES, 0.05)
    assert (pair.label, pair.predicted, pair.then, pair.now) == ("cat", "dog", 0.0, 0.4)
    each = 0.025 / (2 * 9)
    upper = 1 - each ** (1 / 100)
    assert pair.difference.low == pytest.approx(beta.ppf(each, 40, 61) - upper)
    assert pair.difference.high == pytest.approx(beta.ppf(1 - each, 41, 60) - 0.0)
    assert moved_pairs([then], [cells([[60, 40, 0], [5, 88, 7], [0, 0, 100]], "other")], NAMES, 0.05) == ()
    assert moved_pairs([then], [cells([[0, 0, 0], [3, 90, 7], [0, 0, 100]])], NAMES, 0.05) == (), "no sample of cat now"


def test_of_two_draws_from_one_network_hardly_any_pair_is_named() -> None:
    draw = np.random.default_rng(0)
    shares = np.array([[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.05, 0.05, 0.9]])
    named = 0
    for _ in range(400):
        pair = [cells([draw.multinomial(80, row).tolist() for row in shares]) for _ in range(2)]
        named += bool(moved_pairs(pair[:1], pair[1:], NAMES, 0.2))
    assert named / 400 < 0.2
