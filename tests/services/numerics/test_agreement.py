from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.errors import MeasureError
from services.numerics.agreement import agreement, hardest_first


@given(st.integers(1, 6), st.integers(1, 8), st.integers(0, 1000))
def test_votes_are_those_of_a_counter(models: int, samples: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    predicted, labels = draw.integers(-1, 3, (models, samples)), draw.integers(0, 3, samples)
    found = agreement(predicted, labels)
    for row in range(samples):
        votes = Counter(k for k in predicted[:, row].tolist() if k >= 0)
        best = max(votes.values(), default=0)
        assert found.votes[row] == best
        assert found.consensus[row] == min((k for k, n in votes.items() if n == best), default=-1)
        assert found.wrong[row] == sum(predicted[:, row] != labels[row])


def test_what_all_models_fail_alike_comes_first_then_the_nearest() -> None:
    labels = np.zeros(5, dtype=np.int64)
    predicted = np.array([[1, 1, 0, 0, 0], [2, 1, 0, 0, 0], [1, 1, 1, 0, 0]])
    nearest = np.array([np.nan, np.nan, 0.5, 0.2, np.nan])
    order = hardest_first(agreement(predicted, labels), np.array([0, 0, 1, 2, 2]), nearest, labels)
    assert order.tolist() == [1, 0, 2, 3, 4]


def test_another_shape_is_refused() -> None:
    with pytest.raises(MeasureError, match="one row of 3 predictions a model"):
        agreement(np.zeros((2, 4), dtype=np.int64), np.zeros(3, dtype=np.int64))
