"""Intervals of RDI, NRGC, WCR and FP: exact ranges over boxes against enumeration, and coverage."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from services.errors import MeasureError
from services.numerics import metric_intervals as mi
from services.numerics.disparity import disparity, nrgc
from services.numerics.intervals import (
    Intervals,
    Sample,
    clopper_pearson,
    hoeffding_half_width,
    limits,
    simultaneous,
)
from services.numerics.profile import Profile
from services.numerics.scores import GREAT_BOUND
from services.records import Estimate

BOXES = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 0.5)), min_size=2, max_size=6).map(
    lambda rows: (np.array([r[0] for r in rows]), np.array([r[0] + r[1] for r in rows]))
)


def corners(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    return np.array([np.where(bits, high, low) for bits in itertools.product([False, True], repeat=low.size)])


def inside(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    rng = np.random.default_rng(0)
    points = low + rng.random((100, low.size)) * (high - low)
    clipped = np.clip(np.linspace(0, high.max(), 100)[:, None], low, high)
    return np.vstack([points, clipped, corners(low, high)])


@settings(deadline=None)
@given(BOXES)
def test_rdi_range_is_exact(box: tuple[np.ndarray, np.ndarray]) -> None:
    low, high = box
    found = mi.rdi_range(low, high)
    spread = np.ptp(inside(low, high), axis=1)
    assert found[1] == pytest.approx(spread.max(), abs=1e-12)
    assert found[0] <= spread.min() + 1e-12
    best = np.clip(0.5 * (low.max() + high.min()), low, high)
    assert found[0] == pytest.approx(max(0.0, low.max() - high.min()), abs=1e-12) == pytest.approx(np.ptp(best))


@settings(deadline=None)
@given(BOXES, st.sampled_from([0.0, 0.1, 0.5, 2.0]))
def test_fp_range_is_exact(box: tuple[np.ndarray, np.ndarray], penalty: float) -> None:
    low, high = box
    found = mi.fp_range(low, high, penalty)
    points = inside(low, high)
    values = points.mean(axis=1) - penalty * np.ptp(points, axis=1)
    assert found[0] == pytest.approx(values.min(), abs=1e-12)
    caps = np.linspace(low.max(), max(high.max(), low.max()), 400)
    raised = np.minimum(high[None, :], caps[:, None])
    fine = (raised.mean(axis=1) - penalty * np.ptp(raised, axis=1)).max()
    assert found[1] >= max(values.max(), fine) - 1e-12
    assert found[1] == pytest.approx(fine, abs=6e-3)


@settings(deadline=None, max_examples=30)
@given(BOXES)
def test_nrgc_range_is_exact(box: tuple[np.ndarray, np.ndarray]) -> None:
    low, high = box
    found = mi.nrgc_range(low, high)
    values = [value for point in inside(low, high) if (value := nrgc(point)) is not None]
    if found is None:
        assert high.max() == 0
        return
    top = [value for point in corners(low, high) if (value := nrgc(point)) is not None]
    assert found[1] == pytest.approx(max(top), abs=1e-9)
    assert found[0] <= min(values) + 1e-12
    if low.any():  # for every mean the most equal point of the box is a level, cut to the box
        levels = np.union1d(np.linspace(low.min(), high.max(), 400), np.concatenate([low, high]))
        flat = [value for level in levels if (value := nrgc(np.clip(level, low, high))) is not None]
        assert found[0] == pytest.approx(min(flat), abs=5e-3)
        assert found[0] <= min(flat) + 1e-12
    assert mi._relaxed_nrgc(low / high.max(), high / high.max()) >= found[1] - 1e-9


def test_nrgc_relaxation_is_close_for_many_groups() -> None:
    rng = np.random.default_rng(0)
    mean = rng.beta(2, 3, 150)
    low, high = np.maximum(mean - 0.1, 0), mean + 0.1
    exact, relaxed = mi._largest_nrgc(low, high), mi._relaxed_nrgc(low, high)
    assert exact - 1e-9 <= relaxed <= exact + 2e-3


def intervals_of(scores: np.ndarray, groups: np.ndarray, k: int, **options) -> tuple:
    profile = Profile.from_scores(scores, groups, k, bound=GREAT_BOUND)
    found = disparity(profile.means, profile.defined)
    box = simultaneous(scores, groups, k, bound=GREAT_BOUND, delta=0.05, **options)
    wcr = mi.wcr_interval(found.wcr.value, scores, groups, k, bound=GREAT_BOUND, delta=0.05, **options)
    return found, box, mi.metric_intervals(found, box, wcr)


def test_rdi_of_hoeffding_is_proposition_2() -> None:
    """K = 1000, n = 50: 0.408 a class and 0.816 for RDI, where GF's appendix says 0.35."""
    assert 2 * hoeffding_half_width(50, 0.05 / 1000, GREAT_BOUND) == pytest.approx(0.816, abs=1e-3)
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(4), 2000)
    scores = np.clip(rng.normal(0.5 + 0.1 * groups, 0.05), 0, GREAT_BOUND)
    found, _, intervals = intervals_of(scores, groups, 4, method="hoeffding")
    width = 2 * hoeffding_half_width(2000, 0.05 / 4, GREAT_BOUND)
    assert intervals.rdi.high == pytest.approx(found.rdi.value + width)
    assert intervals.rdi.low == pytest.approx(found.rdi.value - width)


def test_wcr_of_all_17_published_profiles_is_certified_above_zero(shared_data: Path) -> None:
    """Beta samples with the published means and standard deviations: betting certifies all, Hoeffding not all."""
    oracle = json.loads((shared_data / "oracles" / "gf_cifar10.json").read_text())
    certified = {"betting": 0, "hoeffding": 0}
    for name, model in sorted(oracle["models"].items()):
        rng = np.random.default_rng(len(name))
        mean, std = (np.array(model["T1"][key]) / GREAT_BOUND for key in ("mean", "std"))
        weight = mean * (1 - mean) / std**2 - 1
        groups = np.repeat(np.arange(10), 1000)
        scores = rng.beta((mean * weight)[groups], ((1 - mean) * weight)[groups]) * GREAT_BOUND
        found, box, intervals = intervals_of(scores, groups, 10, method="betting")
        gap = intervals.wcr.value - intervals.wcr.low
        assert 0.003 < gap < 0.03
        certified["betting"] += intervals.wcr.low > 0
        printed = hoeffding_half_width(1000, 0.05 / 10, GREAT_BOUND)
        certified["hoeffding"] += found.wcr.value - printed > 0
        assert intervals.wcr.low >= box.low.min()
    assert certified["betting"] == 17
    assert certified["hoeffding"] < 14


def test_estimates_lie_inside_and_undefined_says_why() -> None:
    rng = np.random.default_rng(5)
    groups = rng.integers(0, 5, 200)
    groups = np.where(groups == 3, 0, groups)
    found, box, intervals = intervals_of(rng.beta(0.4, 3, 200), groups, 5)
    for estimate in (intervals.rdi, intervals.nrgc, intervals.wcr, intervals.fp):
        assert estimate.low <= estimate.value <= estimate.high
    assert found.missing == (3,)
    zeros, _, none = intervals_of(np.zeros(40), np.arange(40) % 4, 4)
    assert none.nrgc.value is None
    assert "0/0" in none.nrgc.reason
    assert none.wcr.value == none.wcr.low == 0.0
    assert zeros.rdi.value == 0.0
    _, _, empty = intervals_of(np.zeros(0), np.zeros(0, dtype=int), 3)
    assert empty.rdi.value is empty.nrgc.value is empty.fp.value is None
    assert empty.wcr == mi.wcr_interval(0.0, np.zeros(0), np.zeros(0, dtype=int), 3, bound=1.0, delta=0.1)
    assert box.defined.sum() == 4


def test_vacuous_is_said() -> None:
    _, box, intervals = intervals_of(np.array([0.2, 0.9, 0.4]), np.array([0, 1, 2]), 3, method="hoeffding")
    assert box.vacuous.all()
    assert intervals.rdi.vacuous
    assert "whole range" in intervals.rdi.reason
    _, sharp, clear = intervals_of(np.full(3000, 0.5), np.arange(3000) % 3, 3)
    assert not sharp.vacuous.any()
    assert not clear.rdi.vacuous


def test_not_separated_lists_overlaps() -> None:
    low, high = np.array([0.1, 0.2, 0.35, np.nan]), np.array([0.3, 0.4, 0.5, np.nan])
    defined = np.array([True, True, True, False])
    box = Intervals(low, high, defined, np.zeros(4, dtype=bool), "betting", 0.05, 1.0)
    assert mi.not_separated(box, 0) == (1,)
    assert mi.not_separated(box, 2) == (1,)
    with pytest.raises(MeasureError, match="group with samples"):
        mi.not_separated(box, 3)


def test_aggregate_interval() -> None:
    rng = np.random.default_rng(6)
    scores = rng.beta(1, 3, 2000)
    plain = mi.aggregate_interval(scores, bound=1.0, delta=0.05)
    strata = mi.aggregate_interval(scores, bound=1.0, delta=0.05, stratified=True)
    assert plain.value == pytest.approx(scores.mean())
    assert plain.low < plain.value < plain.high
    assert strata.low < plain.low
    same = mi.aggregate_interval(scores, bound=1.0, delta=0.05, method="empirical-bernstein")
    assert (strata.low, strata.high) == (same.low, same.high)
    ones = mi.aggregate_interval(np.ones(10), bound=1.0, delta=0.05, binary=True)
    assert ones.low == pytest.approx(0.025**0.1)
    assert mi.aggregate_interval(np.zeros(0), bound=1.0, delta=0.05).value is None


ALONE, TIED = (0.1, 0.5, 0.6, 0.7), (0.1, 0.1, 0.12, 0.5)
"""Class means: one clear worst class, whose own bound decides; and worst classes that tie."""


def missed(replications: int, delta: float, profile_of: tuple[float, ...]) -> dict[str, int]:
    """In how many simulated data sets the limits of WCR, and the box's of RDI, NRGC and FP, miss the truth."""
    rng = np.random.default_rng(8)
    means = np.array(profile_of)
    truth = disparity(means, np.ones(4, dtype=bool))
    groups = np.repeat(np.arange(4), 60)
    wrong = dict.fromkeys(("low", "high", "box"), 0)
    for _ in range(replications):
        x = rng.beta(means[groups], 1 - means[groups])
        profile = Profile.from_scores(x, groups, 4, bound=1.0)
        wcr = mi.wcr_interval(float(profile.means.min()), x, groups, 4, bound=1.0, delta=delta)
        box = simultaneous(x, groups, 4, bound=1.0, delta=delta)
        all_of_them = mi.metric_intervals(disparity(profile.means, profile.defined), box, wcr)
        wrong["low"] += wcr.low > 0.1
        wrong["high"] += wcr.high < 0.1
        wrong["box"] += any(
            not getattr(all_of_them, m).low <= getattr(truth, m).value <= getattr(all_of_them, m).high
            for m in ("rdi", "nrgc", "fp")
        )
    return wrong


def allowed(replications: int, delta: float) -> float:
    """The misses that limits which err with probability exactly delta exceed once in 100,000 runs."""
    return float(binom.isf(1e-5, replications, delta))


@pytest.mark.parametrize("profile_of", [ALONE, TIED])
def test_wcr_and_disparity_coverage_short(profile_of: tuple[float, ...]) -> None:
    assert max(missed(80, 0.3, profile_of).values()) <= allowed(80, 0.3)


def test_a_wcr_bound_that_is_too_tight_would_be_caught() -> None:
    assert missed(300, 0.9, ALONE)["low"] > allowed(300, 0.3)


def poisson_binomial(p: np.ndarray) -> np.ndarray:
    """(n + 1,) chances of 0, ..., n successes of independent coins of unequal chances."""
    chances = np.ones(1)
    for one in p:
        chances = np.convolve(chances, [1.0 - one, one])
    return chances


@pytest.mark.parametrize("delta", [0.01, 0.05, 0.2, 0.4])
def test_exact_wcr_limits_hold_for_samples_of_unequal_means(delta: float) -> None:
    """The chance of a miss, exactly: one sample may differ from the others, or half of them, or one of each kind."""
    worst = {True: 0.0, False: 0.0}
    for n in (2, 12, 40):
        groups = np.zeros(n, dtype=int)
        scores = (np.arange(n)[None, :] < np.arange(n + 1)[:, None]).astype(float)
        found = {
            mixed: [
                mi.wcr_interval(float(row.mean()), row, groups, 1, bound=1.0, delta=delta, binary=True, mixed=mixed)
                for row in scores
            ]
            for mixed in (True, False)
        }
        edge = delta * (1 + 0.45 * delta)
        for p in (edge, 1.0 - edge, *np.linspace(0.005, 0.995, 60)):
            for high, rest in ((1, 0.0), (1, 1.0), (n // 2, 0.0), (n // 2, 1.0), (1, 0.01), (1, 0.5)):
                chance = np.where(np.arange(n) < high, p, rest)
                counts = poisson_binomial(chance)
                for mixed, each in found.items():
                    low = counts @ [one.low > chance.mean() + 1e-12 for one in each]
                    up = counts @ [one.high < chance.mean() - 1e-12 for one in each]
                    worst[mixed] = max(worst[mixed], float(low), float(up))
    assert worst[True] <= delta + 1e-9
    assert worst[False] > delta + 1e-9


@pytest.mark.parametrize("delta", [0.01, 0.05, 0.2, 0.49])
def test_an_exact_interval_of_unequal_means_keeps_delta_with_both_sides(delta: float) -> None:
    for n in (1, 2, 12, 40):
        limits = [
            mi.aggregate_interval(
                (np.arange(n) < k).astype(float), bound=1.0, delta=delta, binary=True, stratified=True
            )
            for k in range(n + 1)
        ]
        for p in np.linspace(0.005, 0.995, 100):
            for rest in (0.0, 0.01, 0.5, 1.0):
                chance = np.where(np.arange(n) < max(1, n // 2 if rest == 0.5 else 1), p, rest)
                wrong = [not one.low - 1e-12 <= chance.mean() <= one.high + 1e-12 for one in limits]
                assert poisson_binomial(chance) @ wrong <= delta + 1e-9


# --- every part alone --------------------------------------------------------------------------------------------


def test_ranges_by_hand() -> None:
    low, high = np.array([0.1, 0.2, 0.6]), np.array([0.3, 0.8, 0.7])
    assert mi.rdi_range(low, high) == (pytest.approx(0.3), pytest.approx(0.7))
    assert mi.rdi_range(low[:2], high[:2]) == (0.0, pytest.approx(0.7))
    assert mi.rdi_range(low[:1], high[:1]) == (0.0, 0.0)
    assert mi.rdi_range(np.array([0.5, 0.5]), np.array([0.5, 0.5])) == (0.0, 0.0)
    assert mi.fp_range(low[:1], high[:1], 0.5) == (0.1, 0.3)
    assert mi.fp_range(low, high, 0.0) == (pytest.approx(0.3), pytest.approx(0.6))
    assert mi.fp_range(low, high, 1.0) == (pytest.approx(1 / 3 - 0.6), pytest.approx((0.3 + 0.6 + 0.6) / 3 - 0.3))


def test_best_pairs_are_of_different_groups() -> None:
    assert mi._best_pair(np.array([1.0, 5.0, 2.0]), np.array([1.0, 9.0, 3.0])) == 3.0
    assert mi._best_pair(np.array([0.0, 5.0]), np.array([0.0, 1.0])) == 1.0


def test_nrgc_of_one_group_and_of_none() -> None:
    assert mi.nrgc_range(np.array([0.2]), np.array([0.4])) == (0.0, 0.0)
    assert mi.nrgc_range(np.zeros(3), np.zeros(3)) is None
    assert mi.nrgc_range(np.zeros(2), np.array([0.0, 1e-310])) == (0.0, pytest.approx(0.5))
    assert mi.nrgc_range(np.zeros(2), np.ones(2)) == (0.0, 0.5)
    assert mi._relaxed_nrgc(np.zeros(2), np.ones(2)) == 0.5
    assert mi._relaxed_nrgc(np.zeros(3), np.ones(3)) == 2 / 3
    point = np.array([0.1, 0.4])
    assert mi._largest_nrgc(point, point) > nrgc(point), "rounded outwards"
    assert mi.nrgc_range(point, point) == (pytest.approx(0.3), pytest.approx(0.3))


def test_the_relaxation_takes_over_beyond_a_number_of_groups() -> None:
    rng = np.random.default_rng(1)
    low = rng.random(12) * 0.3
    high = low + 0.4 * rng.random(12)
    exact, relaxed = mi._largest_nrgc(low, high), mi._relaxed_nrgc(low, high)
    assert exact < relaxed < exact + 0.05
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mi, "_MOST_EXACT", 12)
        assert mi._largest_nrgc(low, high) == exact
        patch.setattr(mi, "_MOST_EXACT", 11)
        assert mi._largest_nrgc(low, high) == relaxed
    assert mi._MOST_EXACT == 200


def test_the_relaxed_gain_by_hand() -> None:
    low, high = np.array([0.1, 0.3, 0.2]), np.array([0.5, 0.6, 0.9])
    assert mi._relaxed_gain(low, high, np.array([-2.0, 1.0, 3.0])) == pytest.approx(-0.2 + 0.6 + 2.7)
    assert mi._relaxed_gain(low, high, np.array([-3.0, -2.0, 0.0])) == pytest.approx(-0.3 - 0.4)


def test_the_relaxed_bound_is_the_least_ratio_without_gain() -> None:
    low, high = np.array([0.1, 0.3, 0.2]), np.array([0.5, 0.6, 0.9])
    found, weights = mi._relaxed_nrgc(low, high), np.array([-2.0, 0.0, 2.0])
    assert mi._relaxed_gain(low, high, weights - 3 * found) <= 0.0
    assert mi._relaxed_gain(low, high, weights - 3 * (found - 1e-11)) > 0.0
    assert mi._relaxed_nrgc(np.zeros(3), np.zeros(3)) == pytest.approx(0.0, abs=1e-11)


def scored(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return 2.0 * rng.beta(2, 3, 120), np.arange(120) % 3


@pytest.mark.parametrize("method", [None, "hoeffding"])
def test_wcr_is_made_of_single_lower_and_joint_upper_limits(method) -> None:
    scores, groups = scored(0)
    least = min(scores[groups == k].mean() for k in range(3))
    found = mi.wcr_interval(least, scores, groups, 4, bound=2.0, delta=0.12, method=method, seed=4)
    sample = Sample.of(scores, groups, 4, bound=2.0, seed=4)
    low = limits(sample, 0.12, method or "betting")[0][:3].min() * 2
    high = limits(sample, 0.04, method or "betting")[1][:3].min() * 2
    assert found == Estimate(least, pytest.approx(low), pytest.approx(high))
    default = mi.wcr_interval(least, scores, groups, 3, bound=2.0, delta=0.12)
    assert default == mi.wcr_interval(least, scores, groups, 3, bound=2.0, delta=0.12, seed=0)
    assert default.low != found.low


def test_wcr_of_right_or_wrong_is_exact() -> None:
    right, groups = np.tile([1.0, 0.0, 1.0, 1.0], 10), np.arange(40) % 2
    found = mi.wcr_interval(0.5, right, groups, 2, bound=1.0, delta=0.1, binary=True)
    low, high = clopper_pearson(np.array([20, 10]), np.array([20, 20]), 0.1)
    joint = clopper_pearson(np.array([20, 10]), np.array([20, 20]), 0.05)[1]
    assert found == Estimate(0.5, pytest.approx(low.min()), pytest.approx(joint.min()))
    assert high.min() < joint.min()


def test_an_estimate_is_never_outside_its_limits() -> None:
    scores, groups = scored(1)
    assert mi.wcr_interval(0.0, scores, groups, 3, bound=2.0, delta=0.1).low == 0.0
    assert mi.wcr_interval(2.0, scores, groups, 3, bound=2.0, delta=0.1).high == 2.0


def test_a_whole_set_of_intervals() -> None:
    low, high = np.array([0.2, 0.4, np.nan, 0.9]), np.array([0.6, 0.8, np.nan, 1.6])
    defined = np.array([True, True, False, True])
    box = Intervals(low, high, defined, ~defined, "betting", 0.05, 2.0)
    found = disparity(np.array([0.4, 0.6, 0.0, 1.2]), defined, penalty=0.25)
    wcr = Estimate(0.4, 0.25, 0.5)
    kept = low[defined], high[defined]
    gini, fp, rdi = mi.nrgc_range(*kept), mi.fp_range(*kept, 0.25), mi.rdi_range(*kept)
    assert mi.metric_intervals(found, box, wcr) == mi.MetricIntervals(
        rdi=Estimate(pytest.approx(0.8), *rdi),
        nrgc=Estimate(found.nrgc.value, *gini),  # type: ignore[misc]
        wcr=wcr,
        fp=Estimate(found.fp.value, *fp),
    )
    none = Estimate(None, reason="no group has samples")
    empty = Intervals(low, high, defined & False, ~defined, "betting", 0.05, 2.0)
    assert mi.metric_intervals(found, empty, wcr) == mi.MetricIntervals(none, none, none, none)


def test_undefined_nrgc_keeps_its_reason() -> None:
    low, high, there = np.zeros(2), np.ones(2), np.ones(2, dtype=bool)
    zeros = disparity(np.zeros(2), there)
    box = Intervals(low, high, there, there, "betting", 0.05, 1.0)
    reason = "all group means are 0, so the inequality is 0/0"
    assert mi.metric_intervals(zeros, box, Estimate(0.0)).nrgc == Estimate(None, reason=reason)
    flat = Intervals(low, low, there, there, "betting", 0.05, 1.0)
    found = disparity(np.array([0.0, 0.5]), there)
    assert mi.metric_intervals(found, flat, Estimate(0.0)).nrgc == Estimate(None, reason=reason)


def test_vacuous_is_as_wide_as_the_range_of_each_metric() -> None:
    """Two groups in [0, 1]: RDI in [0, 1], NRGC in [0, 1/2], FP = mean - RDI / 2 in [0, 1]."""
    there, words = np.ones(2, dtype=bool), "the interval covers the whole range"
    box = Intervals(np.zeros(2), np.ones(2), there, there, "betting", 0.05, 1.0)
    found = mi.metric_intervals(disparity(np.array([0.25, 0.75]), there), box, Estimate(0.25))
    assert found.rdi == Estimate(0.5, 0.0, 1.0, words, True)
    assert found.nrgc == Estimate(0.25, 0.0, pytest.approx(0.5), words, True)
    assert found.fp == Estimate(0.25, 0.0, 1.0)
    tight = Intervals(np.array([0.5, 0.6]), np.array([0.7, 0.8]), there, there, "betting", 0.05, 1.0)
    assert mi.metric_intervals(disparity(np.array([0.6, 0.7]), there), tight, Estimate(0.6)).nrgc.vacuous is False
    double = Intervals(np.zeros(2), np.full(2, 2.0), there, there, "betting", 0.05, 2.0)
    assert not mi.metric_intervals(
        disparity(np.array([0.5, 1.5]), there, penalty=1.0), double, Estimate(0.5)
    ).fp.vacuous
    heavy = disparity(np.array([0.25, 0.75]), there, penalty=1.5)
    assert mi.metric_intervals(heavy, box, Estimate(0.25)).fp == Estimate(-0.25, -1.0, 1.0)
    alone = Intervals(np.zeros(1), np.ones(1), there[:1], there[:1], "betting", 0.05, 1.0)
    one = mi.metric_intervals(disparity(np.array([0.25]), there[:1]), alone, Estimate(0.25))
    assert one.fp == Estimate(0.25, 0.0, 1.0, words, True)
    assert one.rdi == Estimate(0.0, 0.0, 0.0)
    short = Intervals(np.zeros(2), np.array([1.0, 0.9]), there, there, "betting", 0.05, 1.0)
    assert not mi.metric_intervals(disparity(np.array([0.25, 0.75]), there), short, Estimate(0.25)).fp.vacuous


@pytest.mark.parametrize(
    ("limits_", "most", "least", "vacuous"),
    [
        ((0.0, 1.0), 1.0, 0.0, True),
        ((9e-13, 1.0 - 9e-13), 1.0, 0.0, True),
        ((2e-12, 1.0), 1.0, 0.0, False),
        ((0.0, 1.0 - 2e-12), 1.0, 0.0, False),
        ((-0.5, 1.0), 1.0, -0.5, True),
        ((-0.4, 1.0), 1.0, -0.5, False),
    ],
)
def test_what_covers_the_range(limits_: tuple[float, float], most: float, least: float, vacuous: bool) -> None:
    reason = "the interval covers the whole range" if vacuous else ""
    assert mi._estimate(0.5, limits_, most, least) == Estimate(0.5, *limits_, reason, vacuous)


def test_an_estimate_without_a_value_and_a_point() -> None:
    assert mi._estimate(None, (0.0, 1.0), 1.0) == Estimate(None, reason="no group has samples")
    assert mi._estimate(0.0, (0.0, 0.0), 0.0) == Estimate(0.0, 0.0, 0.0)
    assert mi._estimate(0.0, (0.5, 0.75), 1.0) == Estimate(0.0, 0.0, 0.75)
    assert mi._estimate(0.5, (0.25, 1.0), 1.0) == Estimate(0.5, 0.25, 1.0)
    assert mi._estimate(1.0, (0.5, 0.75), 2.0) == Estimate(1.0, 0.5, 1.0)


def test_aggregates_whole() -> None:
    scores, _ = scored(2)
    found = mi.aggregate_interval(scores, bound=2.0, delta=0.1, seed=6)
    (low,), (high,) = limits(Sample.of(scores, np.zeros(120, int), 1, bound=2.0, seed=6), 0.05, "betting")
    assert found == Estimate(pytest.approx(scores.mean()), pytest.approx(2 * low), pytest.approx(2 * high))
    default = mi.aggregate_interval(scores, bound=2.0, delta=0.1)
    assert default == mi.aggregate_interval(scores, bound=2.0, delta=0.1, seed=0) != found
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
    found = mi.wcr_interval(0.9, scores, groups, 2, bound=1.0, delta=0.1)
    alone = mi.wcr_interval(0.9, scores[100:], np.zeros(1, int), 1, bound=1.0, delta=0.1)
    assert found.low == alone.low < 0.5


def test_the_level_of_exact_limits_for_unequal_means() -> None:
    assert mi.mixed_level(0.05) == pytest.approx(1 - np.exp(-0.05), rel=1e-14)
    assert mi.mixed_level(0.9) == 0.25 and type(mi.mixed_level(0.1)) is float


def test_mixed_samples_change_exact_limits_alone() -> None:
    right, groups = np.tile([1.0, 0.0, 1.0, 1.0], 10), np.arange(40) % 2
    found = mi.wcr_interval(0.5, right, groups, 2, bound=1.0, delta=0.1, binary=True, mixed=True)
    counts = np.array([20, 20])
    low = clopper_pearson(np.array([20, 10]), counts, mi.mixed_level(0.1))[0].min()
    high = clopper_pearson(np.array([20, 10]), counts, mi.mixed_level(0.05))[1].min()
    assert found == Estimate(0.5, pytest.approx(low), pytest.approx(high))
    one = mi.wcr_interval(0.5, right, groups, 2, bound=1.0, delta=0.1, binary=True)
    assert one == mi.wcr_interval(0.5, right, groups, 2, bound=1.0, delta=0.1, binary=True, mixed=False) != found
    scores, thirds = scored(3)
    for method in ("hoeffding", "betting"):
        plain, mixed = (
            mi.wcr_interval(0.5, scores, thirds, 3, bound=2.0, delta=0.1, method=method, mixed=how)  # type: ignore[arg-type]
            for how in (False, True)
        )
        assert plain == mixed
