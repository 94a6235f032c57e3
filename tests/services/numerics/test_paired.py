"""The mean difference of paired scores: its limits, and Holm's step-down."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom
from statsmodels.stats.multitest import multipletests

from services.errors import MeasureError
from services.numerics.intervals.means import Sample, limits
from services.numerics.paired import holm, mean_difference
from services.records import Estimate


def zeros(n: int) -> np.ndarray:
    return np.zeros(n, dtype=int)


def test_unchanged_scores_differ_by_nothing() -> None:
    x = np.random.default_rng(0).random(2000)
    same = mean_difference(x, x, bound=1.0, alpha=0.05)
    assert same.value == pytest.approx(0, abs=1e-12)
    assert -0.01 < same.low <= 0 <= same.high < 0.01


def test_a_clear_loss_shows_and_few_samples_decide_nothing() -> None:
    rng = np.random.default_rng(1)
    before = rng.uniform(0.4, 0.8, 3000)
    after = np.clip(before - 0.2 * rng.random(3000), 0, 1)
    assert mean_difference(before, after, bound=1.0, alpha=0.05).high < -0.02
    few = mean_difference(before[:10], after[:10], bound=1.0, alpha=0.05)
    assert few.low < -0.1 < few.high


def test_type_one_error_with_ties_short() -> None:
    """A true loss of 0.1 lies below the lower limit at most alpha of the time."""
    rng = np.random.default_rng(3)
    wrong, replications = 0, 100
    for _ in range(replications):
        before = rng.choice([0.5, 0.9], 80)
        after = before - 0.4 * (rng.random(80) < 0.25)
        wrong += mean_difference(before, after, bound=1.0, alpha=0.1).low >= -0.1
    assert wrong <= binom.isf(1e-5, replications, 0.1)


def test_holm_against_statsmodels() -> None:
    p = np.array([0.01, 0.04, 0.03, 0.2, 0.005])
    np.testing.assert_allclose(holm(tuple(p)), multipletests(p, method="holm")[1])
    assert holm((None, 0.02, None)) == (None, 0.02, None)
    assert holm(()) == ()


def test_holm_never_falls_and_never_exceeds_one() -> None:
    assert holm((0.5, 0.01, 0.6, None)) == (1.0, 0.03, 1.0, None)
    assert holm((0.03, 0.02)) == (0.04, 0.04)
    assert all(type(p) is float for p in holm((0.03, 0.02)))


def test_faults_are_named() -> None:
    x = np.array([0.1, 0.2])
    with pytest.raises(MeasureError, match="pair the audits"):
        mean_difference(x, x[:1], bound=1.0, alpha=0.05)
    with pytest.raises(MeasureError, match="before: expected numbers"):
        mean_difference(x * 10, x, bound=1.0, alpha=0.05)


def pairs(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    before = 2.0 * rng.random(90)
    return before, np.clip(before + rng.normal(0.1, 0.3, 90), 0, 2)


def test_a_difference_whole() -> None:
    before, after = pairs(0)
    sample = Sample.of((after - before + 2) / 4, zeros(90), 1, bound=1.0, seed=3)
    (low,), (high,) = limits(sample, 0.1, "betting")
    assert mean_difference(before, after, bound=2.0, alpha=0.1, seed=3) == Estimate(
        pytest.approx((after - before).mean()), pytest.approx(2 * (2 * low - 1)), pytest.approx(2 * (2 * high - 1))
    )


def test_seed_0_unless_another_is_given() -> None:
    before, after = pairs(1)
    default = mean_difference(before, after, bound=2.0, alpha=0.1)
    assert default == mean_difference(before, after, bound=2.0, alpha=0.1, seed=0)
    assert mean_difference(before, after, bound=2.0, alpha=0.1, seed=1).low != default.low


def test_nothing_in_common() -> None:
    none = mean_difference(np.zeros(0), np.zeros(0), bound=1.0, alpha=0.05)
    assert none == Estimate(None, reason="no samples in common")


def test_an_interval_over_the_whole_range_is_vacuous() -> None:
    half = np.array([0.5])
    assert mean_difference(half, half, bound=1.0, alpha=0.05) == Estimate(0.0, -1.0, 1.0, vacuous=True)
    assert not mean_difference(np.array([0.0]), np.array([1.0]), bound=1.0, alpha=0.9).vacuous
