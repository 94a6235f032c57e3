"""Intervals: closed forms, an independent betting implementation, invariants, and coverage by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom
from statsmodels.stats.proportion import proportion_confint

from benchmarks.coverage.joined import one_sided
from services.errors import MeasureError
from services.numerics.great import GREAT_BOUND
from services.numerics.intervals import betting
from services.numerics.intervals.means import Method, hoeffding_half_width, simultaneous

METHODS: list[Method] = ["hoeffding", "empirical-bernstein", "betting"]


def naive_hedged_bound(x: list[float], alpha: float, truncation: float, anytime: bool, steps: int = 2000) -> float:
    """WSR's lower bound, written from the paper for one sample: a grid of means, one capital process each."""
    bets = []
    for t in range(1, len(x) + 1):
        means = [(0.5 + math.fsum(x[:i])) / (i + 1) for i in range(1, t)]
        variance = (0.25 + math.fsum((x[i] - m) ** 2 for i, m in enumerate(means))) / t
        horizon = t * math.log(t + 1) if anytime else len(x)
        bets.append(math.sqrt(2 * math.log(1 / alpha) / (variance * horizon)))
    lowest = 0.0
    for m in np.arange(1, steps) / steps:
        capital, most = 1.0, 1.0
        for value, bet in zip(x, bets, strict=True):
            capital *= 1 + min(bet, truncation / m) * (value - m)
            most = max(most, capital)
        if most < 1 / alpha:
            break
        lowest = float(m)
    return lowest


def zeros(n: int) -> np.ndarray:
    return np.zeros(n, dtype=int)


@pytest.mark.parametrize("anytime", [False, True])
@pytest.mark.parametrize("n", [1, 2, 7, 40])
def test_betting_equals_a_naive_implementation(n: int, anytime: bool) -> None:
    rng = np.random.default_rng(n)
    for shape in ((0.3, 2.0), (2.0, 0.3), (5.0, 5.0)):
        x = rng.beta(*shape, n)
        limits = one_sided(x, zeros(n), 1, bound=1.0, alpha=0.05, method="betting", seed=None, anytime=anytime)
        low = naive_hedged_bound(list(x), 0.05, betting.TRUNCATION, anytime)
        high = 1 - naive_hedged_bound(list(1 - x), 0.05, betting.TRUNCATION, anytime)
        assert limits.low[0] == pytest.approx(min(low, x.mean()), abs=6e-4)
        assert limits.high[0] == pytest.approx(max(high, x.mean()), abs=6e-4)


def test_capital_falls_in_the_candidate_mean() -> None:
    rng = np.random.default_rng(0)
    values = rng.beta(0.5, 1, (5, 60))
    bets = betting.bet_sizes(values, np.ones_like(values, dtype=bool), 0.01, anytime=False)
    grid = np.linspace(0, 1, 201)
    logs = np.array([betting.log_capital(values, bets, np.full(5, m)) for m in grid])
    assert (np.diff(logs, axis=0) <= 1e-12).all()


def test_padding_and_unequal_groups_change_nothing() -> None:
    rng = np.random.default_rng(4)
    counts = [0, 1, 3, 50, 400, 2, 399]
    groups = rng.permutation(np.repeat(np.arange(7), counts))
    scores = rng.beta(0.5, 2, groups.size) * GREAT_BOUND
    for method in METHODS:
        together = simultaneous(scores, groups, 7, bound=GREAT_BOUND, delta=0.06, method=method)
        for k in np.flatnonzero(counts):
            own = scores[groups == k]
            alone = simultaneous(own, zeros(own.size), 1, bound=GREAT_BOUND, delta=0.01, method=method)
            assert together.low[k] == pytest.approx(alone.low[0], abs=1e-9)
            assert together.high[k] == pytest.approx(alone.high[0], abs=1e-9)
        assert np.isnan(together.low[0])
        assert not together.defined[0]
        assert not together.vacuous[0]


def test_hoeffding_as_printed() -> None:
    assert hoeffding_half_width(1000, 0.05 / 10, GREAT_BOUND) == pytest.approx(0.0686, abs=5e-5)
    assert hoeffding_half_width(1000, 0.05 / 10, GREAT_BOUND) == pytest.approx(
        math.sqrt(math.pi * math.log(2 * 10 / 0.05) / (4 * 1000))
    )
    assert hoeffding_half_width(50, 0.05 / 1000, GREAT_BOUND) == pytest.approx(0.408, abs=5e-4)
    scores = np.full(10_000, 0.6)
    intervals = simultaneous(scores, np.arange(10_000) % 10, 10, bound=GREAT_BOUND, delta=0.05, method="hoeffding")
    np.testing.assert_allclose(intervals.high - intervals.low, 2 * 0.0686, atol=1e-4)


def test_empirical_bernstein_as_printed() -> None:
    x = np.random.default_rng(1).random(80)
    log = math.log(2 / 0.025)
    width = math.sqrt(2 * x.var(ddof=1) * log / 80) + 7 * log / (3 * 79)
    intervals = simultaneous(x, zeros(80), 1, bound=1.0, delta=0.05, method="empirical-bernstein")
    assert intervals.high[0] - x.mean() == pytest.approx(width)
    assert x.mean() - intervals.low[0] == pytest.approx(width)


@pytest.mark.parametrize("n", [1, 5, 100, 3000])
def test_clopper_pearson_against_statsmodels(n: int) -> None:
    for k in sorted({0, 1, n // 3, n - 1, n}):
        x = np.arange(n) < k
        intervals = simultaneous(x.astype(float), zeros(n), 1, bound=1.0, delta=0.05, binary=True)
        assert intervals.method == "clopper-pearson"
        low, high = proportion_confint(k, n, alpha=0.05, method="beta")
        assert intervals.low[0] == pytest.approx(low, abs=1e-12)
        assert intervals.high[0] == pytest.approx(high, abs=1e-12)


def test_betting_is_much_narrower_where_classes_look_like_gf() -> None:
    rng = np.random.default_rng(2)
    scores, groups = rng.beta(0.4, 6, 10_000) * GREAT_BOUND, np.arange(10_000) % 10
    width = {}
    for method in METHODS:
        intervals = simultaneous(scores, groups, 10, bound=GREAT_BOUND, delta=0.05, method=method)
        width[method] = (intervals.high - intervals.low).mean()
    assert width["hoeffding"] > 1.9 * width["betting"]
    assert width["empirical-bernstein"] > 1.1 * width["betting"]


scores_and_groups = st.integers(1, 4).flatmap(
    lambda k: st.lists(st.tuples(st.floats(0, 1), st.integers(0, k - 1)), min_size=1, max_size=60).map(
        lambda rows: (np.array([r[0] for r in rows]), np.array([r[1] for r in rows]), k)
    )
)


@settings(max_examples=40, deadline=None)
@given(scores_and_groups, st.sampled_from(METHODS), st.floats(0.001, 0.4), st.floats(1.1, 2))
def test_inside_the_range_around_the_mean_and_monotone_in_delta(data, method, delta, factor) -> None:
    scores, groups, k = data
    intervals = simultaneous(scores * 3, groups, k, bound=3.0, delta=delta, method=method)
    looser = simultaneous(scores * 3, groups, k, bound=3.0, delta=delta * factor, method=method)
    ok = intervals.defined
    means = np.array([scores[groups == g].mean() * 3 for g in np.flatnonzero(ok)])
    assert (intervals.low[ok] >= 0).all()
    assert (intervals.high[ok] <= 3).all()
    assert (intervals.low[ok] <= means + 1e-9).all()
    assert (intervals.high[ok] >= means - 1e-9).all()
    if method != "betting":  # its bets depend on the level, so that monotony is typical but not certain
        assert (looser.low[ok] >= intervals.low[ok] - 1e-12).all()
        assert (looser.high[ok] <= intervals.high[ok] + 1e-12).all()
    assert ok.sum() == np.unique(groups).size
    np.testing.assert_array_equal(intervals.vacuous[ok], (intervals.low[ok] <= 0) & (intervals.high[ok] >= 3))


@settings(max_examples=25, deadline=None)
@given(scores_and_groups, st.sampled_from(METHODS), st.randoms(use_true_random=False))
def test_the_order_of_groups_does_not_matter(data, method, random) -> None:
    scores, groups, k = data
    names = np.array(random.sample(range(k), k))
    intervals = simultaneous(scores, groups, k, bound=1.0, delta=0.1, method=method)
    two = simultaneous(scores, names[groups], k, bound=1.0, delta=0.1, method=method)
    np.testing.assert_allclose(two.low[names], intervals.low, atol=1e-9)
    if method != "betting":
        order = np.array(random.sample(range(len(scores)), len(scores)))
        three = simultaneous(scores[order], groups[order], k, bound=1.0, delta=0.1, method=method)
        np.testing.assert_allclose(three.low, intervals.low, atol=1e-12)


def test_a_sorted_source_does_not_bias_betting() -> None:
    x = np.sort(np.random.default_rng(0).beta(0.5, 0.5, 2000))
    shuffled = one_sided(x, zeros(2000), 1, bound=1.0, alpha=0.05, method="betting", seed=1)
    again = one_sided(x, zeros(2000), 1, bound=1.0, alpha=0.05, method="betting", seed=1)
    other = one_sided(x, zeros(2000), 1, bound=1.0, alpha=0.05, method="betting", seed=2)
    as_it_is = one_sided(x, zeros(2000), 1, bound=1.0, alpha=0.05, method="betting", seed=None)
    assert shuffled.low[0] == again.low[0] != other.low[0]
    assert shuffled.low[0] == pytest.approx(other.low[0], abs=0.01)
    assert abs(as_it_is.high[0] - as_it_is.low[0] - (shuffled.high[0] - shuffled.low[0])) > 0.05


def test_tiny_groups_say_little_and_say_so() -> None:
    intervals = simultaneous(np.array([0.7]), np.array([1]), 3, bound=1.0, delta=0.05)
    np.testing.assert_array_equal(intervals.defined, [False, True, False])
    assert intervals.vacuous[1]
    empty = simultaneous(np.zeros(0), zeros(0), 2, bound=1.0, delta=0.05)
    assert not empty.defined.any()
    assert np.isnan(empty.low).all()


def test_faults_are_named() -> None:
    x = np.array([0.2, 0.4])
    with pytest.raises(MeasureError, match="all 0 or the bound"):
        simultaneous(x, zeros(2), 1, bound=1.0, delta=0.05, binary=True)
    with pytest.raises(MeasureError, match="delta"):
        simultaneous(x, zeros(2), 1, bound=1.0, delta=1.0)
    with pytest.raises(MeasureError, match="one of hoeffding"):
        simultaneous(x, zeros(2), 1, bound=1.0, delta=0.05, method="wald")
    with pytest.raises(MeasureError, match="anytime"):
        simultaneous(x, zeros(2), 1, bound=1.0, delta=0.05, method="hoeffding", anytime=True)


# --- coverage ----------------------------------------------------------------------------------------------------

SHAPES = {
    "skewed": lambda rng, size: rng.beta(0.3, 3, size),
    "balanced": lambda rng, size: rng.beta(3, 3, size),
    "rare jumps": lambda rng, size: (rng.random(size) < 0.03) * rng.random(size),
    "two points": lambda rng, size: (rng.random(size) < 0.85) * 1.0,
    "heavy ties": lambda rng, size: rng.choice([0.0, 0.0, 0.25, 1.0], size),
    "one point": lambda rng, size: np.full(size, 0.37),
    "all zero": lambda rng, size: np.zeros(size),
}
MEAN = {
    "skewed": 0.3 / 3.3,
    "balanced": 0.5,
    "rare jumps": 0.015,
    "two points": 0.85,
    "heavy ties": 0.3125,
    "one point": 0.37,
    "all zero": 0.0,
}


def misses(shape: str, n: int, replications: int, delta: float, method: Method, anytime: bool = False) -> float:
    """Share of simulated samples whose interval misses the mean; each replication is a group at level delta."""
    rng = np.random.default_rng([n, replications, list(SHAPES).index(shape)])
    x = SHAPES[shape](rng, replications * n)
    groups = np.repeat(np.arange(replications), n)
    limits = one_sided(x, groups, replications, bound=1.0, alpha=delta / 2, method=method, anytime=anytime)
    return float(np.mean((limits.low > MEAN[shape] + 1e-9) | (limits.high < MEAN[shape] - 1e-9)))


def allowed(delta: float, replications: int) -> float:
    """The share of misses that a method with miss probability exactly delta exceeds once in 100,000 runs."""
    return float(binom.isf(1e-5, replications, delta)) / replications


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shape", list(SHAPES))
def test_coverage_short(shape: str, method: Method) -> None:
    for n in (1, 8, 120):
        assert misses(shape, n, 400, 0.1, method) <= allowed(0.1, 400)


def test_coverage_of_clopper_pearson_short() -> None:
    assert misses("two points", 30, 400, 0.1, "clopper-pearson") <= allowed(0.1, 400)


@pytest.mark.parametrize("shape", ["skewed", "two points", "rare jumps"])
def test_anytime_bounds_cover_at_every_look(shape: str) -> None:
    """The bound is the running intersection over all looks: it misses at the end if it missed at any look."""
    assert misses(shape, 300, 400, 0.1, "betting", anytime=True) <= allowed(0.1, 400)


def test_looking_repeatedly_at_a_fixed_n_interval_errs_far_more_than_delta_and_betting_does_not() -> None:
    rng = np.random.default_rng(9)
    x = (rng.random((500, 400)) < 0.5).astype(float)
    looks = np.arange(1, 401)
    means = np.cumsum(x, axis=1) / looks
    normal = np.abs(means - 0.5) > 1.645 * 0.5 / np.sqrt(looks)
    assert normal[:, 20:].any(axis=1).mean() > 0.3
    values = x.reshape(-1)
    limits = one_sided(
        values, np.repeat(np.arange(500), 400), 500, bound=1.0, alpha=0.05, method="betting", anytime=True, seed=None
    )
    assert np.mean((limits.low > 0.5) | (limits.high < 0.5)) <= allowed(0.1, 500)


def test_a_bound_that_is_too_tight_would_be_caught() -> None:
    """The simulation has power: the same betting bound at four times the level misses too often to pass."""
    assert misses("two points", 120, 400, 0.9, "clopper-pearson") > allowed(0.1, 400)


def test_an_anytime_bound_only_tightens_as_samples_arrive() -> None:
    x = np.random.default_rng(3).beta(0.5, 1, 200)
    low = [
        one_sided(x[:n], zeros(n), 1, bound=1.0, alpha=0.05, method="betting", anytime=True, seed=None).low[0]
        for n in (1, 10, 50, 100, 200)
    ]
    assert low == sorted(low)
    assert low[-1] > 0
