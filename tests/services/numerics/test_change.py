"""Worse, better or not separated: exact p-values, and no false flag more often than promised."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest

from services.errors import MeasureError
from services.numerics.change import changes, decide, worst_change
from services.numerics.intervals import Sample, limits
from services.numerics.paired import holm

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
                found = changes(before, after, groups, count, bound=1.0, alpha=0.001, binary=binary)
                worse += list(found.worse)
                better += list(found.better)
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
    found = family(np.random.default_rng(5), fall=0.9, n=120)
    assert {index for index, (flag, _) in enumerate(found) if flag == "worse"} >= {0, 7, 14, 21}
    assert all(flag != "better" for flag, _ in found)


def test_the_exact_p_values_are_those_of_the_binomial_test() -> None:
    rng = np.random.default_rng(0)
    before, after = (rng.random((2, 300)) < 0.6).astype(float)
    groups = rng.integers(0, 3, 300)
    found = changes(before, after, groups, 4, bound=1.0, alpha=0.05, binary=True)
    for k in range(3):
        mine = groups == k
        up, down = ((after > before) & mine).sum(), ((after < before) & mine).sum()
        assert found.worse[k] == pytest.approx(binomtest(up, up + down, 0.5, alternative="less").pvalue)
        assert found.better[k] == pytest.approx(binomtest(up, up + down, 0.5, alternative="greater").pvalue)
        assert found.difference[k] == pytest.approx(after[mine].mean() - before[mine].mean())
        assert found.low[k] <= found.difference[k] <= found.high[k]
    assert found.counts[3] == 0 and np.isnan(found.worse[3]) and np.isnan(found.low[3])


def test_a_stratified_whole_is_rejected_exactly_where_its_limit_says_so() -> None:
    rng = np.random.default_rng(1)
    before, after = rng.random((2, 400)) * np.array([[1.0], [0.4]])
    whole = np.zeros(400, dtype=np.int64)
    found = changes(before, after, whole, 1, bound=1.0, alpha=0.01, stratified=True)
    assert found.test == "empirical Bernstein" and found.worse[0] < 0.01 < found.better[0] == 1.0
    sample = Sample.of((after - before + 1) / 2, whole, 1, bound=1.0, seed=0)
    for level, excluded in ((found.worse[0] * 1.001, True), (found.worse[0] * 0.999, False)):
        assert (limits(sample, level, "empirical-bernstein")[1][0] < 0.5) is np.bool_(excluded)


def test_each_direction_has_its_hypothesis_and_the_smaller_decides() -> None:
    worse, better = [1e-6, 0.9, 0.4, np.nan], [1.0, 1e-5, 0.5, np.nan]
    assert [flag for flag, _ in decide(worse, better, 0.05)] == ["worse", "better", "not separated", "not separated"]
    told = holm((1e-6, 0.9, 0.4, 1.0, 1e-5, 0.5))
    assert [p for _, p in decide(worse, better, 0.05)] == [told[0], told[4], 1.0, 1.0]


def test_the_worst_change_is_covered_from_both_sides() -> None:
    """The lower limit above the truth, and the upper one below it, at most alpha of the time each."""
    rng = np.random.default_rng(8)
    losses, labels = np.array([0.0, 0.1, 0.1]), np.repeat(np.arange(3), 60)
    too_high, too_low = 0, 0
    for _ in range(100):
        before = rng.choice([0.5, 1.0], labels.size)
        after = np.where(rng.random(labels.size) < 2 * losses[labels], before - 0.5, before)
        found = worst_change(before, after, labels, 4, bound=1.0, alpha=0.1)
        assert found.low <= found.value <= found.high
        too_high += found.low > -0.1
        too_low += found.high < -0.1
    assert max(too_high, too_low) <= 10 + 2 * np.sqrt(9)
    assert worst_change(np.zeros(0), np.zeros(0), np.zeros(0, int), 3, bound=1.0, alpha=0.1).value is None


def test_identical_scores_are_no_change() -> None:
    scores = np.random.default_rng(2).random(50)
    found = changes(scores, scores, np.zeros(50, dtype=int), 1, bound=1.0, alpha=0.05)
    assert (found.worse[0], found.better[0], found.difference[0]) == (1.0, 1.0, 0.0)


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
    given = {"before": np.zeros(2), "after": np.zeros(2), "groups": np.zeros(2, dtype=int), "n_groups": 1}
    with pytest.raises(MeasureError, match=message):
        changes(**{**given, "bound": 1.0, "alpha": 0.05, **change})  # type: ignore[arg-type]
