import numpy as np
import pytest
from scipy.stats import norm

from services.numerics.splitting import SplittingPlan, rare_event, summarise

DIMENSION = 32


def _estimate(p, seed, plan):
    """A linear margin: u . w > threshold fails, with P = Phi(-threshold)."""
    threshold = -norm.ppf(p)
    w = np.ones(DIMENSION, dtype=np.float32) / np.sqrt(DIMENSION)
    noise = np.random.default_rng([seed, 1])
    return rare_event(
        lambda u: threshold - (u @ w).astype(np.float64),
        lambda count: noise.standard_normal((count, DIMENSION), dtype=np.float32),
        plan,
        np.random.default_rng([seed, 2]),
    )


def _check(p, repeats, budget):
    plan = SplittingPlan()
    found = [_estimate(p, seed, plan) for seed in range(repeats)]
    values = np.array([event.probability for event in found])
    assert abs(values.mean() / p - 1) < 3.5 * values.std() / p / np.sqrt(repeats) + 0.02
    covered = np.mean([event.low <= p <= event.high for event in found])
    assert covered >= 0.95 - 3 * np.sqrt(0.05 * 0.95 / repeats) - 0.02
    assert np.mean([event.relative_sd for event in found]) < 0.45
    assert max(event.passes for event in found) < budget


@pytest.mark.parametrize(("p", "budget"), [(1e-3, 15_000), (1e-6, 30_000)])
def test_unbiased_and_covering_on_a_linear_model(p, budget):
    _check(p, 40, budget)


@pytest.mark.slow
@pytest.mark.parametrize("p", [1e-3, 1e-5, 1e-6])
def test_unbiased_and_covering_over_many_repeats(p):
    _check(p, 400, 30_000)


def test_a_common_failure_is_a_plain_frequency():
    event = _estimate(0.7, 0, SplittingPlan())
    assert event.passes == 64 * 8
    assert event.low <= 0.7 <= event.high


def test_no_failure_region_is_censored_at_the_floor():
    plan = SplittingPlan(floor=1e-5)
    noise = np.random.default_rng(0)
    event = rare_event(
        lambda u: 1.0 + np.exp(-u[:, 0].astype(float)),
        lambda count: noise.standard_normal((count, 4), dtype=np.float32),
        plan,
        np.random.default_rng(1),
    )
    assert (event.probability, event.low, event.high, event.relative_sd) == (None, 0.0, 1e-5, None)


def test_a_margin_that_is_nan_has_failed():
    event = rare_event(
        lambda u: np.full(len(u), np.nan),
        lambda c: np.zeros((c, 2), np.float32),
        SplittingPlan(),
        np.random.default_rng(0),
    )
    assert event.probability == 1.0


def test_summary_of_equal_replicates_is_a_point():
    event = summarise(np.full(5, 1e-4), passes=10, plan=SplittingPlan())
    assert event.probability == pytest.approx(1e-4)
    assert event.low == pytest.approx(1e-4) and event.high == pytest.approx(1e-4)
