"""Sets of places: against a loop over all means within limits, and the best of many equal models by simulation."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from services.numerics.intervals.disparity import aggregate_interval
from services.numerics.ranking.place_sets import place_sets

LIMITS = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 0.3)), min_size=1, max_size=8)


@given(limits=LIMITS, seed=st.integers(0, 99))
def test_places_of_means_within_their_limits_lie_in_the_sets(limits: list[tuple[float, float]], seed: int) -> None:
    lows, highs = [low for low, _ in limits], [low + width for low, width in limits]
    means = np.random.default_rng(seed).uniform(lows, highs)
    sets = place_sets(lows, highs)
    for i, found in enumerate(sets):
        assert found is not None
        best, worst = 1 + int((means > means[i]).sum()), len(means) - int((means < means[i]).sum())
        assert found[0] <= best <= worst <= found[1]
    assert place_sets([-high for high in highs], [-low for low in lows], lower_is_better=True) == sets


def test_rows_without_limits_may_be_anywhere_and_have_no_set() -> None:
    assert place_sets([0.9, None, 0.1], [0.95, None, 0.2]) == [(1, 2), None, (2, 3)]
    assert place_sets([], []) == []


def test_the_best_of_two_hundred_equal_models_misses_as_seldom_as_promised() -> None:
    """Its lower limit lies above the truth at most delta of the time at delta / M, and nearly always at delta."""
    rng, delta, models, n, runs = np.random.default_rng(0), 0.05, 200, 400, 60
    missed = {delta: 0, delta / models: 0}
    for _ in range(runs):
        best = rng.binomial(n, 0.9, models).max()
        scores = (np.arange(n) < best).astype(float)
        for level in missed:
            found = aggregate_interval(scores, bound=1.0, delta=level, binary=True)
            assert found.low is not None
            missed[level] += found.low > 0.9
    assert missed[delta / models] <= binom.isf(1e-4, runs, delta)
    assert missed[delta] > runs / 2
