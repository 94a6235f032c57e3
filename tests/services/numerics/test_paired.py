"""Paired comparison: decisions, multiplicity, and McNemar's exact test as a cross-check."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom, binomtest
from statsmodels.stats.multitest import multipletests

from services.errors import MeasureError
from services.numerics.intervals import betting
from services.numerics.intervals.means import Sample, limits
from services.numerics.paired import Paired, holm, paired
from services.records import Estimate


def zeros(n: int) -> np.ndarray:
    return np.zeros(n, dtype=int)


def test_unchanged_scores_are_not_inferior() -> None:
    x = np.random.default_rng(0).random(2000)
    found = paired(x, x, zeros(2000), 1, bound=1.0, alpha=0.05, margin=0.01)
    assert found.overall.value == pytest.approx(0, abs=1e-12)
    assert -0.01 < found.overall.low <= 0 <= found.overall.high < 0.01
    assert found.non_inferior is True
    assert found.p_values[0] < 0.05


def test_a_clear_loss_fails_and_few_samples_decide_nothing() -> None:
    rng = np.random.default_rng(1)
    before = rng.uniform(0.4, 0.8, 3000)
    after = np.clip(before - 0.2 * rng.random(3000), 0, 1)
    assert paired(before, after, zeros(3000), 1, bound=1.0, alpha=0.05, margin=0.02).non_inferior is False
    few = paired(before[:10], after[:10], zeros(10), 1, bound=1.0, alpha=0.05, margin=0.1)
    assert few.non_inferior is None
    assert few.p_values[0] > 0.05


def test_binary_scores_agree_with_mcnemar() -> None:
    """Margin 0: betting and McNemar's exact test see the same evidence of a gain, within the price of betting."""
    rng = np.random.default_rng(2)
    for gain in (0.0, 0.02, 0.08):
        before = (rng.random(3000) < 0.7).astype(float)
        after = np.where(rng.random(3000) < gain, 1.0, before)
        after = np.where(rng.random(3000) < 0.01, 0.0, after)
        up, down = int(((after == 1) & (before == 0)).sum()), int(((after == 0) & (before == 1)).sum())
        exact = binomtest(up, up + down, 0.5, alternative="greater").pvalue
        found = paired(before, after, zeros(3000), 1, bound=1.0, alpha=0.05)
        assert found.overall.value == pytest.approx((up - down) / 3000)
        if exact < 1e-6:
            assert found.p_values[0] < 0.01
        if exact > 0.2:
            assert found.p_values[0] > 0.05


def test_type_one_error_with_ties_short() -> None:
    """At the boundary, a loss of exactly the margin is passed as non-inferior at most alpha of the time."""
    rng = np.random.default_rng(3)
    wrong, below, replications = 0, 0, 100
    for _ in range(replications):
        before = rng.choice([0.5, 0.9], 80)
        after = before - 0.4 * (rng.random(80) < 0.25)
        found = paired(before, after, zeros(80), 1, bound=1.0, alpha=0.1, margin=0.1)
        wrong += found.non_inferior is True
        below += found.p_values[0] <= 0.1
    assert max(wrong, below) <= binom.isf(1e-5, replications, 0.1)


def test_groups_have_their_own_answers() -> None:
    rng = np.random.default_rng(4)
    groups = np.repeat([0, 1, 3], 1500)
    before = rng.uniform(0.3, 0.6, groups.size)
    after = before - 0.25 * (groups == 1)
    found = paired(before, after, groups, 4, bound=1.0, alpha=0.05, margin=0.05)
    assert found.groups[2].value is None
    assert found.p_values[2] is found.adjusted[2] is None
    assert found.groups[1].high < -0.05
    assert found.groups[0].low > -0.05
    assert found.adjusted[0] < 0.05 < found.adjusted[1]
    assert all(a >= p for a, p in zip(found.adjusted, found.p_values, strict=True) if p is not None)


def test_holm_against_statsmodels() -> None:
    p = np.array([0.01, 0.04, 0.03, 0.2, 0.005])
    np.testing.assert_allclose(holm(tuple(p)), multipletests(p, method="holm")[1])
    assert holm((None, 0.02, None)) == (None, 0.02, None)
    assert holm(()) == ()


def test_faults_are_named() -> None:
    x = np.array([0.1, 0.2])
    with pytest.raises(MeasureError, match="pair the audits"):
        paired(x, x[:1], zeros(1), 1, bound=1.0, alpha=0.05)
    with pytest.raises(MeasureError, match="margin"):
        paired(x, x, zeros(2), 1, bound=1.0, alpha=0.05, margin=-0.1)
    with pytest.raises(MeasureError, match="before: expected numbers"):
        paired(x * 10, x, zeros(2), 1, bound=1.0, alpha=0.05)


def pairs(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    before = 2.0 * rng.random(90)
    return before, np.clip(before + rng.normal(0.1, 0.3, 90), 0, 2), np.arange(90) % 3


def test_a_comparison_whole() -> None:
    before, after, groups = pairs(0)
    found = paired(before, after, groups, 4, bound=2.0, alpha=0.1, margin=0.05, seed=3)
    scaled = (after - before + 2) / 4
    whole = Sample.of(scaled, zeros(90), 1, bound=1.0, seed=3)
    parts = Sample.of(scaled, groups, 4, bound=1.0, seed=3)
    (low,), (high,) = limits(whole, 0.1, "betting")
    assert found.overall == Estimate(
        pytest.approx((after - before).mean()), pytest.approx(2 * (2 * low - 1)), pytest.approx(2 * (2 * high - 1))
    )
    lows, highs = limits(parts, 0.1 / 3, "betting")
    for k in range(3):
        mine = groups == k
        assert found.groups[k] == Estimate(
            pytest.approx((after - before)[mine].mean()),
            pytest.approx(2 * (2 * lows[k] - 1)),
            pytest.approx(2 * (2 * highs[k] - 1)),
        )
    assert found.groups[3] == Estimate(None, reason="no samples in common")
    for block, values, mask in parts.blocks():
        logs = betting.log_p_value(values, mask, np.full(block.size, (2 - 0.05) / 4), 0.1 / 3)
        for k, log in zip(block, logs, strict=True):
            assert found.p_values[k] == pytest.approx(np.exp(log)) and type(found.p_values[k]) is float
    assert (found.p_values[3], found.adjusted, found.margin, found.alpha) == (None, holm(found.p_values), 0.05, 0.1)


def test_no_margin_and_seed_0_unless_said_otherwise() -> None:
    before, after, groups = pairs(1)
    default = paired(before, after, groups, 3, bound=2.0, alpha=0.1)
    assert default == paired(before, after, groups, 3, bound=2.0, alpha=0.1, margin=0.0, seed=0)
    other = paired(before, after, groups, 3, bound=2.0, alpha=0.1, seed=1)
    assert other.overall.low != default.overall.low and other.groups[0].low != default.groups[0].low


def test_nothing_in_common_whole() -> None:
    none = paired(np.zeros(0), np.zeros(0), zeros(0), 1, bound=1.0, alpha=0.05)
    nothing = Estimate(None, reason="no samples in common")
    assert none == Paired(nothing, (nothing,), (None,), (None,), 0.0, 0.05)
    assert none.non_inferior is None


def test_an_interval_over_the_whole_range_is_vacuous() -> None:
    found = paired(np.array([0.5]), np.array([0.5]), zeros(1), 1, bound=1.0, alpha=0.05)
    assert found.overall == Estimate(0.0, -1.0, 1.0, vacuous=True)
    ends = paired(np.array([0.0, 1.0]), np.array([1.0, 0.0]), np.arange(2), 2, bound=1.0, alpha=0.9)
    assert [group.vacuous for group in ends.groups] == [False, False]


@pytest.mark.parametrize(
    ("low", "high", "told"),
    [
        (-0.1, 0.5, True),
        (-0.11, 0.5, None),
        (-0.5, -0.1, None),
        (-0.5, -0.11, False),
        (None, 0.1, None),
        (0.1, None, None),
    ],
)
def test_the_decision_at_the_margin(low: float | None, high: float | None, told: bool | None) -> None:
    assert Paired(Estimate(0.0, low, high), (), (), (), 0.1, 0.05).non_inferior is told


def test_holm_never_falls_and_never_exceeds_one() -> None:
    assert holm((0.5, 0.01, 0.6, None)) == (1.0, 0.03, 1.0, None)
    assert holm((0.03, 0.02)) == (0.04, 0.04)
    assert all(type(p) is float for p in holm((0.03, 0.02)))


def test_the_margin_may_be_anything_below_the_bound() -> None:
    x = np.array([0.1, 0.2])
    assert paired(x, x, zeros(2), 1, bound=1.5, alpha=0.05, margin=1.4).margin == 1.4


def test_one_group_is_the_whole_and_one_pair_is_a_group() -> None:
    before, after, groups = pairs(2)
    alone = paired(before, after, zeros(90), 1, bound=2.0, alpha=0.1)
    assert alone.groups == (alone.overall,)
    groups = np.append(zeros(89), 1)
    found = paired(before, after, groups, 2, bound=2.0, alpha=0.1)
    sample = Sample.of((after - before + 2) / 4, groups, 2, bound=1.0, seed=0)
    assert found.groups[0].low == pytest.approx(2 * (2 * limits(sample, 0.05, "betting")[0][0] - 1))
