"""Intervals of metrics, part by part: ranges by hand, levels, what is vacuous, and what is undefined."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.coverage.joined import MetricIntervals, metric_intervals
from services.numerics.disparity import disparity, nrgc
from services.numerics.intervals import disparity as mi
from services.numerics.intervals.means import Intervals, Sample, clopper_pearson, hoeffding_half_width, limits
from services.records import Estimate


def test_ranges_by_hand() -> None:
    low, high = np.array([0.1, 0.2, 0.6]), np.array([0.3, 0.8, 0.7])
    assert mi.rdi_range(low, high) == (pytest.approx(0.3), pytest.approx(0.7))
    assert mi.rdi_range(low[:2], high[:2]) == (0.0, pytest.approx(0.7))
    assert mi.rdi_range(low[:1], high[:1]) == (0.0, 0.0)
    assert mi.rdi_range(np.array([0.5, 0.5]), np.array([0.5, 0.5])) == (0.0, 0.0)
    assert mi.fp_range(low[:1], high[:1], 0.5) == (0.1, 0.3)
    assert mi.fp_range(low, high, 0.0) == (pytest.approx(0.3), pytest.approx(0.6))
    assert mi.fp_range(low, high, 1.0) == (pytest.approx(1 / 3 - 0.6), pytest.approx((0.3 + 0.6 + 0.6) / 3 - 0.3))


def test_the_widest_gap_is_between_two_different_groups() -> None:
    """The first group alone has the largest upper and the smallest lower limit: its own width is no gap."""
    assert mi.rdi_range(np.array([0.0, 0.4, 0.5]), np.array([1.0, 0.6, 0.7]))[1] == pytest.approx(0.7)
    assert mi.rdi_range(np.array([0.0, 0.3]), np.array([1.0, 0.4]))[1] == pytest.approx(0.7)


def test_nrgc_of_one_group_and_of_none() -> None:
    assert mi.nrgc_range(np.array([0.2]), np.array([0.4])) == (0.0, 0.0)
    assert mi.nrgc_range(np.zeros(3), np.zeros(3)) is None
    assert mi.nrgc_range(np.zeros(2), np.array([0.0, 1e-310])) == (0.0, pytest.approx(0.5))
    assert mi.nrgc_range(np.zeros(2), np.ones(2)) == (0.0, 0.5)
    assert mi.relaxed_nrgc(np.zeros(2), np.ones(2)) == 0.5
    assert mi.relaxed_nrgc(np.zeros(3), np.ones(3)) == 2 / 3
    point = np.array([0.1, 0.4])
    assert mi.largest_nrgc(point, point) > nrgc(point), "rounded outwards"
    assert mi.nrgc_range(point, point) == (pytest.approx(0.3), pytest.approx(0.3))


def test_the_relaxation_takes_over_beyond_a_number_of_groups() -> None:
    rng = np.random.default_rng(1)
    low = rng.random(12) * 0.3
    high = low + 0.4 * rng.random(12)
    exact, relaxed = mi.largest_nrgc(low, high), mi.relaxed_nrgc(low, high)
    assert exact < relaxed < exact + 0.05
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mi, "MOST_EXACT", 12)
        assert mi.largest_nrgc(low, high) == exact
        patch.setattr(mi, "MOST_EXACT", 11)
        assert mi.largest_nrgc(low, high) == relaxed


def test_the_relaxed_bound_by_hand() -> None:
    """Ranks weigh -2, 0 and 2. At a ratio 0 < q < 2/3 only the last one gains: it takes the largest upper limit.

    The others take the smallest lower ones, so the gain is 0.9 (2 - 3q) + 0.1 (-2 - 3q) + 0.2 (-3q) = 1.6 - 3.6 q.
    """
    low, high = np.array([0.1, 0.3, 0.2]), np.array([0.5, 0.6, 0.9])
    assert mi.relaxed_nrgc(low, high) == pytest.approx(1.6 / 3.6, abs=1e-11)
    assert mi.relaxed_nrgc(np.zeros(3), np.zeros(3)) == pytest.approx(0.0, abs=1e-11)


def scored(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return 2.0 * rng.beta(2, 3, 120), np.arange(120) % 3


@pytest.mark.parametrize("method", [None, "hoeffding"])
def test_wcr_is_made_of_single_lower_and_joint_upper_limits(method) -> None:
    scores, groups = scored(0)
    least = min(scores[groups == k].mean() for k in range(3))
    interval = mi.weakest_interval(least, scores, groups, 4, bound=2.0, delta=0.12, method=method, seed=4)
    sample = Sample.of(scores, groups, 4, bound=2.0, seed=4)
    low = limits(sample, 0.12, method or "betting")[0][:3].min() * 2
    high = limits(sample, 0.04, method or "betting")[1][:3].min() * 2
    assert interval == Estimate(least, pytest.approx(low), pytest.approx(high))
    default = mi.weakest_interval(least, scores, groups, 3, bound=2.0, delta=0.12)
    assert default == mi.weakest_interval(least, scores, groups, 3, bound=2.0, delta=0.12, seed=0)
    assert default.low != interval.low


def test_wcr_of_right_or_wrong_is_exact() -> None:
    right, groups = np.tile([1.0, 0.0, 1.0, 1.0], 10), np.arange(40) % 2
    interval = mi.weakest_interval(0.5, right, groups, 2, bound=1.0, delta=0.1, binary=True)
    low, high = clopper_pearson(np.array([20, 10]), np.array([20, 20]), 0.1)
    joint = clopper_pearson(np.array([20, 10]), np.array([20, 20]), 0.05)[1]
    assert interval == Estimate(0.5, pytest.approx(low.min()), pytest.approx(joint.min()))
    assert high.min() < joint.min()


def test_an_estimate_is_never_outside_its_limits() -> None:
    scores, groups = scored(1)
    assert mi.weakest_interval(0.0, scores, groups, 3, bound=2.0, delta=0.1).low == 0.0
    assert mi.weakest_interval(2.0, scores, groups, 3, bound=2.0, delta=0.1).high == 2.0


def test_a_whole_set_of_intervals() -> None:
    low, high = np.array([0.2, 0.4, np.nan, 0.9]), np.array([0.6, 0.8, np.nan, 1.6])
    defined = np.array([True, True, False, True])
    box = Intervals(low, high, defined, ~defined, "betting", 0.05, 2.0)
    metrics = disparity(np.array([0.4, 0.6, 0.0, 1.2]), defined, penalty=0.25)
    wcr = Estimate(0.4, 0.25, 0.5)
    kept = low[defined], high[defined]
    gini, fp, rdi = mi.nrgc_range(*kept), mi.fp_range(*kept, 0.25), mi.rdi_range(*kept)
    assert metric_intervals(metrics, box, wcr) == MetricIntervals(
        rdi=Estimate(pytest.approx(0.8), *rdi),
        nrgc=Estimate(metrics.nrgc.value, *gini),  # type: ignore[misc]
        wcr=wcr,
        fp=Estimate(metrics.fp.value, *fp),
    )
    none = Estimate(None, reason="no group has samples")
    empty = Intervals(low, high, defined & False, ~defined, "betting", 0.05, 2.0)
    assert metric_intervals(metrics, empty, wcr) == MetricIntervals(none, none, none, none)


def test_undefined_nrgc_keeps_its_reason() -> None:
    low, high, there = np.zeros(2), np.ones(2), np.ones(2, dtype=bool)
    zeros = disparity(np.zeros(2), there)
    box = Intervals(low, high, there, there, "betting", 0.05, 1.0)
    reason = "all group means are 0, so the inequality is 0/0"
    assert metric_intervals(zeros, box, Estimate(0.0)).nrgc == Estimate(None, reason=reason)
    flat = Intervals(low, low, there, there, "betting", 0.05, 1.0)
    metrics = disparity(np.array([0.0, 0.5]), there)
    assert metric_intervals(metrics, flat, Estimate(0.0)).nrgc == Estimate(None, reason=reason)


def test_vacuous_is_as_wide_as_the_range_of_each_metric() -> None:
    """Two groups in [0, 1]: RDI in [0, 1], NRGC in [0, 1/2], FP = mean - RDI / 2 in [0, 1]."""
    there, words = np.ones(2, dtype=bool), "the interval covers the whole range"
    box = Intervals(np.zeros(2), np.ones(2), there, there, "betting", 0.05, 1.0)
    result = metric_intervals(disparity(np.array([0.25, 0.75]), there), box, Estimate(0.25))
    assert result.rdi == Estimate(0.5, 0.0, 1.0, words, True)
    assert result.nrgc == Estimate(0.25, 0.0, pytest.approx(0.5), words, True)
    assert result.fp == Estimate(0.25, 0.0, 1.0)
    tight = Intervals(np.array([0.5, 0.6]), np.array([0.7, 0.8]), there, there, "betting", 0.05, 1.0)
    assert metric_intervals(disparity(np.array([0.6, 0.7]), there), tight, Estimate(0.6)).nrgc.vacuous is False
    double = Intervals(np.zeros(2), np.full(2, 2.0), there, there, "betting", 0.05, 2.0)
    assert not metric_intervals(disparity(np.array([0.5, 1.5]), there, penalty=1.0), double, Estimate(0.5)).fp.vacuous
    heavy = disparity(np.array([0.25, 0.75]), there, penalty=1.5)
    assert metric_intervals(heavy, box, Estimate(0.25)).fp == Estimate(-0.25, -1.0, 1.0)
    alone = Intervals(np.zeros(1), np.ones(1), there[:1], there[:1], "betting", 0.05, 1.0)
    intervals = metric_intervals(disparity(np.array([0.25]), there[:1]), alone, Estimate(0.25))
    assert intervals.fp == Estimate(0.25, 0.0, 1.0, words, True)
    assert intervals.rdi == Estimate(0.0, 0.0, 0.0)
    short = Intervals(np.zeros(2), np.array([1.0, 0.9]), there, there, "betting", 0.05, 1.0)
    assert not metric_intervals(disparity(np.array([0.25, 0.75]), there), short, Estimate(0.25)).fp.vacuous


@pytest.mark.parametrize(
    ("limits_", "most", "least", "vacuous"),
    [
        ((0.0, 1.0), 1.0, 0.0, True),
        ((9e-13, 1.0 - 9e-13), 1.0, 0.0, True),
        ((2e-12, 1.0), 1.0, 0.0, False),
        ((0.0, 1.0 - 2e-12), 1.0, 0.0, False),
    ],
)
def test_what_covers_the_range(limits_: tuple[float, float], most: float, least: float, vacuous: bool) -> None:
    result = of_one_group(0.5, limits_, bound=most, penalty=-least / most)
    assert (result.value, result.low, result.high, result.vacuous) == (0.5, *limits_, vacuous)
    assert ("whole range" in result.reason) is vacuous


def of_one_group(value: float, limits_: tuple[float, float], *, bound: float, penalty: float = 0.0) -> Estimate:
    """FP of a single group, whose range over the box is the box itself."""
    low, high = (np.array([limit]) for limit in limits_)
    return mi.fp_over(Estimate(value), low, high, bound, penalty)


def test_limits_reach_at_least_to_the_estimate() -> None:
    assert of_one_group(0.0, (0.5, 0.75), bound=1.0) == Estimate(0.0, 0.0, 0.75)
    assert of_one_group(0.5, (0.25, 1.0), bound=1.0) == Estimate(0.5, 0.25, 1.0)
    assert of_one_group(1.0, (0.5, 0.75), bound=2.0) == Estimate(1.0, 0.5, 1.0)
    point = metric_intervals(
        disparity(np.zeros(1), np.ones(1, bool)),
        Intervals(np.zeros(1), np.zeros(1), np.ones(1, bool), np.ones(1, bool), "betting", 0.05, 1.0),
        Estimate(0.0),
    )
    assert point.rdi == Estimate(0.0, 0.0, 0.0), "a point is exact, not vacuous"


def test_aggregates_whole() -> None:
    scores, _ = scored(2)
    result = mi.aggregate_interval(scores, bound=2.0, delta=0.1, seed=6)
    (low,), (high,) = limits(Sample.of(scores, np.zeros(120, int), 1, bound=2.0, seed=6), 0.05, "betting")
    assert result == Estimate(pytest.approx(scores.mean()), pytest.approx(2 * low), pytest.approx(2 * high))
    default = mi.aggregate_interval(scores, bound=2.0, delta=0.1)
    assert default == mi.aggregate_interval(scores, bound=2.0, delta=0.1, seed=0) != result
    assert mi.aggregate_interval(np.zeros(0), bound=2.0, delta=0.1) == Estimate(None, reason="no samples")
    hoeffding = mi.aggregate_interval(scores, bound=2.0, delta=0.1, method="hoeffding", stratified=True)
    half = hoeffding_half_width(120, 0.1, 2.0)
    assert (hoeffding.low, hoeffding.high) == (pytest.approx(scores.mean() - half), pytest.approx(scores.mean() + half))
    exact = mi.aggregate_interval((scores > 1) * 2.0, bound=2.0, delta=0.1, binary=True, stratified=True)
    (k,), n = np.array([(scores > 1).sum()]), np.array(120)
    assert exact.low == pytest.approx(2 * float(clopper_pearson(k, n, 0.05)[0]))
    assert mi.aggregate_interval(np.array([1.0]), bound=2.0, delta=0.1).vacuous


def test_groups_that_touch_are_not_separated() -> None:
    low, high = np.array([0.1, 0.3, 0.31, 0.0, np.nan, 0.05]), np.array([0.3, 0.5, 0.5, 0.1, np.nan, 0.09])
    defined = np.array([True] * 4 + [False, True])
    box = Intervals(low, high, defined, ~defined, "betting", 0.05, 1.0)
    assert mi.not_separated(box, 0) == (1, 3)
    assert mi.not_separated(box, 5) == (3,)
    assert all(type(k) is int for k in mi.not_separated(box, 0))
    assert mi.not_separated(box, 3) == (0, 5)


def test_a_group_of_one_sample_bounds_the_worst_class() -> None:
    scores, groups = np.full(101, 0.9), np.append(np.zeros(100, int), 1)
    interval = mi.weakest_interval(0.9, scores, groups, 2, bound=1.0, delta=0.1)
    alone = mi.weakest_interval(0.9, scores[100:], np.zeros(1, int), 1, bound=1.0, delta=0.1)
    assert interval.low == alone.low < 0.5


def test_the_level_of_exact_limits_for_unequal_means() -> None:
    assert mi.mixed_level(0.05) == pytest.approx(1 - np.exp(-0.05), rel=1e-14)
    assert mi.mixed_level(0.9) == 0.25 and type(mi.mixed_level(0.1)) is float


def test_mixed_samples_change_exact_limits_alone() -> None:
    right, groups = np.tile([1.0, 0.0, 1.0, 1.0], 10), np.arange(40) % 2
    result = mi.weakest_interval(0.5, right, groups, 2, bound=1.0, delta=0.1, binary=True, mixed=True)
    counts = np.array([20, 20])
    low = clopper_pearson(np.array([20, 10]), counts, mi.mixed_level(0.1))[0].min()
    high = clopper_pearson(np.array([20, 10]), counts, mi.mixed_level(0.05))[1].min()
    assert result == Estimate(0.5, pytest.approx(low), pytest.approx(high))
    interval = mi.weakest_interval(0.5, right, groups, 2, bound=1.0, delta=0.1, binary=True)
    assert (
        interval == mi.weakest_interval(0.5, right, groups, 2, bound=1.0, delta=0.1, binary=True, mixed=False) != result
    )
    scores, thirds = scored(3)
    for method in ("hoeffding", "betting"):
        plain, mixed = (
            mi.weakest_interval(0.5, scores, thirds, 3, bound=2.0, delta=0.1, method=method, mixed=how)  # type: ignore[arg-type]
            for how in (False, True)
        )
        assert plain == mixed
