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

from benchmarks.coverage.joined import metric_intervals
from services.errors import MeasureError
from services.numerics.disparity import disparity, nrgc
from services.numerics.great import GREAT_BOUND
from services.numerics.intervals import disparity as mi
from services.numerics.intervals.means import Intervals, hoeffding_half_width, simultaneous
from services.numerics.profile import Profile

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
    result = mi.rdi_range(low, high)
    spread = np.ptp(inside(low, high), axis=1)
    assert result[1] == pytest.approx(spread.max(), abs=1e-12)
    assert result[0] <= spread.min() + 1e-12
    best = np.clip(0.5 * (low.max() + high.min()), low, high)
    assert result[0] == pytest.approx(max(0.0, low.max() - high.min()), abs=1e-12) == pytest.approx(np.ptp(best))


@settings(deadline=None)
@given(BOXES, st.sampled_from([0.0, 0.1, 0.5, 2.0]))
def test_fp_range_is_exact(box: tuple[np.ndarray, np.ndarray], penalty: float) -> None:
    low, high = box
    result = mi.fp_range(low, high, penalty)
    points = inside(low, high)
    values = points.mean(axis=1) - penalty * np.ptp(points, axis=1)
    assert result[0] == pytest.approx(values.min(), abs=1e-12)
    caps = np.linspace(low.max(), max(high.max(), low.max()), 400)
    raised = np.minimum(high[None, :], caps[:, None])
    fine = (raised.mean(axis=1) - penalty * np.ptp(raised, axis=1)).max()
    assert result[1] >= max(values.max(), fine) - 1e-12
    assert result[1] == pytest.approx(fine, abs=6e-3)


@settings(deadline=None, max_examples=30)
@given(BOXES)
def test_nrgc_range_is_exact(box: tuple[np.ndarray, np.ndarray]) -> None:
    low, high = box
    result = mi.nrgc_range(low, high)
    values = [value for point in inside(low, high) if (value := nrgc(point)) is not None]
    if result is None:
        assert high.max() == 0
        return
    top = [value for point in corners(low, high) if (value := nrgc(point)) is not None]
    assert result[1] == pytest.approx(max(top), abs=1e-9)
    assert result[0] <= min(values) + 1e-12
    if low.any():  # for every mean the most equal point of the box is a level, cut to the box
        levels = np.union1d(np.linspace(low.min(), high.max(), 400), np.concatenate([low, high]))
        flat = [value for level in levels if (value := nrgc(np.clip(level, low, high))) is not None]
        assert result[0] == pytest.approx(min(flat), abs=5e-3)
        assert result[0] <= min(flat) + 1e-12
    assert mi.relaxed_nrgc(low / high.max(), high / high.max()) >= result[1] - 1e-9


def test_nrgc_relaxation_is_close_for_many_groups() -> None:
    rng = np.random.default_rng(0)
    mean = rng.beta(2, 3, 150)
    low, high = np.maximum(mean - 0.1, 0), mean + 0.1
    exact, relaxed = mi.largest_nrgc(low, high), mi.relaxed_nrgc(low, high)
    assert exact - 1e-9 <= relaxed <= exact + 2e-3


def intervals_of(scores: np.ndarray, groups: np.ndarray, k: int, **options) -> tuple:
    profile = Profile.from_scores(scores, groups, k, bound=GREAT_BOUND)
    metrics = disparity(profile.means, profile.defined)
    box = simultaneous(scores, groups, k, bound=GREAT_BOUND, delta=0.05, **options)
    wcr = mi.weakest_interval(metrics.wcr.value, scores, groups, k, bound=GREAT_BOUND, delta=0.05, **options)
    return metrics, box, metric_intervals(metrics, box, wcr)


def test_rdi_of_hoeffding_is_proposition_2() -> None:
    """K = 1000, n = 50: 0.408 a class and 0.816 for RDI, where GF's appendix says 0.35."""
    assert 2 * hoeffding_half_width(50, 0.05 / 1000, GREAT_BOUND) == pytest.approx(0.816, abs=1e-3)
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(4), 2000)
    scores = np.clip(rng.normal(0.5 + 0.1 * groups, 0.05), 0, GREAT_BOUND)
    result, _, intervals = intervals_of(scores, groups, 4, method="hoeffding")
    width = 2 * hoeffding_half_width(2000, 0.05 / 4, GREAT_BOUND)
    assert intervals.rdi.high == pytest.approx(result.rdi.value + width)
    assert intervals.rdi.low == pytest.approx(result.rdi.value - width)


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
        result, box, intervals = intervals_of(scores, groups, 10, method="betting")
        gap = intervals.wcr.value - intervals.wcr.low
        assert 0.003 < gap < 0.03
        certified["betting"] += intervals.wcr.low > 0
        printed = hoeffding_half_width(1000, 0.05 / 10, GREAT_BOUND)
        certified["hoeffding"] += result.wcr.value - printed > 0
        assert intervals.wcr.low >= box.low.min()
    assert certified["betting"] == 17
    assert certified["hoeffding"] < 14


def test_estimates_lie_inside_and_undefined_says_why() -> None:
    rng = np.random.default_rng(5)
    groups = rng.integers(0, 5, 200)
    groups = np.where(groups == 3, 0, groups)
    result, box, intervals = intervals_of(rng.beta(0.4, 3, 200), groups, 5)
    for estimate in (intervals.rdi, intervals.nrgc, intervals.wcr, intervals.fp):
        assert estimate.low <= estimate.value <= estimate.high
    assert result.missing == (3,)
    zeros, _, none = intervals_of(np.zeros(40), np.arange(40) % 4, 4)
    assert none.nrgc.value is None
    assert "0/0" in none.nrgc.reason
    assert none.wcr.value == none.wcr.low == 0.0
    assert zeros.rdi.value == 0.0
    _, _, empty = intervals_of(np.zeros(0), np.zeros(0, dtype=int), 3)
    assert empty.rdi.value is empty.nrgc.value is empty.fp.value is None
    assert empty.wcr == mi.weakest_interval(0.0, np.zeros(0), np.zeros(0, dtype=int), 3, bound=1.0, delta=0.1)
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
        wcr = mi.weakest_interval(float(profile.means.min()), x, groups, 4, bound=1.0, delta=delta)
        box = simultaneous(x, groups, 4, bound=1.0, delta=delta)
        all_of_them = metric_intervals(disparity(profile.means, profile.defined), box, wcr)
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


@pytest.mark.long
def test_a_wcr_bound_that_is_too_tight_would_be_caught() -> None:
    assert missed(300, 0.9, ALONE)["low"] > allowed(300, 0.3)


def poisson_binomial(p: np.ndarray) -> np.ndarray:
    """(n + 1,) chances of 0, ..., n successes of independent coins of unequal chances."""
    chances = np.ones(1)
    for each in p:
        chances = np.convolve(chances, [1.0 - each, each])
    return chances


@pytest.mark.parametrize("delta", [0.01, 0.05, 0.2, 0.4])
def test_exact_wcr_limits_hold_for_samples_of_unequal_means(delta: float) -> None:
    """The chance of a miss, exactly: one sample may differ from the others, or half of them, or one of each kind."""
    worst = {True: 0.0, False: 0.0}
    for n in (2, 12, 40):
        groups = np.zeros(n, dtype=int)
        scores = (np.arange(n)[None, :] < np.arange(n + 1)[:, None]).astype(float)
        by_name = {
            mixed: [
                mi.weakest_interval(float(row.mean()), row, groups, 1, bound=1.0, delta=delta, binary=True, mixed=mixed)
                for row in scores
            ]
            for mixed in (True, False)
        }
        edge = delta * (1 + 0.45 * delta)
        for p in (edge, 1.0 - edge, *np.linspace(0.005, 0.995, 60)):
            for high, rest in ((1, 0.0), (1, 1.0), (n // 2, 0.0), (n // 2, 1.0), (1, 0.01), (1, 0.5)):
                chance = np.where(np.arange(n) < high, p, rest)
                counts = poisson_binomial(chance)
                for mixed, each in by_name.items():
                    low = counts @ [first.low > chance.mean() + 1e-12 for first in each]
                    up = counts @ [first.high < chance.mean() - 1e-12 for first in each]
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
                wrong = [not each.low - 1e-12 <= chance.mean() <= each.high + 1e-12 for each in limits]
                assert poisson_binomial(chance) @ wrong <= delta + 1e-9
