import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.proportion import proportion_confint

from benchmarks.binomial import (
    clopper_pearson,
    fixed_sample_size,
    monitored_error,
    true_share_bounds,
)
from benchmarks.probacc import ProbAcc, probacc
from benchmarks.spending import characteristics
from services.measures.binomial import sil_band
from services.numerics.intervals.sequential import mixture_boundary


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
            result = true_share_bounds(
                round(share * 10**6), 10**6 - round(share * 10**6), 10**6, alpha=0.05, delta=None
            )
            assert result.low - 1e-6 <= truth <= result.high + 1e-6


def test_share_bounds_cover_over_repeats():
    rng = np.random.default_rng(2)
    missed = 0
    for _ in range(2000):
        robust = rng.random(300) < 0.6
        says = np.where(
            robust, rng.choice([1, 0, -1], 300, p=[0.7, 0.25, 0.05]), rng.choice([1, 0, -1], 300, p=[0.05, 0.2, 0.75])
        )
        share = true_share_bounds(int((says > 0).sum()), int((says < 0).sum()), 300, alpha=0.05, delta=0.05)
        missed += not share.low <= 0.6 <= share.high
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
    verdicts = probacc(np.array([1, 1, 0, -1]), alpha=0.05, delta=0.05)
    assert (verdicts.robust, verdicts.not_robust, verdicts.undecided, verdicts.low, verdicts.high) == (
        2,
        1,
        1,
        0.5,
        0.75,
    )
    assert verdicts.true_low <= 0.5 and verdicts.true_high >= 0.75
    assert probacc(np.array([], dtype=int), alpha=0.05, delta=0.05).low is None


def naive_monitored(kappa: float, alpha: float, horizon: int, sides: tuple[str, ...]) -> dict[str, float]:
    """Counts of failures as a dictionary of probabilities; stopped ones are taken out."""
    walk, errors = {0: 1.0}, {"below": 0.0, "above": 0.0}
    for n in range(1, horizon + 1):
        moved: dict[int, float] = {}
        for k, mass in walk.items():
            moved[k] = moved.get(k, 0.0) + mass * (1 - kappa)
            moved[k + 1] = moved.get(k + 1, 0.0) + mass * kappa
        for side in sides:
            for k in list(moved):
                p = stats.binom.cdf(k, n, kappa) if side == "below" else stats.binom.sf(k - 1, n, kappa)
                if p <= alpha:
                    errors[side] += moved.pop(k)
        walk = moved
    return errors


@pytest.mark.parametrize("sides", [("below", "above"), ("below",), ("above",)])
def test_monitored_error_is_that_of_a_naive_walk(sides):
    error = monitored_error(0.3, 0.1, 60, sides=sides)
    expected = naive_monitored(0.3, 0.1, 60, sides)
    assert (error.below, error.above) == (pytest.approx(expected["below"]), pytest.approx(expected["above"]))


def test_a_level_that_is_just_reached_stops():
    """P(Bin(2, 1/2) <= 0) = P(Bin(2, 1/2) >= 2) = 1/4, in binary exactly."""
    error = monitored_error(0.5, 0.25, 2)
    assert (error.below, error.above, error.either) == (0.25, 0.25, 0.5)
    assert monitored_error(0.5, 0.24, 2).either == 0.0


def test_share_bounds_by_hand():
    plain = true_share_bounds(60, 20, 100, alpha=0.05, delta=None)
    assert (plain.low, plain.high) == (pytest.approx(0.55 / 0.95), pytest.approx(0.8 / 0.95))
    low, high = clopper_pearson(60, 100, 0.1)[0], 1 - clopper_pearson(20, 100, 0.1)[0]
    wide = true_share_bounds(60, 20, 100, alpha=0.05, delta=0.1)
    assert (wide.low, wide.high) == (pytest.approx((low - 0.05) / 0.95), pytest.approx(high / 0.95))
    ends = true_share_bounds(1, 1, 100, alpha=0.05, delta=None)
    assert (ends.low, ends.high) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("kappa", "robust", "vulnerable", "alpha"),
    [
        (0.05, 0.025, 0.1, 0.05),
        (0.2, 0.05, 0.4, 0.1),
        (0.5, 0.001, 0.999, 0.3),
        (0.3, 0.2, 0.45, 0.02),
        (0.5, 0.001, 0.999, 0.25),  # P(Bin(2, 1/2) = 0) is the level
        (0.5, 0.25, 0.75, 0.4375),  # and here the power of two draws is 9/16, what is asked
        (0.5, 0.2, 0.8, 0.5),  # one draw is enough
    ],
)
def test_the_fixed_sample_size_is_where_the_power_begins(kappa, robust, vulnerable, alpha):
    def decides(n):
        below = [c for c in range(n + 1) if stats.binom.cdf(c, n, kappa) <= alpha]
        above = [c for c in range(n + 1) if stats.binom.sf(c - 1, n, kappa) <= alpha]
        accepts = stats.binom.cdf(max(below), n, robust) if below else 0.0
        rejects = stats.binom.sf(min(above) - 1, n, vulnerable) if above else 0.0
        return accepts >= 1 - alpha and rejects >= 1 - alpha

    result = fixed_sample_size(kappa, robust=robust, vulnerable=vulnerable, alpha=alpha)
    assert decides(result) and not decides(result - 1)


def test_sil_band_above_the_table():
    assert sil_band(0.1000001) == "below SIL 1"
    assert sil_band(0.99e-5) == "beyond SIL 4"
    assert sil_band(1.01e-5) == "SIL 4"


def test_probacc_whole():
    verdicts = probacc(np.array([1, 1, 0, -1, 1]), alpha=0.05, delta=0.1)
    true = true_share_bounds(3, 1, 5, alpha=0.05, delta=0.1)
    assert verdicts == ProbAcc(3, 1, 1, 0.6, 0.8, true.low, true.high)
    assert probacc(np.array([], dtype=int), alpha=0.05, delta=0.05) == ProbAcc(0, 0, 0, None, None, None, None)


def test_power_that_is_just_reached_is_enough():
    """Two draws at 1/4 and at 3/4 have power 9/16, in binary exactly."""
    assert fixed_sample_size(0.5, robust=0.25, vulnerable=0.75, alpha=0.4375) == 2


def test_the_least_of_sizes_whose_power_comes_and_goes():
    """108, 110, 112, 114 draws have the power that is asked, 109, 111, 113 and 115 have not, and from 116 all have."""
    assert fixed_sample_size(0.46, robust=0.2576, vulnerable=0.5842, alpha=0.1) == 108
