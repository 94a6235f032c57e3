import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.proportion import proportion_confint

from services.numerics.binomial import (
    clopper_pearson,
    fixed_sample_size,
    monitored_error,
    sil_band,
    true_share_bounds,
)
from services.numerics.probacc import probacc
from services.numerics.sequential import mixture_boundary
from services.numerics.spending import characteristics


@pytest.mark.parametrize(("kappa", "published"), [(0.01, 0.215), (0.1, 0.309)])
def test_the_published_procedure_errs_far_more_than_alpha(kappa, published):
    """The exact error of "p > kappa" within 1,000 draws at p = kappa; published by simulation, so within its error."""
    error = monitored_error(kappa, 0.05, 1000, sides=("above",))
    assert error.above == pytest.approx(published, abs=0.01)
    valid = characteristics(mixture_boundary(kappa, 0.05, 1000), kappa)
    assert max(valid.accept, valid.reject) <= 0.05


def test_monitored_error_agrees_with_a_simulated_naive_loop():
    rng = np.random.default_rng(1)
    walks = np.cumsum(rng.random((4000, 200)) < 0.1, axis=1)
    n = np.arange(1, 201)
    below, above = stats.binom.cdf(walks, n, 0.1) <= 0.05, stats.binom.sf(walks - 1, n, 0.1) <= 0.05
    first_below = np.where(below.any(1), below.argmax(1), 999)
    first_above = np.where(above.any(1), above.argmax(1), 999)
    exact = monitored_error(0.1, 0.05, 200)
    assert (first_below < first_above).mean() == pytest.approx(exact.below, abs=0.025)
    assert (first_above < first_below).mean() == pytest.approx(exact.above, abs=0.025)
    assert exact.either == exact.below + exact.above


@pytest.mark.parametrize(("count", "total"), [(0, 10), (10, 10), (3, 10), (120, 1000)])
def test_clopper_pearson_agrees_with_statsmodels(count, total):
    low, high = proportion_confint(count, total, alpha=0.05, method="beta")
    assert clopper_pearson(count, total, 0.05) == pytest.approx((low, high), abs=1e-12)


def test_eq_5_as_corrected_contains_the_truth():
    for truth in (0.0, 0.3, 0.9, 1.0):
        for fpr, fnr in ((0.05, 0.0), (0.0, 0.05), (0.03, 0.02)):
            share = truth * (1 - fnr) + (1 - truth) * fpr
            found = true_share_bounds(round(share * 10**6), 10**6 - round(share * 10**6), 10**6, alpha=0.05, delta=None)
            assert found.low - 1e-6 <= truth <= found.high + 1e-6


def test_share_bounds_cover_over_repeats():
    rng = np.random.default_rng(2)
    missed = 0
    for _ in range(2000):
        robust = rng.random(300) < 0.6
        says = np.where(
            robust, rng.choice([1, 0, -1], 300, p=[0.7, 0.25, 0.05]), rng.choice([1, 0, -1], 300, p=[0.05, 0.2, 0.75])
        )
        found = true_share_bounds(int((says > 0).sum()), int((says < 0).sum()), 300, alpha=0.05, delta=0.05)
        missed += not found.low <= 0.6 <= found.high
    assert missed / 2000 <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 2000)


@pytest.mark.parametrize(
    ("kappa", "name"),
    [
        (0.5, "below SIL 1"),
        (0.1, "SIL 1"),
        (1e-2, "SIL 2"),
        (5e-3, "SIL 2"),
        (1e-3, "SIL 3"),
        (1e-4, "SIL 4"),
        (1e-5, "beyond SIL 4"),
    ],
)
def test_sil_bands(kappa, name):
    assert sil_band(kappa) == name


def test_fixed_sample_size_has_the_power_and_hardly_more():
    n = fixed_sample_size(0.05, robust=0.025, vulnerable=0.1, alpha=0.05)
    low = max(c for c in range(n) if stats.binom.cdf(c, n, 0.05) <= 0.05)
    high = min(c for c in range(n) if stats.binom.sf(c - 1, n, 0.05) <= 0.05)
    assert stats.binom.cdf(low, n, 0.025) >= 0.95 and stats.binom.sf(high - 1, n, 0.1) >= 0.95
    normal = ((1.645 * (0.05 * 0.95) ** 0.5 + 1.645 * (0.025 * 0.975) ** 0.5) / 0.025) ** 2
    assert n == pytest.approx(normal, rel=0.1)


def test_probacc_counts_and_empty():
    found = probacc(np.array([1, 1, 0, -1]), alpha=0.05, delta=0.05)
    assert (found.robust, found.not_robust, found.undecided, found.low, found.high) == (2, 1, 1, 0.5, 0.75)
    assert found.true_low <= 0.5 and found.true_high >= 0.75
    assert probacc(np.array([], dtype=int), alpha=0.05, delta=0.05).low is None
