"""RDI, NRGC, WCR and FP against double loops and the published values."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.errors import MeasureError
from services.numerics.disparity import Disparity, disparity, nrgc, rank_weights
from services.numerics.profile import Profile
from services.records import Estimate

MEANS = st.lists(st.floats(0, 1.25), min_size=1, max_size=12)


def all_defined(means: list[float] | np.ndarray):
    return disparity(np.array(means), np.ones(len(means), dtype=bool))


def double_loop(means: list[float]) -> float | None:
    if sum(means) == 0:
        return None
    return sum(abs(a - b) for a in means for b in means) / (2 * len(means) ** 2 * (sum(means) / len(means)))


@given(MEANS)
def test_nrgc_is_the_double_sum(means: list[float]) -> None:
    result, naive = nrgc(np.array(means)), double_loop(means)
    if naive is None:
        assert result is None
    else:
        assert result == pytest.approx(naive, abs=1e-12)
        assert 0 <= result <= (len(means) - 1) / len(means) + 1e-12


@given(MEANS.filter(lambda m: max(m) > 1e-3), st.randoms(use_true_random=False), st.floats(0.1, 10))
def test_order_does_not_matter_and_nrgc_has_no_scale(means: list[float], random, scale: float) -> None:
    mixed = random.sample(means, len(means))
    first, two, scaled = all_defined(means), all_defined(mixed), all_defined(np.array(means) * scale)
    for metric in ("rdi", "nrgc", "wcr", "fp"):
        assert getattr(first, metric).value == pytest.approx(getattr(two, metric).value, abs=1e-12)
    assert scaled.nrgc.value == pytest.approx(first.nrgc.value, abs=1e-9)
    assert scaled.rdi.value == pytest.approx(scale * first.rdi.value, rel=1e-9)


def test_undefined_groups_stay_out_and_are_listed() -> None:
    metrics = disparity(np.array([0.4, math.nan, 0.1, 0.1, math.nan]), np.array([True, False, True, True, False]))
    assert metrics.wcr.value == 0.1
    assert metrics.worst == (2, 3)
    assert metrics.best == (0,)
    assert metrics.worst_first == (2, 3, 0)
    assert metrics.missing == (1, 4)
    assert metrics.rdi.value == pytest.approx(0.3)
    assert metrics.fp.value == pytest.approx(0.2 - 0.5 * 0.3)


def test_undefined_metrics_say_why() -> None:
    nothing = disparity(np.array([math.nan]), np.array([False]))
    assert nothing.rdi.value is nothing.nrgc.value is nothing.wcr.value is nothing.fp.value is None
    assert nothing.wcr.reason == "no group has samples"
    zeros = all_defined([0.0, 0.0, 0.0])
    assert zeros.nrgc.value is None
    assert "0/0" in zeros.nrgc.reason
    assert zeros.rdi.value == zeros.wcr.value == zeros.fp.value == 0.0
    assert zeros.worst == (0, 1, 2)


def test_faults_are_named() -> None:
    with pytest.raises(MeasureError, match="at least 0"):
        all_defined([-0.1, 0.2])
    with pytest.raises(MeasureError, match="finite"):
        all_defined([math.nan, 0.2])
    with pytest.raises(MeasureError, match="penalty"):
        disparity(np.array([0.1]), np.array([True]), penalty=-1.0)
    with pytest.raises(MeasureError, match="shape"):
        disparity(np.array([0.1]), np.array([True, False]))


def test_published_metrics_of_17_models_at_both_temperatures(shared_data: Path) -> None:
    oracle = json.loads((shared_data / "oracles" / "gf_cifar10.json").read_text())
    assert len(oracle["models"]) == 17
    for model in oracle["models"].values():
        for temperature in ("T1", "T2.7"):
            published = model[temperature]
            result = all_defined(published["mean"])
            for metric in ("rdi", "nrgc", "wcr", "fp"):
                assert getattr(result, metric).value == pytest.approx(published[metric], abs=1e-9)
            weights = np.array(model["count"]) / sum(model["count"])
            assert weights @ published["mean"] == pytest.approx(published["aggregate"], abs=1e-9)
        assert oracle["classes"][all_defined(model["T1"]["mean"]).worst[0]] == model["T1"]["wcr_class"]


@pytest.mark.parametrize(
    ("sigma", "worst", "low", "high", "gini"), [("0.25", 3, 0.209, 0.602, 0.189), ("0.50", 4, 0.191, 0.903, 0.258)]
)
def test_certified_radii_of_randomized_smoothing(
    shared_data: Path, sigma: str, worst: int, low: float, high: float, gini: float
) -> None:
    """The mean over *all* samples of a class, a wrong or abstained one counting as radius 0 (RS)."""
    table = np.genfromtxt(shared_data / "oracles" / f"rs_cifar10_sigma{sigma}.tsv", names=True, delimiter="\t")
    radius = np.where(table["correct"] == 1, table["radius"], 0.0)
    profile = Profile.from_scores(radius, table["label"].astype(int), 10, bound=4.0)
    metrics = disparity(profile.means, profile.defined)
    assert metrics.worst == (worst,)
    assert metrics.wcr.value == pytest.approx(low, abs=5e-4)
    assert metrics.wcr.value + metrics.rdi.value == pytest.approx(high, abs=5e-4)
    assert metrics.nrgc.value == pytest.approx(gini, abs=5e-4)


def test_a_disparity_whole() -> None:
    metrics = disparity(np.array([0.5, math.nan, 0.25, 0.25, 0.5]), np.array([1, 0, 1, 1, 1], dtype=bool), penalty=2.0)
    assert metrics == Disparity(
        rdi=Estimate(0.25),
        nrgc=Estimate(pytest.approx(double_loop([0.5, 0.25, 0.25, 0.5]))),
        wcr=Estimate(0.25),
        fp=Estimate(0.375 - 0.5),
        worst=(2, 3),
        best=(0, 4),
        worst_first=(2, 3, 0, 4),
        missing=(1,),
        penalty=2.0,
    )
    assert all(type(k) is int for k in metrics.worst + metrics.best + metrics.worst_first + metrics.missing)


def test_a_disparity_of_nothing_whole() -> None:
    none = Estimate(None, reason="no group has samples")
    nothing = disparity(np.zeros(2), np.zeros(2, dtype=bool), penalty=0.0)
    assert nothing == Disparity(none, none, none, none, (), (), (), (0, 1), 0.0)
    zeros = all_defined([0.0, 0.0])
    reason = "all group means are 0, so the inequality is 0/0"
    zero = Estimate(0.0)
    assert zeros == Disparity(zero, Estimate(None, reason=reason), zero, zero, (0, 1), (0, 1), (0, 1), (), 0.5)
    assert all_defined([0.1]).nrgc == Estimate(0.0)


def test_ties_are_relative_to_the_largest_mean() -> None:
    result = all_defined([1.0, 1.0 + 9e-13, 10.0 - 9e-12, 10.0])
    assert (result.worst, result.best) == ((0, 1), (2, 3))
    apart = all_defined([1.0, 1.0 + 2e-11, 10.0 - 2e-11, 10.0])
    assert (apart.worst, apart.best) == ((0,), (3,))
    just = all_defined([1.0, 1.0 + 5e-12, 10.0 - 5e-12, 10.0])
    assert (just.worst, just.best) == ((0, 1), (2, 3))


def test_single_precision_is_widened_before_anything_is_added() -> None:
    means = np.float32([0.1, 0.2, 0.7])
    assert nrgc(means) == nrgc(means.astype(np.float64))
    assert all_defined(means) == all_defined(means.astype(np.float64))


def test_groups_that_tie_come_by_index_however_many() -> None:
    assert all_defined([0.5, 0.25] * 50).worst_first == (*range(1, 100, 2), *range(0, 100, 2))


def test_weights_of_ranks() -> None:
    assert rank_weights(4).tolist() == [-3.0, -1.0, 1.0, 3.0]
    assert rank_weights(1).tolist() == [0.0]


def test_integers_are_means_too() -> None:
    metrics = disparity(np.array([1, 3, 9]), np.array([1, 1, 0]))
    assert (metrics.rdi.value, metrics.missing, metrics.worst_first) == (2.0, (2,), (0, 1))
    assert nrgc(np.array([1, 3])) == 0.25
    assert nrgc(np.zeros(0)) is None
