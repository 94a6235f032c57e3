"""Paired resampling: sums against a loop, false separations by simulation, and what pairs see that ranges do not."""

from __future__ import annotations

import numpy as np
import pytest

from services.errors import MeasureError
from services.numerics.ranking.paired_ranks import ahead, places_by, resampled_sums


def test_sums_are_of_the_samples_first_and_then_of_resamples_by_class() -> None:
    rng = np.random.default_rng(0)
    values, labels = rng.random((90, 3)), np.repeat([0, 1], (60, 30))
    sums = resampled_sums(values, labels, draws=400, seed=1)
    for k in (0, 1):
        np.testing.assert_allclose(sums[0, k], values[labels == k].sum(0))
    ones = resampled_sums(np.ones((90, 1)), labels, draws=400, seed=1)
    assert (ones[:, :, 0] == [60, 30]).all()
    spread = values[labels == 0].std(0) * np.sqrt(60)
    np.testing.assert_allclose(sums[1:, 0].std(0), spread, rtol=0.15)
    alone = resampled_sums(values[:, :1], labels, draws=400, seed=1)
    np.testing.assert_allclose(alone[:, :, 0], sums[:, :, 0])
    assert not np.allclose(resampled_sums(values, labels, draws=400, seed=2)[1:], sums[1:])


def scores_of(rows: np.ndarray, draws: int = 400) -> np.ndarray:
    """Mean score (1 + draws, R) of rows (N, R) of one class."""
    return resampled_sums(rows, np.zeros(len(rows), int), draws=draws, seed=0)[:, 0] / len(rows)


def test_pairs_separate_what_ranges_do_not() -> None:
    """A model that is right on all that another is right on, and on 3 % more."""
    rng = np.random.default_rng(3)
    weak = rng.random(1000) < 0.5
    strong = weak | (rng.random(1000) < 0.03)
    other = rng.random(1000) < 0.5
    scores = scores_of(np.stack([weak, strong, other], axis=1).astype(float))
    limits = 1.96 * np.sqrt(0.25 / 1000)
    assert scores[0, 1] - scores[0, 0] < 2 * limits
    found = ahead(scores, level=0.05)
    assert found[1, 0] and found.sum() == 1
    assert places_by(found) == [(2, 3), (1, 2), (1, 3)]


def test_false_separations_of_equal_models_are_as_rare_as_promised() -> None:
    rng = np.random.default_rng(7)
    wrong = sum(bool(ahead(scores_of((rng.random((300, 4)) < 0.7) * 1.0, 200), level=0.05).any()) for _ in range(300))
    assert wrong / 300 < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 300)
    assert wrong > 0


def test_equal_rows_and_single_rows_are_not_separated() -> None:
    row = (np.arange(200) % 3 == 0) * 1.0
    scores = scores_of(np.stack([row, row, row + 0.5], axis=1))
    found = ahead(scores, level=0.05)
    assert not found[0, 1] and not found[1, 0] and found[2, 0] and not found[0, 2]
    assert places_by(ahead(scores[:, :1], level=0.05)) == [(1, 1)]


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(MeasureError, match=r"a sample of each class, found none of class 1"):
        resampled_sums(np.ones((2, 1)), np.array([0, 2]), draws=100, seed=0)
    with pytest.raises(MeasureError, match=r"at least 100 resamples"):
        ahead(np.zeros((50, 3)), level=0.05)
    with pytest.raises(MeasureError, match=r"level: expected a number between 0 and 1"):
        ahead(np.zeros((101, 3)), level=0.0)
    with pytest.raises(MeasureError, match=r"with a row a label"):
        resampled_sums(np.ones((3, 1)), np.array([0, 1]), draws=100, seed=0)
