"""Intervals, part by part: samples and their order, closed forms, levels, and what is taken unless said otherwise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import beta

from benchmarks.coverage.joined import one_sided
from services.numerics.intervals import means
from services.numerics.intervals.means import (
    Method,
    Sample,
    clopper_pearson,
    hoeffding_half_width,
    limits,
    method_for,
    reading_order,
    simultaneous,
)

METHODS: list[Method] = ["hoeffding", "empirical-bernstein", "betting"]


def zeros(n: int) -> np.ndarray:
    return np.zeros(n, dtype=int)


SCORES, GROUPS = np.array([0.5, 2.0, 0.0, 1.0, 1.5, 2.0]), np.array([2, 0, 2, 0, 2, 0])


def test_a_sample_whole() -> None:
    result = Sample.of(SCORES, GROUPS, 4, bound=2.0, seed=3)
    assert result.values.tolist() == [1.0, 0.5, 1.0, 0.25, 0.0, 0.75]
    assert (result.counts.tolist(), result.starts.tolist(), result.seed) == ([3, 0, 3, 0], [0, 3, 3, 6], 3)
    assert result.counts.dtype == np.int64
    np.testing.assert_allclose(result.means, [2.5 / 3, 0, 1 / 3, 0])
    np.testing.assert_allclose(result.variances, [np.var([1, 0.5, 1], ddof=1), 0, np.var([0.25, 0, 0.75], ddof=1), 0])
    assert result.means.dtype == result.variances.dtype == np.float64
    none = Sample.of(np.zeros(0), zeros(0), 2, bound=2.0, seed=3)
    assert none.means.tolist() == none.variances.tolist() == [0.0, 0.0] and none.means.dtype == np.float64


def test_blocks_hold_every_score_once_in_its_group() -> None:
    rng = np.random.default_rng(0)
    groups = rng.permutation(np.repeat(np.arange(6), [0, 5, 3, 9, 1, 9]))
    scores = rng.random(groups.size)
    for seed in (None, 4):
        sample = Sample.of(scores, groups, 6, bound=1.0, seed=seed)
        for cells in (1 << 18, 18, 1):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(means, "CELLS", cells)
                blocks = list(sample.blocks())
            assert [len(block) for block, *_ in blocks] == {1 << 18: [5], 18: [2, 3], 1: [1] * 5}[cells]
            observed = {}
            for block, values, mask in blocks:
                assert values.shape == mask.shape == (block.size, sample.counts[block].max())
                assert (values[~mask] == 0).all()
                for k, row, there in zip(block, values, mask, strict=True):
                    observed[int(k)] = row[there]
            assert sorted(observed) == [1, 2, 3, 4, 5]
            for k, mine in observed.items():
                own = scores[groups == k]
                assert sorted(mine) == sorted(own)
                if seed is None:
                    assert mine.tolist() == own.tolist()
                else:
                    assert mine.tolist() == own[reading_order(own.size, 4)].tolist()


def test_the_order_of_a_number_of_samples_is_part_of_that_of_more() -> None:
    longer = reading_order(50, 7)
    assert longer[longer < 20].tolist() == reading_order(20, 7).tolist() != reading_order(20, 8).tolist()
    keys = np.random.default_rng(7).random(20)
    assert reading_order(20, 7).tolist() == sorted(range(20), key=lambda i: keys[i])


def test_closed_forms_by_hand() -> None:
    x = np.random.default_rng(1).random(40)
    log = math.log(2 / 0.1)
    widths = {
        "hoeffding": math.sqrt(math.log(1 / 0.1) / 80),
        "empirical-bernstein": math.sqrt(2 * x.var(ddof=1) * log / 40) + 7 * log / (3 * 39),
    }
    for method, width in widths.items():
        limits = one_sided(2 * x, zeros(40), 1, bound=2.0, alpha=0.1, method=method)  # type: ignore[arg-type]
        assert limits.low[0] == pytest.approx(2 * max(0.0, x.mean() - width))
        assert limits.high[0] == pytest.approx(2 * min(1.0, x.mean() + width))
    assert hoeffding_half_width(8, 0.5, 3.0) == pytest.approx(3.0 * math.sqrt(math.log(4) / 16))
    assert hoeffding_half_width([8, 2], 0.5, 3.0).dtype == np.float64


def test_one_sample_tells_bernstein_nothing_and_two_something() -> None:
    first = limits(Sample.of(np.array([0.5]), zeros(1), 1, bound=1.0, seed=0), 0.1, "empirical-bernstein")
    assert (first[0][0], first[1][0]) == (0.0, 1.0)
    for x in (np.array([0.9]), np.array([0.9, 0.9])):
        few = limits(Sample.of(x, zeros(x.size), 1, bound=1.0, seed=0), 0.999, "empirical-bernstein")
        assert (few[0][0], few[1][0]) == (0.0, 1.0), "7 log 2 / 3 is more than 1"
    hoeffding = limits(Sample.of(np.array([0.5]), zeros(1), 1, bound=1.0, seed=0), 0.9, "hoeffding")
    assert hoeffding[0][0] == pytest.approx(0.5 - math.sqrt(math.log(1 / 0.9) / 2))
    two = limits(Sample.of(np.full(200, 0.5), np.arange(200) % 2, 2, bound=1.0, seed=0), 0.4, "empirical-bernstein")
    np.testing.assert_allclose(two[0], 0.5 - 7 * math.log(5) / (3 * 99))


@pytest.mark.parametrize("alpha", [0.01, 0.3])
def test_exact_limits_are_quantiles_of_the_beta(alpha: float) -> None:
    k, n = np.array([0, 1, 5, 9, 10, 0, 1]), np.array([10, 10, 10, 10, 10, 1, 1])
    low, high = clopper_pearson(k, n, alpha)
    for i in range(k.size):
        assert low[i] == pytest.approx(beta.ppf(alpha, k[i], n[i] - k[i] + 1) if k[i] else 0.0, abs=1e-12)
        assert high[i] == pytest.approx(beta.ppf(1 - alpha, k[i] + 1, n[i] - k[i]) if k[i] < n[i] else 1.0, abs=1e-12)


def test_the_method_asked_for_goes_before_the_tightest() -> None:
    assert method_for(None, binary=True) == "clopper-pearson"
    assert method_for(None, binary=False) == "betting"
    assert method_for("hoeffding", binary=True) == "hoeffding"


def test_limits_never_leave_the_estimate_nor_the_range() -> None:
    sample = Sample.of(np.array([0.0, 0.0, 1.0, 1.0]), np.array([0, 0, 1, 1]), 2, bound=1.0, seed=0)
    for method in METHODS:
        low, high = limits(sample, 0.05, method)
        assert low[0] == 0.0 and high[1] == 1.0
        assert (low <= sample.means).all() and (high >= sample.means).all()


def test_limits_are_for_a_fixed_number_of_samples_unless_said_otherwise() -> None:
    sample = Sample.of(np.random.default_rng(2).random(60), zeros(60), 1, bound=1.0, seed=0)
    fixed, anytime = (limits(sample, 0.1, "betting", anytime=how) for how in (False, True))
    np.testing.assert_array_equal(limits(sample, 0.1, "betting"), fixed)
    assert (fixed[0] != anytime[0]).all() and (fixed[1] != anytime[1]).all()


def many(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return 2.0 * rng.beta(1, 3, 90), np.arange(90) % 3


def test_simultaneous_limits_are_single_ones_at_a_share_of_the_level() -> None:
    scores, groups = many(0)
    intervals = simultaneous(scores, groups, 4, bound=2.0, delta=0.12, seed=5, anytime=True)
    sample = Sample.of(scores, groups, 4, bound=2.0, seed=5)
    low, high = limits(sample, 0.02, "betting", anytime=True)
    np.testing.assert_array_equal(intervals.low[:3], 2.0 * low[:3])
    np.testing.assert_array_equal(intervals.high[:3], 2.0 * high[:3])
    assert (intervals.method, intervals.delta, intervals.bound) == ("betting", 0.12, 2.0)
    assert (intervals.defined.tolist(), intervals.vacuous.tolist()) == ([True] * 3 + [False], [False] * 4)
    assert np.isnan(intervals.low[3]) and np.isnan(intervals.high[3])
    alone = one_sided(scores, groups, 4, bound=2.0, alpha=0.02, seed=5, anytime=True)
    np.testing.assert_array_equal(alone.low, intervals.low)
    np.testing.assert_array_equal(alone.high, intervals.high)
    assert (alone.method, alone.delta, alone.bound) == ("betting", 0.02, 2.0)


@pytest.mark.parametrize("make", [simultaneous, one_sided])
def test_what_is_taken_unless_said_otherwise(make) -> None:
    scores, groups = many(1)
    level = {"delta" if make is simultaneous else "alpha": 0.1}
    default = make(scores, groups, 3, bound=2.0, **level)
    message = make(scores, groups, 3, bound=2.0, method="betting", binary=False, seed=0, anytime=False, **level)
    np.testing.assert_array_equal(default.low, message.low)
    for change in ({"seed": 1}, {"anytime": True}, {"method": "hoeffding"}):
        assert (make(scores, groups, 3, bound=2.0, **level, **change).low != default.low).all()
    exact = make((scores > 0.5) * 2.0, groups, 3, bound=2.0, binary=True, **level)
    assert exact.method == "clopper-pearson"
    none = make(np.zeros(0), zeros(0), 2, bound=2.0, **level)
    assert np.isnan(none.low).all() and not none.vacuous.any()


def test_vacuous_needs_both_ends() -> None:
    intervals = simultaneous(
        np.array([0.0, 2.0, 1.0]), np.array([0, 1, 2]), 3, bound=2.0, delta=0.1, method="hoeffding"
    )
    assert intervals.vacuous.tolist() == [True, True, True]
    exact = simultaneous(np.array([0.0, 2.0]), np.array([0, 1]), 2, bound=2.0, delta=0.1, binary=True)
    assert exact.vacuous.tolist() == [False, False]


def test_a_bound_that_held_earlier_does_not_pass_the_estimate() -> None:
    """After thirty ones the lower bound is near 1; the seventy zeros that follow bring the mean below it."""
    x = np.append(np.ones(30), np.zeros(70))
    for values in (x, 1 - x):
        sample = Sample.of(values, zeros(100), 1, bound=1.0, seed=None)
        (low,), (high,) = limits(sample, 0.05, "betting", anytime=True)
        assert low <= values.mean() <= high and values.mean() in (low, high)
