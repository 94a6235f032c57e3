"""The mean over all samples from classes that were not sampled alike."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.numerics.intervals.balanced import balanced_part, shifted, weighted_mean
from services.records import Estimate


def test_equal_classes_keep_as_many_of_each_as_the_least_has() -> None:
    codes = np.repeat([0, 1, 2], [4, 7, 5])
    part, shift = balanced_part(codes, np.array([20, 20, 20]))
    np.testing.assert_array_equal(np.flatnonzero(part), [0, 1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 14])
    assert shift == pytest.approx(0.0, abs=1e-12)


def test_the_first_samples_of_each_class_are_kept_whatever_the_order_of_classes() -> None:
    part, _ = balanced_part(np.array([1, 0, 1, 0, 1]), np.array([4, 6]))
    np.testing.assert_array_equal(part, [True, True, True, True, True])
    part, _ = balanced_part(np.array([1, 0, 1, 1, 1]), np.array([4, 8]))
    np.testing.assert_array_equal(part, [True, True, True, False, False])


@given(st.lists(st.tuples(st.integers(1, 40), st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=6))
def test_the_shift_bounds_how_far_the_kept_mean_is_from_that_of_all(classes: list[tuple[int, float, float]]) -> None:
    sizes = np.array([size for size, _, _ in classes])
    counts = np.array([max(1, round(share * size)) for size, share, _ in classes])
    codes = np.repeat(np.arange(len(classes)), counts)
    means = np.array([mean for _, _, mean in classes])
    part, shift = balanced_part(codes, sizes)
    if part.any():
        assert abs(means[codes[part]].mean() - means @ sizes / sizes.sum()) <= shift + 1e-12
    assert weighted_mean(means[codes], codes, sizes) == pytest.approx(means @ sizes / sizes.sum())


def test_a_class_without_samples_leaves_the_mean_undefined() -> None:
    assert weighted_mean(np.ones(2), np.zeros(2, dtype=np.int64), np.array([5, 5])) is None
    part, shift = balanced_part(np.zeros(2, dtype=np.int64), np.array([5, 5]))
    assert not part.any() and shift == 1.0


def test_limits_move_outwards_and_stay_in_range() -> None:
    moved = shifted(Estimate(0.5, 0.4, 0.6), 0.65, 0.1, 2.0)
    assert (moved.value, moved.low, moved.high) == (0.65, pytest.approx(0.2), pytest.approx(0.8))
    assert shifted(Estimate(0.5, 0.4, 0.6), None, 1.0, 1.0).low == 0.0
    assert shifted(Estimate(None), 0.5, 0.1, 1.0).value is None
