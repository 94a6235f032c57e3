"""Worse, better or not separated: exact p-values, and no false flag more often than promised."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

from services.errors import MeasureError
from services.numerics.change import change_of_the_worst, changes, decide, worst_change
from services.numerics.intervals import betting
from services.numerics.intervals.means import Sample, limits
from services.numerics.paired import holm
from services.records import Estimate

CLASSES = 6


def family(rng: np.random.Generator, fall: float = 0.0, n: int = 40) -> list[tuple[str, float]]:
    """Flags of two models over `CLASSES` classes and their whole, by a 0/1 and a bounded score.

    Each sample's scores before and after are exchangeable, so nothing changed, but for class 0 when they `fall`.
    """
    labels = np.repeat(np.arange(CLASSES), n)
    worse, better = [], []
    for _ in range(2):
        right = rng.random((2, labels.size)) < rng.uniform(0.3, 0.9, CLASSES)[labels]
        scores = right * rng.beta(2, 1, (2, labels.size))
        hit = (labels == 0) & (rng.random(labels.size) < fall)
        for (before, after), binary in ((right.astype(float), True), (scores, False)):
            after = np.where(hit, 0.0, after)
            for groups, count in ((labels, CLASSES), (np.zeros_like(labels), 1)):
                tests = changes(before, after, groups, count, bound=1.0, alpha=0.001, binary=binary)
                worse += list(tests.worse)
                better += list(tests.better)
    return decide(worse, better, 0.1)


def false_flags(replications: int) -> int:
    rng = np.random.default_rng(11)
    return sum(any(flag != "not separated" for flag, _ in family(rng)) for _ in range(replications))


def test_without_a_change_flags_are_rarer_than_alpha() -> None:
    assert false_flags(80) <= 80 * 0.1 + 2 * np.sqrt(80 * 0.09)


@pytest.mark.slow
def test_without_a_change_flags_are_rarer_than_alpha_over_many_fleets() -> None:
    assert false_flags(3000) <= 3000 * 0.1 + 3 * np.sqrt(3000 * 0.09)


def test_a_class_that_fell_is_found_and_no_other() -> None:
    result = family(np.random.default_rng(5), fall=0.9, n=120)
    assert {index for index, (flag, _) in enumerate(result) if flag == "worse"} >= {0, 7, 14, 21}
    assert all(flag != "better" for flag, _ in result)


def test_the_exact_p_values_are_those_of_the_binomial_test() -> None:
    rng = np.random.default_rng(0)
    before, after = (rng.random((2, 300)) < 0.6).astype(float)
    groups = rng.integers(0, 3, 300)
    tests = changes(before, after, groups, 4, bound=1.0, alpha=0.05, binary=True)
    for k in range(3):
        mine = groups == k
        up, down = ((after > before) & mine).sum(), ((after < before) & mine).sum()
        assert tests.worse[k] == pytest.approx(binomtest(up, up + down, 0.5, alternative="less").pvalue)
        assert tests.better[k] == pytest.approx(binomtest(up, up + down, 0.5, alternative="greater").pvalue)
        assert tests.difference[k] == pytest.approx(after[mine].mean() - before[mine].mean())
        assert tests.low[k] <= tests.difference[k] <= tests.high[k]
    assert tests.counts[3] == 0 and np.isnan(tests.worse[3]) and np.isnan(tests.low[3])


def test_a_stratified_whole_is_rejected_exactly_where_its_limit_says_so() -> None:
    rng = np.random.default_rng(1)
    before, after = rng.random((2, 400)) * np.array([[1.0], [0.4]])
    whole = np.zeros(400, dtype=np.int64)
    tests = changes(before, after, whole, 1, bound=1.0, alpha=0.01, stratified=True)
    assert tests.test == "empirical Bernstein" and tests.worse[0] < 0.01 < tests.better[0] == 1.0
    sample = Sample.of((after - before + 1) / 2, whole, 1, bound=1.0, seed=0)
    for level, excluded in ((tests.worse[0] * 1.001, True), (tests.worse[0] * 0.999, False)):
        assert (limits(sample, level, "empirical-bernstein")[1][0] < 0.5) is np.bool_(excluded)


def test_each_direction_has_its_hypothesis_and_the_smaller_decides() -> None:
    worse, better = [1e-6, 0.9, 0.4, np.nan], [1.0, 1e-5, 0.5, np.nan]
    assert [flag for flag, _ in decide(worse, better, 0.05)] == ["worse", "better", "not separated", "not separated"]
    output = holm((1e-6, 0.9, 0.4, 1.0, 1e-5, 0.5))
    assert [p for _, p in decide(worse, better, 0.05)] == [output[0], output[4], 1.0, 1.0]


def test_the_worst_change_is_covered_from_both_sides() -> None:
    """The lower limit above the truth, and the upper one below it, at most alpha of the time each."""
    rng = np.random.default_rng(8)
    losses, labels = np.array([0.0, 0.1, 0.1]), np.repeat(np.arange(3), 60)
    too_high, too_low = 0, 0
    for _ in range(100):
        before = rng.choice([0.5, 1.0], labels.size)
        after = np.where(rng.random(labels.size) < 2 * losses[labels], before - 0.5, before)
        change = worst_change(before, after, labels, 4, bound=1.0, alpha=0.1)
        assert change.low <= change.value <= change.high
        too_high += change.low > -0.1
        too_low += change.high < -0.1
    assert max(too_high, too_low) <= 10 + 2 * np.sqrt(9)
    assert worst_change(np.zeros(0), np.zeros(0), np.zeros(0, int), 3, bound=1.0, alpha=0.1).value is None


def test_identical_scores_are_no_change() -> None:
    scores = np.random.default_rng(2).random(50)
    tests = changes(scores, scores, np.zeros(50, dtype=int), 1, bound=1.0, alpha=0.05)
    assert (tests.worse[0], tests.better[0], tests.difference[0]) == (1.0, 1.0, 0.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"after": np.zeros(3)}, "2 scores as before"),
        ({"after": np.array([0.5, 1.0]), "binary": True}, "all 0 or 1 for an exact test"),
        ({"after": np.array([0.5, 1.5])}, "numbers in"),
        ({"alpha": 0.0}, "strictly between"),
    ],
)
def test_mistakes(change: dict[str, object], message: str) -> None:
    fields = {"before": np.zeros(2), "after": np.zeros(2), "groups": np.zeros(2, dtype=int), "n_groups": 1}
    with pytest.raises(MeasureError, match=message):
        changes(**{**fields, "bound": 1.0, "alpha": 0.05, **change})  # type: ignore[arg-type]


BEFORE, AFTER = np.array([0.2, 0.6, 1.2, 2.0, 0.4, 1.8]), np.array([0.6, 0.2, 1.6, 1.8, 0.0, 2.0])
LABELS = np.array([0, 0, 0, 2, 2, 2])


def test_all_of_the_changes_by_hand() -> None:
    tests = changes(BEFORE, AFTER, LABELS, 3, bound=2.0, alpha=0.1)
    sample = Sample.of((AFTER - BEFORE + 2) / 4, LABELS, 3, bound=1.0, seed=0)
    low, high = limits(sample, 0.1, "betting")
    assert tests.counts.tolist() == [3, 0, 3]
    nan = np.nan
    np.testing.assert_allclose(tests.before, [2 / 3, nan, 1.4])
    np.testing.assert_allclose(tests.after, [0.8, nan, 3.8 / 3])
    np.testing.assert_allclose(tests.difference, [0.4 / 3, nan, -0.4 / 3], rtol=1e-12)
    np.testing.assert_allclose(tests.low, [2 * (2 * low[0] - 1), nan, 2 * (2 * low[2] - 1)])
    np.testing.assert_allclose(tests.high, [2 * (2 * high[0] - 1), nan, 2 * (2 * high[2] - 1)])
    assert np.isnan(tests.worse).tolist() == np.isnan(tests.better).tolist() == [False, True, False]
    assert tests.test == "betting"


def long(seed: int, n: int = 80) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    before = rng.random(n)
    return before, np.clip(before + rng.normal(0.05, 0.2, n), 0, 1), rng.integers(0, 2, n)


@pytest.mark.parametrize("seed", [0, 3, None])
def test_p_values_of_betting_are_capitals_against_no_difference(seed: int | None) -> None:
    before, after, groups = long(1)
    tests = changes(before, after, groups, 2, bound=1.0, alpha=0.01, seed=seed)
    sample = Sample.of((after - before + 1) / 2, groups, 2, bound=1.0, seed=seed)
    for block, values, mask in sample.blocks():
        half = np.full(block.size, 0.5)
        mirrored = np.where(mask, 1 - values, 0.0)
        np.testing.assert_allclose(tests.better[block], np.exp(betting.log_p_value(values, mask, half, 0.01)))
        np.testing.assert_allclose(tests.worse[block], np.exp(betting.log_p_value(mirrored, mask, half, 0.01)))
        low = betting.lower_bound(values, mask, 0.01)
        np.testing.assert_allclose(tests.low[block], np.minimum(2 * low - 1, tests.difference[block]), atol=1e-9)


def test_the_order_of_betting_is_seeded_with_0() -> None:
    before, after, groups = long(2)
    default, zero = (
        changes(before, after, groups, 2, bound=1.0, alpha=0.01),
        changes(before, after, groups, 2, bound=1.0, alpha=0.01, seed=0),
    )
    np.testing.assert_array_equal(default.better, zero.better)
    other = changes(before, after, groups, 2, bound=1.0, alpha=0.01, seed=5)
    assert (default.better != other.better).all()


def test_stratified_scores_need_no_one_mean_difference_also_when_they_are_0_or_1() -> None:
    before, after, groups = long(4)
    both = changes(
        (before > 0.5) * 1.0, (after > 0.5) * 1.0, groups, 2, bound=1.0, alpha=0.05, binary=True, stratified=True
    )
    assert both.test == "empirical Bernstein"
    sample = Sample.of((1.0 * (after > 0.5) - (before > 0.5) + 1) / 2, groups, 2, bound=1.0, seed=0)
    np.testing.assert_allclose(both.low, 2 * limits(sample, 0.05, "empirical-bernstein")[0] - 1)
    exact = changes((before > 0.5) * 1.0, (after > 0.5) * 1.0, groups, 2, bound=1.0, alpha=0.05, binary=True)
    assert exact.test == "exact McNemar"
    np.testing.assert_allclose(exact.low, 2 * limits(sample, 0.05, "betting")[0] - 1)


def test_the_inverted_theorem_says_nothing_for_one_pair_or_no_difference() -> None:
    tests = changes(np.array([0.9]), np.array([0.1]), np.array([0]), 1, bound=1.0, alpha=0.05, stratified=True)
    assert (tests.worse[0], tests.better[0]) == (1.0, 1.0)
    two = changes(
        np.array([0.9, 0.9]), np.array([0.1, 0.1]), np.zeros(2, int), 1, bound=1.0, alpha=0.05, stratified=True
    )
    root = (0.4 * 3 / 7) ** 0.5
    assert (two.worse[0], two.better[0]) == (pytest.approx(min(1.0, 2 * np.exp(-(root**2)))), 1.0)
    many = changes(
        np.tile([0.9, 0.5], 20), np.tile([0.1, 0.4], 20), np.zeros(40, int), 1, bound=1.0, alpha=0.05, stratified=True
    )
    turned = changes(
        np.tile([0.1, 0.4], 20), np.tile([0.9, 0.5], 20), np.zeros(40, int), 1, bound=1.0, alpha=0.05, stratified=True
    )
    assert (turned.worse[0], turned.better[0]) == (1.0, pytest.approx(many.worse[0]))
    nothing = changes(np.zeros(0), np.zeros(0), np.zeros(0, int), 1, bound=1.0, alpha=0.05, stratified=True)
    assert np.isnan(nothing.worse[0]) and np.isnan(nothing.better[0])
    away, variance = 0.225, np.var(np.tile([0.1, 0.45], 20), ddof=1)
    a, b = 7 / (3 * 39), np.sqrt(2 * variance / 40)
    x = (-b + np.sqrt(b * b + 4 * a * away)) / (2 * a)
    assert (many.worse[0], many.better[0]) == (pytest.approx(2 * np.exp(-(x**2))), 1.0)


def test_the_worst_change_is_made_of_single_lower_and_joint_upper_limits() -> None:
    before, after, _ = long(6, 90)
    groups = np.arange(90) % 3
    change = worst_change(before, after, groups, 4, bound=1.0, alpha=0.1, seed=7)
    own, joint = (changes(before, after, groups, 4, bound=1.0, alpha=level, seed=7) for level in (0.1, 0.1 / 3))
    assert change == Estimate(np.nanmin(own.difference), np.nanmin(own.low), np.nanmin(joint.high))
    default = worst_change(before, after, groups, 4, bound=1.0, alpha=0.1)
    assert default == worst_change(before, after, groups, 4, bound=1.0, alpha=0.1, seed=0) != change
    single = worst_change(
        np.array([0.9, 0.1, 0.2]), np.array([0.1, 0.2, 0.3]), np.array([0, 1, 1]), 2, bound=1.0, alpha=0.1
    )
    assert single.value == pytest.approx(-0.8)
    none = worst_change(np.zeros(0), np.zeros(0), np.zeros(0, int), 3, bound=1.0, alpha=0.1)
    assert none == Estimate(None, reason="no samples in common")


def test_flags_at_the_level_and_with_both_directions_alike() -> None:
    assert decide([0.05], [0.6], 0.1) == [("worse", 0.1)]
    assert decide([0.6], [0.05], 0.1) == [("better", 0.1)]
    assert decide([0.051], [0.6], 0.1) == [("not separated", 0.102)]
    assert decide([0.6], [0.051], 0.1) == [("not separated", 0.102)]
    assert decide([0.01], [0.01], 0.1) == [("worse", 0.02)]


def test_as_many_worse_as_better_are_needed() -> None:
    with pytest.raises(ValueError, match="argument 2"):
        decide([0.1, 0.2], [0.3], 0.1)


def test_means_before_and_after_of_a_single_pair() -> None:
    tests = changes(np.array([0.25]), np.array([0.75]), np.array([0]), 1, bound=1.0, alpha=0.1)
    assert (tests.before[0], tests.after[0], tests.difference[0]) == (0.25, 0.75, 0.5)
    assert tests.before.dtype == np.float64


def repaired(
    rng: np.random.Generator, n: int, kind: str, weakest: tuple[int, int] | None = None
) -> tuple[Estimate, float]:
    """What the worst of six classes gained: an estimate, and the truth."""
    old = np.array([0.2, 0.22, 0.3, 0.6, 0.8, 0.9])
    moves = {
        "none": np.zeros(6),
        "repaired": np.array([0.15, 0.1, 0.0, -0.1, -0.2, -0.1]),
        "turned": np.array([0.2, 0.1, -0.2, 0.0, 0.0, 0.0]),
        "lost": np.array([-0.1, 0.0, 0.0, 0.0, 0.0, 0.0]),
    }
    new = old + moves[kind]
    labels, shared = np.repeat(np.arange(6), n), rng.random(6 * n)
    own = np.where(rng.random(6 * n) < 0.7, shared, rng.random(6 * n))
    before, after = (shared < old[labels]).astype(float), (own < new[labels]).astype(float)
    how: dict[str, Any] = {"bound": 1.0, "alpha": 0.1, "binary": True, "weakest": weakest}
    return change_of_the_worst(before, after, labels, 6, **how), float(new.min() - old.min())


def misses(kind: str, n: int, tries: int, weakest: tuple[int, int] | None = None) -> int:
    """Of the two limits the one that misses more often."""
    rng = np.random.default_rng(3)
    known = [repaired(rng, n, kind, weakest) for _ in range(tries)]
    return max(sum(e.low > truth for e, truth in known), sum(e.high < truth for e, truth in known))


@pytest.mark.parametrize("kind", ["none", "repaired", "turned", "lost"])
def test_the_limits_of_what_the_worst_class_gained_hold(kind: str) -> None:
    assert misses(kind, 40, 30) <= 30 * 0.1


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["none", "repaired", "turned", "lost"])
@pytest.mark.parametrize("n", [40, 300])
@pytest.mark.parametrize("weakest", [None, (0, 2), (1, 4)])
def test_the_limits_of_what_the_worst_class_gained_hold_in_many_audits(
    kind: str, n: int, weakest: tuple[int, int] | None
) -> None:
    assert misses(kind, n, 600, weakest) <= 600 * 0.1


def test_other_samples_that_say_which_class_is_the_weakest_make_the_limits_sharper() -> None:
    alone, _ = repaired(np.random.default_rng(0), 400, "repaired")
    chosen, truth = repaired(np.random.default_rng(0), 400, "repaired", (0, 2))
    assert alone.low is not None and chosen.low is not None and alone.low < chosen.low < truth
    nowhere, _ = repaired(np.random.default_rng(0), 400, "repaired", (3, 5))
    assert nowhere.low is not None and nowhere.low < alone.low, "any group is valid, a strong one says little"


def test_a_class_that_was_far_from_the_worst_may_fall_as_far() -> None:
    estimate, truth = repaired(np.random.default_rng(0), 2000, "repaired")
    assert estimate.low is not None and 0.02 < estimate.low < truth == pytest.approx(0.1)
    lost, _ = repaired(np.random.default_rng(0), 2000, "lost")
    assert lost.high is not None and lost.high < 0.02, "another class may have been the worst"


def test_the_worst_without_samples_is_undefined_and_clusters_widen() -> None:
    empty = np.array([])
    nothing = change_of_the_worst(empty, empty, empty.astype(int), 3, bound=1.0, alpha=0.1)
    assert nothing.value is None and nothing.reason
    labels = np.repeat([0, 1], 200)
    before, after = np.tile([0.0, 1.0], 200), np.where(np.arange(400) % 10 == 0, 1.0, np.tile([0.0, 1.0], 200))
    alone = change_of_the_worst(before, after, labels, 2, bound=1.0, alpha=0.1, binary=True)
    grouped = change_of_the_worst(before, after, labels, 2, bound=1.0, alpha=0.1, clusters=np.arange(400) // 20)
    assert alone.low is not None and grouped.low is not None and grouped.low < alone.low
