"""Tol, Dev and Cou against loops over the definition, and their edges."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.errors import MeasureError
from services.numerics.projection import (
    NO_TOLERANCE,
    Boundaries,
    bootstrap_means,
    count,
    metrics_by_group,
    projection_metrics,
)

CENTRE, UNIT = np.array([0.5, -1.0, 3.0]), np.array([1.0, 0.25, 2.0])


def random_boundaries(size: int, seed: int = 0) -> Boundaries:
    moves = np.random.default_rng(seed).integers(0, 21, (size, 3, 2)) / 20
    positions = CENTRE[:, None] + UNIT[:, None] * moves * np.array([-1.0, 1.0])
    return Boundaries.of(positions, moves == 1.0, CENTRE, UNIT)


def by_definition(found: Boundaries) -> tuple[float, float, float]:
    """A loop over samples and dimensions, as science.md section 11 writes it."""
    tol = dev = 0.0
    size, dimensions, _ = found.positions.shape
    means = [0.0] * dimensions
    for s in range(size):
        for d in range(dimensions):
            low, high = found.positions[s, d]
            means[d] += (high - low) / found.unit[d] / size
            tol += (high - low) / found.unit[d] / size / dimensions
            dev += abs((high + low) / 2 - found.centre[d]) / size / dimensions
    shares = [1 - mean / max(means) for mean in means]
    return tol, dev, -sum(share * math.log(share) for share in shares if share > 0)


@given(st.integers(1, 30), st.integers(0, 1000))
def test_all_three_equal_the_loop_over_the_definition(size: int, seed: int) -> None:
    found = random_boundaries(size, seed)
    metrics = projection_metrics(found, draws=20)
    tol, dev, cou = by_definition(found)
    assert metrics.tol.value == pytest.approx(tol, abs=1e-12)
    assert metrics.dev.value == pytest.approx(dev, abs=1e-12)
    assert metrics.cou.value == pytest.approx(cou, abs=1e-12)
    for estimate in (metrics.tol, metrics.dev, metrics.cou, *metrics.tol_by_dimension, *metrics.dev_by_dimension):
        assert estimate.low <= estimate.value <= estimate.high  # type: ignore[operator]


def test_the_count_of_equal_and_of_single_dimensions_is_zero_and_its_largest_value_is_reached() -> None:
    assert count(np.array([1.0, 1.0, 1.0])) == 0.0
    assert count(np.array([2.0, 0.0, 0.0])) == 0.0
    assert count(np.array([1.0, 1.0 - 1 / math.e, 1.0 - 1 / math.e])) == pytest.approx(2 / math.e)
    np.testing.assert_array_equal(np.isnan(count(np.array([[0.0, 0.0], [1.0, 0.5]]))), [True, False])


def test_opposite_leans_cancel_in_the_lean_and_not_in_the_deviation() -> None:
    positions = np.array([[[0.0, 1.0]], [[-1.0, 0.0]]])
    metrics = projection_metrics(Boundaries.of(positions, positions == 2, np.zeros(1), np.ones(1)))
    assert metrics.lean_by_dimension == (0.0,)
    assert metrics.dev.value == 0.5


def test_undefined_is_said() -> None:
    nothing = Boundaries.of(np.zeros((0, 3, 2)), np.zeros((0, 3, 2), bool), CENTRE, UNIT)
    metrics = projection_metrics(nothing)
    assert (metrics.tol.value, metrics.tol.reason, metrics.censored) == (None, "no samples", None)
    still = Boundaries.of(np.repeat(CENTRE[None, :, None], 2, 2), np.zeros((1, 3, 2), bool), CENTRE, UNIT)
    found = projection_metrics(still)
    assert (found.tol.value, found.dev.value, found.cou.value, found.cou.reason) == (0.0, 0.0, None, NO_TOLERANCE)


def test_groups_are_the_metrics_of_their_samples_and_an_empty_one_is_undefined() -> None:
    found, groups = random_boundaries(40), np.arange(40) % 2 * 2
    parts = metrics_by_group(found, groups, 3, draws=50)
    assert [part.samples for part in parts] == [20, 0, 20]
    assert parts[0].tol.value == pytest.approx(by_definition(found.take(np.flatnonzero(groups == 0)))[0])
    assert parts[1].tol.reason == "no samples"
    alone = projection_metrics(found.take(np.flatnonzero(groups == 0)), delta=0.05, draws=50)
    assert parts[0].tol.low < alone.tol.low  # type: ignore[operator]


def test_censoring_is_counted_by_direction() -> None:
    positions = np.array([[[-1.0, 1.0]], [[-0.5, 1.0]]])
    cut = np.array([[[True, True]], [[False, True]]])
    metrics = projection_metrics(Boundaries.of(positions, cut, np.zeros(1), np.ones(1)))
    assert metrics.censored == 0.75


def test_the_bootstrap_is_seeded_and_has_the_spread_of_a_mean() -> None:
    values = np.random.default_rng(0).random((400, 2))
    means = bootstrap_means(values, seed=3, draws=2000)
    np.testing.assert_array_equal(means, bootstrap_means(values, seed=3, draws=2000))
    np.testing.assert_allclose(means.std(axis=0), values.std(axis=0) / 20, rtol=0.1)


def test_the_bootstrap_interval_of_the_count_covers() -> None:
    chance = np.array([0.9, 0.5, 0.2])
    truth, hits = float(count(2 * chance)), 0
    for seed in range(200):
        moves = np.random.default_rng(seed).random((150, 3, 2)) < chance[:, None]
        positions = moves * np.array([-1.0, 1.0])
        found = Boundaries.of(positions, moves, np.zeros(3), np.ones(3))
        cou = projection_metrics(found, draws=200, seed=seed).cou
        hits += cou.low <= truth <= cou.high  # type: ignore[operator]
    assert hits >= 180


def test_malformed_boundaries_are_refused() -> None:
    good = random_boundaries(2)
    with pytest.raises(MeasureError, match=r"positions: expected shape \(S, D, 2\)"):
        Boundaries.of(good.positions[0], good.censored[0], CENTRE, UNIT)
    with pytest.raises(MeasureError, match="unit: expected positive numbers, found 1 of 3"):
        Boundaries.of(good.positions, good.censored, CENTRE, UNIT * [1, 0, 1])
    with pytest.raises(MeasureError, match="within one unit of the centre"):
        Boundaries.of(good.positions + 9, good.censored, CENTRE, UNIT)
    with pytest.raises(MeasureError, match="1 outside or NaN"):
        broken = good.positions.copy()
        broken[0, 0, 0] = np.nan
        Boundaries.of(broken, good.censored, CENTRE, UNIT)
