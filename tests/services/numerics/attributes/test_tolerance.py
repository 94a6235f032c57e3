"""Tol, Dev and Cou against loops over the definition, and their edges."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.errors import MeasureError
from services.numerics.attributes import tolerance
from services.numerics.attributes.tolerance import (
    NO_TOLERANCE,
    Boundaries,
    ProjectionMetrics,
    bootstrap_means,
    count,
    metrics_by_group,
    projection_metrics,
    within_limits,
)
from services.numerics.intervals.means import Intervals, simultaneous
from services.records import Estimate

CENTRE, UNIT = np.array([0.5, -1.0, 3.0]), np.array([1.0, 0.25, 2.0])


def random_boundaries(size: int, seed: int = 0) -> Boundaries:
    moves = np.random.default_rng(seed).integers(0, 21, (size, 3, 2)) / 20
    positions = CENTRE[:, None] + UNIT[:, None] * moves * np.array([-1.0, 1.0])
    return Boundaries.of(positions, moves == 1.0, CENTRE, UNIT)


def by_definition(found: Boundaries) -> tuple[float, float, float]:
    """A loop over samples and dimensions, as APPS Algorithm 1 defines it."""
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
    boundaries = random_boundaries(size, seed)
    metrics = projection_metrics(boundaries, draws=20)
    tol, dev, cou = by_definition(boundaries)
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
    result = projection_metrics(still)
    assert (result.tol.value, result.dev.value, result.cou.value, result.cou.reason) == (0.0, 0.0, None, NO_TOLERANCE)


def test_groups_are_the_metrics_of_their_samples_and_an_empty_one_is_undefined() -> None:
    result, groups = random_boundaries(40), np.arange(40) % 2 * 2
    parts = metrics_by_group(result, groups, 3, draws=50)
    assert [part.samples for part in parts] == [20, 0, 20]
    assert parts[0].tol.value == pytest.approx(by_definition(result.take(np.flatnonzero(groups == 0)))[0])
    assert parts[1].tol.reason == "no samples"
    alone = projection_metrics(result.take(np.flatnonzero(groups == 0)), delta=0.05, draws=50)
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


@pytest.mark.long
def test_the_bootstrap_interval_of_the_count_covers() -> None:
    chance = np.array([0.9, 0.5, 0.2])
    truth, hits = float(count(2 * chance)), 0
    for seed in range(200):
        moves = np.random.default_rng(seed).random((150, 3, 2)) < chance[:, None]
        positions = moves * np.array([-1.0, 1.0])
        result = Boundaries.of(positions, moves, np.zeros(3), np.ones(3))
        cou = projection_metrics(result, draws=200, seed=seed).cou
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


def test_boundaries_whole() -> None:
    result = Boundaries.of(
        [[[-1, 1], [2, 4]]],  # type: ignore[arg-type]
        [[[1, 0], [0, 1]]],  # type: ignore[arg-type]
        [0, 3],  # type: ignore[arg-type]
        [1, 2],  # type: ignore[arg-type]
    )
    assert {array.dtype for array in (result.positions, result.centre, result.unit)} == {np.dtype(np.float64)}
    assert result.censored.dtype == np.bool_
    assert result.moves.tolist() == [[[1.0, 1.0], [0.5, 0.5]]]
    assert result.tolerances.tolist() == [[2.0, 1.0]]
    assert result.leans.tolist() == result.deviations.tolist() == [[0.0, 0.0]]
    slack = 1.0 + 5e-10
    at_edge = Boundaries.of(np.array([[[-slack, slack]]]), np.zeros((1, 1, 2)), np.zeros(1), np.ones(1))
    assert at_edge.tolerances.tolist() == [[2.0]]
    inside = Boundaries.of(np.array([[[5e-10, -5e-10]]]), np.zeros((1, 1, 2)), np.zeros(1), np.ones(1))
    assert inside.tolerances.tolist() == [[0.0]]
    just = Boundaries.of(
        np.array([[[1e-9, -1e-9], [-1.0 - 1e-9, 1.0 + 1e-9]]]), np.zeros((1, 2, 2)), np.zeros(2), np.ones(2)
    )
    assert just.tolerances.tolist() == [[0.0, 2.0]]
    for wrong in ([-1.0 - 2e-9, 0.0], [2e-9, 0.0], [0.0, 1.0 + 2e-9], [0.0, -2e-9]):
        with pytest.raises(MeasureError, match="1 outside"):
            Boundaries.of(np.array([[wrong]]), np.zeros((1, 1, 2)), np.zeros(1), np.ones(1))


def test_some_of_the_samples() -> None:
    boundaries = random_boundaries(5)
    some = boundaries.take(np.array([3, 1]))
    np.testing.assert_array_equal(some.positions, boundaries.positions[[3, 1]])
    np.testing.assert_array_equal(some.censored, boundaries.censored[[3, 1]])
    assert some.centre is boundaries.centre and some.unit is boundaries.unit


def test_metrics_whole() -> None:
    boundaries = random_boundaries(60, 3)
    metrics = projection_metrics(boundaries, delta=0.1, seed=2, draws=50)
    tol, dev = boundaries.tolerances, boundaries.deviations

    def box(values: np.ndarray, bounds: np.ndarray) -> tuple[Estimate, ...]:
        wide = values.shape[1]
        scaled = np.clip(values / bounds, 0, 1).ravel()
        sure = simultaneous(scaled, np.tile(np.arange(wide), len(values)), wide, bound=1.0, delta=0.1, seed=2)
        return tuple(
            Estimate(
                pytest.approx(values[:, d].mean()), pytest.approx(sure.low[d] * b), pytest.approx(sure.high[d] * b)
            )
            for d, b in enumerate(bounds)
        )

    resampled = count(bootstrap_means(tol, seed=2, draws=50))
    value = float(count(tol.mean(axis=0)))
    low, high = np.quantile(resampled, [0.05, 0.95])
    cut = boundaries.censored.mean(axis=(0, 2))
    assert metrics == ProjectionMetrics(
        tol=box(tol.mean(axis=1, keepdims=True), np.array([2.0]))[0],
        dev=box(dev.mean(axis=1, keepdims=True), np.array([UNIT.mean() / 2]))[0],
        cou=Estimate(value, min(low, value), max(high, value)),
        tol_by_dimension=box(tol, np.full(3, 2.0)),
        dev_by_dimension=box(dev, UNIT / 2),
        lean_by_dimension=tuple(boundaries.leans.mean(axis=0)),
        censored_by_dimension=tuple(cut),
        censored=cut.mean(),
        samples=60,
        delta=0.1,
    )
    assert {type(part) for part in (*metrics.lean_by_dimension, *metrics.censored_by_dimension)} == {float}
    assert {type(part) for part in (metrics.censored, metrics.cou.low, metrics.cou.high)} == {float}


def test_metrics_of_nothing_whole() -> None:
    nothing = Boundaries.of(np.zeros((0, 3, 2)), np.zeros((0, 3, 2), bool), CENTRE, UNIT)
    none = Estimate(None, reason="no samples")
    blank, nones = (None,) * 3, (none,) * 3
    expected = ProjectionMetrics(none, none, none, nones, nones, blank, blank, None, 0, 0.05)
    assert projection_metrics(nothing) == expected
    assert metrics_by_group(nothing, np.zeros(0, int), 1) == (expected,)


def test_what_is_taken_unless_said_otherwise() -> None:
    result, groups = random_boundaries(30), np.arange(30) % 2
    default = projection_metrics(result)
    assert default == projection_metrics(result, delta=0.05, seed=0, draws=1000)
    for change in ({"seed": 1}, {"draws": 999}):
        assert projection_metrics(result, **change).cou != default.cou  # type: ignore[arg-type]
    assert projection_metrics(result, seed=1).tol != default.tol
    parts = metrics_by_group(result, groups, 2)
    assert parts == metrics_by_group(result, groups, 2, delta=0.05, seed=0, draws=1000)
    halves = [result.take(np.flatnonzero(groups == k)) for k in range(2)]
    assert parts == tuple(projection_metrics(half, delta=0.025) for half in halves)
    assert metrics_by_group(result, groups, 2, delta=0.1, seed=3, draws=20) == tuple(
        projection_metrics(half, delta=0.05, seed=3, draws=20) for half in halves
    )


def test_the_count_along_the_last_axis() -> None:
    table = np.array([[[1.0, 0.5, 0.5], [0.0, 0.0, 0.0]], [[2.0, 0.5, 1.0], [1.0, 1.0, 1.0]]])
    half = -0.5 * math.log(0.5)
    expected = [[2 * half, math.nan], [half - 0.75 * math.log(0.75), 0.0]]
    np.testing.assert_allclose(count(table), expected, atol=1e-15)
    assert not np.signbit(count(np.ones(3)))
    assert count([2, 1]) == pytest.approx(half)  # type: ignore[arg-type]


def test_resamples_do_not_depend_on_the_block() -> None:
    """One multinomial draw a resample, from a generator keyed by the seed and the number of samples."""
    values = np.random.default_rng(0).random((7, 2))
    whole = bootstrap_means(values, seed=3, draws=10)
    source = np.random.default_rng([3, 7])
    np.testing.assert_allclose(whole, source.multinomial(7, np.full(7, 1 / 7), 10) @ values / 7)
    with pytest.MonkeyPatch.context() as patch:
        for cells in (21, 22, 1):
            patch.setattr(tolerance, "CELLS", cells)
            np.testing.assert_allclose(bootstrap_means(values, seed=3, draws=10), whole)
    assert bootstrap_means(values, seed=3, draws=4).shape == (4, 2)


def test_resamples_without_tolerance_are_counted() -> None:
    """One of two samples tolerates anything: a quarter of the resamples do not contain it."""
    positions = np.array([[[-1.0, 1.0], [0.0, 0.5]], [[0.0, 0.0], [0.0, 0.0]]])
    result = Boundaries.of(positions, positions > 9, np.zeros(2), np.ones(2))
    cou = projection_metrics(result, draws=40).cou
    lost = int(np.isnan(count(bootstrap_means(result.tolerances, seed=0, draws=40))).sum())
    assert 0 < lost < 40
    value = pytest.approx(-0.75 * math.log(0.75))
    assert cou == Estimate(value, value, value, f"{lost} of 40 resamples have no tolerance")
    seed = next(s for s in range(99) if np.isnan(count(bootstrap_means(result.tolerances, seed=s, draws=1)))[0])
    none = projection_metrics(result, draws=1, seed=seed).cou
    assert none == Estimate(value, value, value, "1 of 1 resamples have no tolerance")


def test_estimates_lie_in_their_limits_and_vacuous_ones_say_so() -> None:
    there = np.array([True])
    box = Intervals(np.array([0.4]), np.array([0.6]), there, ~there, "betting", 0.05, 1.0)
    assert within_limits(1.0, 2.0, box, 0) == Estimate(1.0, 0.8, 1.2)
    assert within_limits(0.7, 2.0, box, 0) == Estimate(0.7, 0.7, 1.2)
    assert within_limits(1.3, 2.0, box, 0) == Estimate(1.3, 0.8, 1.3)
    wide = Intervals(np.array([0.0]), np.array([1.0]), there, there, "betting", 0.05, 1.0)
    assert within_limits(1.0, 2.0, wide, 0) == Estimate(1.0, 0.0, 2.0, "the interval covers the whole range", True)
