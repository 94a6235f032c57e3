"""What checked arguments come back as: types, and what is just inside or just outside a range."""

from __future__ import annotations

import numpy as np
import pytest

from services.errors import MeasureError
from services.numerics.arguments import as_indices, as_scores, check_bound, check_level, check_temperature


def test_indices_are_int64_whatever_integers_they_were() -> None:
    indices = as_indices(np.array([0, 2, 1], dtype=np.uint8), 3, 3, "groups")
    assert indices.dtype == np.int64 and indices.tolist() == [0, 2, 1]
    same = np.array([0, 1])
    assert as_indices(same, 2, 2, "groups") is same


def test_no_indices_have_no_type() -> None:
    indices = as_indices(np.zeros(0), 0, 0, "groups")
    assert indices.dtype == np.int64 and indices.shape == (0,)


def test_one_index_is_checked_too() -> None:
    for wrong in (np.array([0.0]), np.array([1]), np.array([-1])):
        with pytest.raises(MeasureError):
            as_indices(wrong, 1, 1, "groups")


def test_scores_are_float64_and_rounding_beyond_the_ends_is_cut() -> None:
    result = as_scores(np.array([0, 1]), 1.0)
    assert result.dtype == np.float64 and result.tolist() == [0.0, 1.0]
    assert as_scores(np.array([-2e-9, 2.0 + 2e-9, 1.0]), 2.0).tolist() == [0.0, 2.0, 1.0]
    assert as_scores(np.zeros(0), 1.0).shape == (0,)
    inside = np.array([0.0, 0.5, 2.0])
    assert as_scores(inside, 2.0) is inside, "what is in range is not copied"


@pytest.mark.parametrize(("beyond", "wrong"), [([-2.1e-9, 1.0, 2.0 + 2e-9], 1), ([2.0 + 2.1e-9, -2e-9, -3.0], 2)])
def test_scores_further_beyond_are_refused(beyond: list[float], wrong: int) -> None:
    with pytest.raises(MeasureError, match=f"{wrong} of 3 outside"):
        as_scores(np.array(beyond), 2.0)


def test_levels_bounds_and_temperatures_that_are_right() -> None:
    for value in (1e-300, 0.5, 1.0 - 1e-16):
        check_level(value, "delta")
    for value in (1e-300, 1.0, 1e300):
        check_bound(value)
        check_temperature(value)
