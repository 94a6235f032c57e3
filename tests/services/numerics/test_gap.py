"""Generalisation error: arithmetic, undefined sides, and coverage with a training sample drawn without replacement."""

from __future__ import annotations

import numpy as np
import pytest

from services.numerics.gap import gap
from services.numerics.intervals.disparity import aggregate_interval
from services.records import Estimate


def test_train_minus_test_with_the_limits_crossed() -> None:
    estimate = gap(Estimate(0.9, 0.85, 0.95), Estimate(0.7, 0.6, 0.78), bound=1.0)
    assert estimate.value == pytest.approx(0.2)
    assert (estimate.low, estimate.high) == (pytest.approx(0.07), pytest.approx(0.35))
    assert not estimate.vacuous


@pytest.mark.parametrize(("train", "test"), [(None, 0.5), (0.5, None), (None, None)])
def test_an_undefined_side_makes_it_undefined_with_its_reason(train: float | None, test: float | None) -> None:
    sides = [Estimate(value, 0.0, 1.0, "" if value else "nothing was right") for value in (train, test)]
    estimate = gap(*sides, bound=1.0)
    side = "training" if train is None else "test"
    assert (estimate.value, estimate.low, estimate.high) == (None, None, None)
    assert estimate.reason == f"undefined on the {side} samples: nothing was right"


def test_without_an_interval_on_a_side_there_is_none() -> None:
    estimate = gap(Estimate(0.9, 0.85, 0.95), Estimate(0.7), bound=1.0)
    assert (estimate.value, estimate.low, estimate.high) == (pytest.approx(0.2), None, None) and estimate.reason


def test_an_interval_over_the_whole_range_is_vacuous() -> None:
    assert gap(Estimate(0.5, 0.0, 1.0), Estimate(0.5, 0.0, 1.0), bound=1.0).vacuous
    assert not gap(Estimate(0.5, 0.0, 1.0), Estimate(0.5, 0.0, 1.0), bound=1.3).vacuous


@pytest.mark.parametrize("binary", [True, False])
def test_the_true_difference_is_covered(binary: bool) -> None:
    """A stratified sample of a finite training set against independent test samples, at 80 %."""
    rng, delta, repeats = np.random.default_rng(0), 0.2, 400
    shares = rng.beta(5, 2, (4, 100))  # scores of a training set of four classes
    population = (rng.random(shares.shape) < shares).astype(float) if binary else shares
    test_mean = 0.6
    truth, covered = population.mean() - test_mean, 0
    for _ in range(repeats):
        taken = np.concatenate([rng.choice(row, 40, replace=False) for row in population])
        fresh = (rng.random(150) < test_mean).astype(float) if binary else rng.beta(3, 2, 150)
        options = {"bound": 1.0, "delta": delta / 2, "binary": binary}
        train, test = aggregate_interval(taken, stratified=True, **options), aggregate_interval(fresh, **options)
        estimate = gap(train, test, bound=1.0)
        assert estimate.low is not None and estimate.high is not None
        covered += estimate.low <= truth <= estimate.high
    assert covered / repeats >= 1 - delta


def test_gaps_whole() -> None:
    assert gap(Estimate(0.75, 0.5, 1.0), Estimate(0.5, 0.25, 0.625), bound=1.0) == Estimate(0.25, -0.125, 0.75)
    wide = Estimate(0.5, 0.0, 1.0)
    assert gap(wide, wide, bound=1.0) == Estimate(0.0, -1.0, 1.0, "the interval covers the whole range", True)
    lower, upper = gap(Estimate(0.5, 0.25, 1.0), wide, bound=1.0), gap(wide, Estimate(0.5, 0.25, 1.0), bound=1.0)
    assert (lower.vacuous, upper.vacuous, lower.reason, upper.reason) == (False, False, "", "")
    whole = Estimate(0.5, 0.25, 1.0)
    for train in (Estimate(0.5, 0.25), Estimate(0.5, None, 1.0), whole):
        for test in (Estimate(0.5, 0.25), Estimate(0.5, None, 1.0), whole):
            estimate = gap(train, test, bound=1.0)
            if train is whole and test is whole:
                assert estimate == Estimate(0.0, -0.75, 0.75)
            else:
                assert estimate == Estimate(0.0, reason="no interval on one of the sides")
