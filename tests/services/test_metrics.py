"""The table of metrics: each against its definition, with and without groups that have no score; the weakest tenth."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.metrics import METRICS, OF_SERIES, Profiled, Unknown, estimates
from services.numerics.disparity import disparity, nrgc
from services.numerics.intervals.disparity import weakest_interval, widened
from services.numerics.intervals.means import simultaneous
from services.numerics.profile import Profile
from services.records import Estimate


def profiled(
    scores: np.ndarray, codes: np.ndarray, groups: int, *, binary: bool = True, delta: float = 0.1
) -> Profiled:
    how = {"bound": 1.0, "delta": delta, "method": None, "binary": binary, "seed": 0}
    profile = Profile.from_scores(scores, codes, groups, bound=1.0)
    metrics = disparity(profile.means, profile.defined)
    box = simultaneous(scores, codes, groups, **how)
    return Profiled(scores, codes, scores, profile.means, profile.defined, metrics, box, False, False, how, how)


def drawn(p: np.ndarray, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    codes = np.repeat(np.arange(len(p)), n)
    return (rng.random(len(codes)) < p[codes]).astype(np.float64), codes


@given(st.integers(1, 45), st.integers(0, 2**32 - 1))
def test_the_weakest_tenth_is_the_mean_of_the_smallest_means(groups: int, seed: int) -> None:
    scores, codes = drawn(np.random.default_rng(seed).random(groups), 5, np.random.default_rng(seed + 1))
    result = estimates(profiled(scores, codes, groups))["p10"]
    means = sorted(scores.reshape(groups, 5).mean(axis=1))
    assert result.value == pytest.approx(np.mean(means[: -(-groups // 10)]))
    assert result.low is not None and result.high is not None and result.low <= result.value <= result.high


def test_of_up_to_ten_groups_it_is_the_worst() -> None:
    scores, codes = drawn(np.linspace(0.5, 0.9, 10), 40, np.random.default_rng(3))
    result = estimates(profiled(scores, codes, 10))
    assert result["p10"] == result["wcr"]


def test_groups_without_samples_are_in_no_tenth() -> None:
    scores, codes = drawn(np.linspace(0.1, 0.9, 20), 10, np.random.default_rng(3))
    result = estimates(profiled(scores, codes, 30))["p10"]
    assert result.value == pytest.approx(np.sort(scores.reshape(20, 10).mean(axis=1))[:2].mean())
    assert estimates(profiled(scores[:0], codes[:0], 3))["p10"].value is None


@pytest.mark.parametrize(
    "p",
    [np.full(40, 0.8), np.r_[np.full(4, 0.5), np.full(36, 0.95)], np.linspace(0.4, 0.99, 40)],
    ids=["equal", "four weak", "spread"],
)
def test_each_limit_of_the_weakest_tenth_misses_at_most_delta(p: np.ndarray) -> None:
    rng, delta, runs, n = np.random.default_rng(11), 0.1, 400, 30
    truth, misses = np.sort(p)[:4].mean(), np.zeros(2)
    for _ in range(runs):
        scores, codes = drawn(p, n, rng)
        value = np.sort(scores.reshape(40, n).mean(axis=1))[:4].mean()
        interval = weakest_interval(value, scores, codes, 40, bound=1.0, delta=delta, count=4, binary=True)
        assert interval.low is not None and interval.high is not None
        misses += interval.low > truth, interval.high < truth
    assert (misses / runs <= delta + 3 * np.sqrt(delta * (1 - delta) / runs)).all()


def test_its_lower_limit_pays_for_its_own_groups_only() -> None:
    """Of 1,000 classes the tenth is certified far above what the box of all of them would certify."""
    scores, codes = drawn(np.full(1000, 0.9), 50, np.random.default_rng(5))
    data = profiled(scores, codes, 1000)
    result, box = estimates(data)["p10"], np.sort(data.box.low)[:100].mean()
    assert result.low is not None and result.low > box + 0.02


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=14),
    st.integers(1, 2),
    st.sampled_from([0.0, 0.5, 2.0]),
    st.integers(0, 2**32 - 1),
)
def test_groups_without_a_score_may_have_any_mean(
    box: list[tuple[float, float]], unknown: int, penalty: float, seed: int
) -> None:
    """The limits hold every profile of the box whatever the unknown groups' means are."""
    sides = np.sort(np.array(box), axis=1)
    low, high = widened(*(np.r_[side, np.full(unknown, np.nan)] for side in sides.T), bound=1.0)
    points = low + np.random.default_rng(seed).random((50, len(low))) * (high - low)
    tenth = -(-len(low) // 10)
    truths = {
        "rdi": np.ptp(points, axis=1),
        "nrgc": [value for row in points if (value := nrgc(row)) is not None],
        "wcr": points.min(axis=1),
        "p10": np.sort(points, axis=1)[:, :tenth].mean(axis=1),
        "fp": points.mean(axis=1) - penalty * np.ptp(points, axis=1),
    }
    for name, values in truths.items():
        judge = METRICS[name].unknown
        assert judge is not None
        result = judge(Unknown(Estimate(0.5), low, high, 1.0, penalty))
        if len(values) and result.value is not None:
            assert result.low is not None and result.high is not None
            assert result.low <= min(values) + 1e-9 and max(values) <= result.high + 1e-9, name


def test_what_the_known_groups_prove_stays_proven() -> None:
    low, high = widened(np.array([0.9, 0.1, np.nan]), np.array([1.0, 0.2, np.nan]), 1.0)
    rdi, wcr = (METRICS[name].unknown for name in ("rdi", "wcr"))
    assert rdi is not None and wcr is not None
    gap = rdi(Unknown(Estimate(0.8, 0.7, 0.9), low, high, 1.0, 0.5))
    worst = wcr(Unknown(Estimate(0.15, 0.1, 0.18), low, high, 1.0, 0.5))
    assert (gap.low, gap.high) == (pytest.approx(0.7), 1.0)
    assert (worst.low, worst.high) == (0.0, 0.18)


def test_every_metric_of_a_series_has_words_a_direction_and_both_functions() -> None:
    for metric in OF_SERIES:
        assert metric.phrase and metric.meaning and metric.better in ("higher", "lower") and metric.unknown is not None
