"""Betting by a mixture over fractions: the definition by loops, and the promise at every look."""

from __future__ import annotations

import math

import numpy as np
import pytest

from services.errors import MeasureError
from services.numerics.intervals.means import Sample, limits, simultaneous
from services.numerics.intervals.mixture import (
    FRACTIONS,
    log_evidence,
    log_evidence_of_counts,
    lower_bound,
    lower_bound_of_counts,
)

ALPHA = 0.1


def evidence_by_loop(values: list[float], null: float) -> float:
    total = 0.0
    for fraction in FRACTIONS:
        capital = 1.0
        for value in values:
            capital *= 1 - fraction + fraction * value / null
        total += capital / len(FRACTIONS)
    return math.log(total)


@pytest.mark.parametrize("null", [0.05, 0.4, 0.9, 1.0])
def test_the_evidence_is_that_of_the_definition(null: float) -> None:
    rng = np.random.default_rng(0)
    values = rng.random((2, 37))
    mask = rng.random((2, 37)) < 0.7
    result = log_evidence(np.where(mask, values, 0.0), mask, np.full(2, null))
    expected = [evidence_by_loop(list(row[kept]), null) for row, kept in zip(values, mask, strict=True)]
    np.testing.assert_allclose(result, expected, rtol=1e-10)


def test_counts_give_what_their_samples_give() -> None:
    values = np.repeat([1.0, 0.0], [29, 8])[None]
    one = log_evidence(values, np.ones_like(values, dtype=bool), np.array([0.6]))
    np.testing.assert_allclose(log_evidence_of_counts([29], [37], [0.6]), one, rtol=1e-12)
    twice = log_evidence(np.tile(values, 2), np.ones((1, 74), dtype=bool), np.array([0.6]))
    np.testing.assert_allclose(log_evidence_of_counts([58], [74], [0.6]), twice, rtol=1e-12)


@pytest.mark.parametrize("p", [0.05, 0.5, 0.9])
def test_looked_at_after_every_sample_a_limit_fails_at_most_as_often_as_promised(p: float) -> None:
    runs, most = 2000, 300
    draws = np.random.default_rng(1).random((runs, most)) < p
    k, n = np.cumsum(draws, axis=1), np.arange(1, most + 1)
    ever = (log_evidence_of_counts(k, n, np.full(k.shape, p)) >= -np.log(ALPHA)).any(axis=1)
    assert ever.mean() <= ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / runs)


def test_the_mean_over_strata_keeps_the_promise_at_every_complete_round() -> None:
    """One of each of four strata a round: no two samples of a round have one mean."""
    runs, means = 2000, np.array([0.05, 0.3, 0.9, 0.99])
    draws = np.random.default_rng(2).random((runs, 100, 4)) < means
    k, n = np.cumsum(draws.sum(axis=2), axis=1), 4 * np.arange(1, 101)
    ever = (log_evidence_of_counts(k, n, np.full(k.shape, means.mean())) >= -np.log(ALPHA)).any(axis=1)
    assert ever.mean() <= ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / runs)


def test_limits_hold_the_mean_and_are_wider_than_those_of_one_look() -> None:
    scores, groups = np.random.default_rng(3).beta(4, 2, 900), np.repeat(np.arange(3), 300)
    every = simultaneous(scores, groups, 3, bound=1.0, delta=0.05, method="anytime")
    once = simultaneous(scores, groups, 3, bound=1.0, delta=0.05, method="betting")
    means = scores.reshape(3, 300).mean(axis=1)
    assert (every.low < means).all() and (every.high > means).all()
    assert (every.high - every.low > once.high - once.low).all()


@pytest.mark.parametrize("value", [0.0, 0.37, 1.0])
def test_scores_that_are_all_alike_have_limits_around_them(value: float) -> None:
    sample = Sample.of(np.full(50, value), np.zeros(50, dtype=np.int64), 1, bound=1.0, seed=None)
    low, high = limits(sample, 0.05, "anytime")
    assert 0.0 <= low[0] <= value <= high[0] <= 1.0 and high[0] - low[0] < 0.3


def test_a_row_without_samples_has_no_lower_limit() -> None:
    np.testing.assert_allclose(lower_bound(np.zeros((1, 5)), np.zeros((1, 5), dtype=bool), 0.05), 0.0)


def test_groups_with_the_same_counts_have_the_bound_that_each_has_alone() -> None:
    """Bounds are searched once a pair of counts; weights that are no whole numbers are pairs as well."""
    rng = np.random.default_rng(5)
    counts = rng.choice([0.0, 4.0, 7.0, 10.5], 60)
    successes = np.minimum(counts, rng.choice([0.0, 1.0, 3.0, 10.5], 60))
    alone = [lower_bound_of_counts(k[None], n[None], 0.01)[0] for k, n in zip(successes, counts, strict=True)]
    assert np.array_equal(lower_bound_of_counts(successes, counts, 0.01), alone)
    assert not lower_bound_of_counts(np.zeros(0), np.zeros(0), 0.01).size


def test_other_methods_are_refused_at_every_look() -> None:
    with pytest.raises(MeasureError):
        simultaneous(
            np.ones(4), np.zeros(4, dtype=np.int64), 1, bound=1.0, delta=0.05, method="hoeffding", anytime=True
        )
