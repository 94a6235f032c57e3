"""Group fairness: against loops, fairlearn on every pair, and coverage by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from fairlearn.metrics import (
    demographic_parity_difference,
    equal_opportunity_difference,
    equalized_odds_difference,
)
from oracles.fairlearn_metrics import group_fairness
from statsmodels.stats.proportion import proportion_confint

from services.errors import MeasureError
from services.numerics.attributes.groupfair import (
    METRICS,
    Gaps,
    GroupCounts,
    class_counts,
    gaps,
    group_counts,
    matrix_counts,
)
from services.records import Estimate

RNG = np.random.default_rng(5)
NAMES = ("size", "positive", "selected", "hits", "alarms")


@pytest.mark.long
def test_the_matrix_equals_the_loop_over_fairlearn() -> None:
    truth, decisions = RNG.integers(0, 2, (2, 300, 6))
    attributes = RNG.integers(0, 2, (300, 5))
    fairness = gaps(matrix_counts(truth, decisions, attributes))
    for t in range(6):
        for a in range(5):
            args, by = (truth[:, t], decisions[:, t]), {"sensitive_features": attributes[:, a]}
            assert fairness["dp"].value[t, a] == pytest.approx(demographic_parity_difference(*args, **by), abs=1e-12)
            assert fairness["eopp"].value[t, a] == pytest.approx(equal_opportunity_difference(*args, **by), abs=1e-12)
            assert fairness["eodd"].value[t, a] == pytest.approx(equalized_odds_difference(*args, **by), abs=1e-12)
            mean = equalized_odds_difference(*args, agg="mean", **by)
            assert fairness["aodd"].value[t, a] == pytest.approx(mean, abs=1e-12)


def test_the_wrapper_gives_fairlearns_values_with_sizes_and_intervals_for_more_than_two_groups() -> None:
    truth, decisions = RNG.integers(0, 2, (2, 400))
    groups = np.array(["a", "b", "c"])[RNG.integers(0, 3, 400)]
    result = group_fairness(truth, decisions, groups)
    assert result.names == ("a", "b", "c")
    assert result.counts.size.sum() == 400
    ours = gaps(result.counts)
    for metric in METRICS:
        estimate = result.metrics[metric]
        assert estimate.value == pytest.approx(float(ours[metric].value), abs=1e-12)
        assert estimate.low <= estimate.value <= estimate.high  # type: ignore[operator]
    assert result.metrics["eodd"].value >= result.metrics["aodd"].value  # type: ignore[operator]


def test_a_group_without_samples_is_undefined_and_never_perfectly_fair() -> None:
    truth, decisions, groups = np.array([1, 0, 1, 0]), np.array([1, 0, 1, 0]), np.array(["a"] * 4)
    result = group_fairness(truth, decisions, groups, names=("a", "b")).metrics
    assert all(result[metric].value is None for metric in METRICS)
    assert result["dp"].reason == "no samples that it needs in b"


def test_a_group_without_positives_leaves_parity_defined_and_opportunity_not() -> None:
    truth, decisions = np.array([1, 0, 0, 0]), np.array([1, 0, 1, 1])
    result = group_fairness(truth, decisions, np.array(["a", "a", "b", "b"])).metrics
    assert result["dp"].value == 0.5
    assert (result["eopp"].value, result["eodd"].value, result["aodd"].value) == (None, 1.0, 1.0)
    third = group_fairness(
        np.array([1, 0, 0, 1, 0]), np.array([1, 0, 1, 0, 0]), np.array(["a", "a", "b", "c", "c"])
    ).metrics
    assert (third["eopp"].value, third["eopp"].reason) == (1.0, "no samples that it needs in b")


def test_unknown_attributes_are_in_neither_group() -> None:
    truth, decisions = np.ones((4, 1), int), np.array([[1], [0], [1], [1]])
    counts = matrix_counts(truth, decisions, np.array([[0], [1], [-1], [1]]))
    assert counts.size[0, 0].tolist() == [1, 2]
    assert gaps(counts)["dp"].value[0, 0] == 0.5


def test_intervals_hold_the_true_gap() -> None:
    """2,000 data sets at once as tasks of one attribute: the misses are at most delta of them, by a wide margin."""
    truth = RNG.random((120, 2000)) < 0.5
    group = np.arange(120) % 2
    chance = np.where(truth, np.array([0.8, 0.6])[group][:, None], np.array([0.1, 0.35])[group][:, None])
    fairness = gaps(matrix_counts(truth, RNG.random((120, 2000)) < chance, group[:, None]), delta=0.1)
    for metric, true in {"eopp": 0.2, "eodd": 0.25, "aodd": 0.225}.items():
        first = fairness[metric]  # type: ignore[index]
        assert ((first.low > true) | (first.high < true)).mean() <= 0.1, metric


def test_few_samples_say_little() -> None:
    counts = group_counts(np.ones(4, int), np.array([1, 1, 1, 1]), np.array([0, 0, 1, 1]), 2)
    estimate = gaps(counts)["dp"].estimate(("a", "b"))
    assert (estimate.value, estimate.low) == (0.0, 0.0)
    assert estimate.high > 0.8  # type: ignore[operator]


def test_what_is_no_decision_is_refused() -> None:
    with pytest.raises(MeasureError, match="decisions: expected 0 and 1, found 1 other"):
        group_counts(np.array([0, 1]), np.array([0, 2]), np.array([0, 1]), 2)
    with pytest.raises(MeasureError, match="one of the groups a, found b"):
        group_fairness(np.array([1]), np.array([1]), np.array(["b"]), names=("a",))
    with pytest.raises(MeasureError, match="-1 for unknown"):
        matrix_counts(np.ones((1, 1)), np.ones((1, 1)), np.array([[3]]))


def test_the_decisions_of_a_classifier_are_counted_without_a_table_of_them() -> None:
    labels, predicted, groups = RNG.integers(0, 7, 500), RNG.integers(-1, 7, 500), RNG.integers(0, 3, 500)
    counts = class_counts(labels, predicted, groups, n_classes=7, n_groups=4)
    for k in range(7):
        alone = group_counts(labels == k, predicted == k, groups, 4)
        for name in ("size", "positive", "selected", "hits", "alarms"):
            np.testing.assert_array_equal(getattr(counts, name)[k], getattr(alone, name))
    assert gaps(counts)["dp"].missing[:, 3].all()


def test_a_prediction_that_is_no_class_is_refused() -> None:
    with pytest.raises(MeasureError, match=r"predicted.*integers in \[0, 2\)"):
        class_counts(np.array([0, 1]), np.array([0, 2]), np.array([0, 0]), n_classes=2, n_groups=1)


def exact(k: int, n: int, level: float) -> tuple[float, float]:
    return proportion_confint(k, n, level, method="beta")


def test_counts_whole_of_one_task() -> None:
    truth, decisions = np.array([1, 1, 0, 0, 1, 0]), np.array([1, 0, 1, 0, 1, 0])
    result = group_counts(truth, decisions, np.array([0, 0, 0, 2, 2, 2]), 4)
    rows = {"size": [3, 0, 3, 0], "positive": [2, 0, 1, 0], "selected": [2, 0, 1, 0], "hits": [1, 0, 1, 0]}
    rows |= {"alarms": [1, 0, 0, 0], "negative": [1, 0, 2, 0]}
    for name, row in rows.items():
        counts = getattr(result, name)
        assert (counts.dtype, counts.tolist()) == (np.int64, row), name


def test_counts_of_a_matrix_are_those_of_each_pair() -> None:
    truth, decisions = RNG.integers(0, 2, (2, 40, 3))
    attributes = RNG.integers(-1, 2, (40, 2))
    counts = matrix_counts(truth.tolist(), decisions.tolist(), attributes.tolist())  # type: ignore[arg-type]
    for t in range(3):
        for a in range(2):
            known = attributes[:, a] >= 0
            alone = group_counts(truth[known, t], decisions[known, t], attributes[known, a], 2)
            for name in ("size", "positive", "selected", "hits", "alarms"):
                np.testing.assert_array_equal(getattr(counts, name)[t, a], getattr(alone, name))
                assert getattr(counts, name).dtype == np.int64


def test_counts_of_classes_by_hand() -> None:
    counts = class_counts(
        np.array([0, 1, 1, 2]), np.array([0, 1, -1, 1]), np.array([0, 0, 1, 1]), n_classes=3, n_groups=2
    )
    assert counts.size.tolist() == [[2, 2]] * 3
    assert counts.positive.tolist() == [[1, 0], [1, 1], [0, 1]]
    assert counts.selected.tolist() == [[1, 0], [1, 1], [0, 0]]
    assert counts.hits.tolist() == [[1, 0], [1, 0], [0, 0]]
    assert counts.alarms.tolist() == [[0, 0], [0, 1], [0, 0]]
    assert {getattr(counts, name).dtype for name in ("size", "positive", "selected", "hits", "alarms")} == {
        np.dtype(np.int64)
    }
    none = np.zeros(0, int)
    assert class_counts(none, none, none, n_classes=2, n_groups=1).size.tolist() == [[0], [0]]


def test_gaps_and_their_limits_by_hand() -> None:
    """Two groups of 20: 8 of 10 and 5 of 10 positives found, 2 of 10 and 6 of 10 negatives taken for one."""
    ten = np.array([10, 10])
    counts = GroupCounts(2 * ten, ten, np.array([10, 11]), np.array([8, 5]), np.array([2, 6]))
    fairness = gaps(counts, delta=0.2)
    rates = {"dp": [(10, 20), (11, 20)], "eopp": [(8, 10), (5, 10)]}
    for metric, pairs in rates.items():
        (one_low, one_high), (two_low, two_high) = (exact(k, n, 0.1) for k, n in pairs)
        first = fairness[metric]  # type: ignore[index]
        assert float(first.value) == pytest.approx(abs(pairs[0][0] / pairs[0][1] - pairs[1][0] / pairs[1][1]))
        assert float(first.low) == pytest.approx(max(0.0, one_low - two_high, two_low - one_high))
        assert float(first.high) == pytest.approx(max(one_high - two_low, two_high - one_low))
    joint = gaps(counts, delta=0.4)
    tpr = [exact(k, 10, 0.1) for k in (8, 5)]
    fpr = [exact(k, 10, 0.1) for k in (2, 6)]
    least = [max(0.0, a[0] - b[1], b[0] - a[1]) for a, b in (tpr, fpr)]
    most = [max(a[1] - b[0], b[1] - a[0]) for a, b in (tpr, fpr)]
    assert (float(joint["eodd"].value), float(joint["aodd"].value)) == (pytest.approx(0.4), pytest.approx(0.35))
    assert float(joint["eodd"].low) == pytest.approx(max(least)) and float(joint["eodd"].high) == pytest.approx(
        max(most)
    )
    assert float(joint["aodd"].low) == pytest.approx(sum(least) / 2)
    assert float(joint["aodd"].high) == pytest.approx(sum(most) / 2)
    usual = gaps(counts)
    assert float(usual["dp"].high) == float(gaps(counts, delta=0.05)["dp"].high)


def test_a_gap_that_is_certain_has_a_lower_limit() -> None:
    many = np.array([1000, 1000, 0])
    counts = GroupCounts(many, many // 2, np.array([900, 100, 0]), np.array([450, 50, 0]), np.array([450, 50, 0]))
    result = gaps(counts)["dp"]
    low, high = exact(900, 1000, 0.05 / 3)[0], exact(100, 1000, 0.05 / 3)[1]
    assert result.low == pytest.approx(low - high)
    assert (result.missing.tolist(), bool(result.defined)) == ([False, False, True], True)
    names = ("a", "b", "c")
    assert result.estimate(names).reason == "no samples that it needs in c"


def test_a_group_is_left_out_of_the_rate_that_it_lacks_and_stays_in_the_other() -> None:
    counts = GroupCounts(np.array([4, 4, 4]), np.array([2, 4, 0]), *(np.array([1, 1, 0]),) * 2, np.array([0, 0, 0]))
    fairness = gaps(counts)
    assert {metric: gap.missing.tolist() for metric, gap in fairness.items()} == {
        "dp": [False] * 3,
        "eopp": [False, False, True],
        "eodd": [False, True, True],
        "aodd": [False, True, True],
    }
    assert all(bool(gap.defined) for gap in fairness.values())
    assert [float(fairness[m].value) for m in ("eopp", "eodd", "aodd")] == [0.25, 0.25, 0.125]


def test_a_group_of_missed_positives_alone_is_as_far_off_by_the_odds_as_by_opportunity() -> None:
    """A group of 40 positives, all missed, beside one of 2,000 without a fault: fairlearn says 1."""
    truth = np.r_[np.ones(40, int), np.tile([0, 1], 1000)]
    decisions = np.r_[np.zeros(40, int), np.tile([0, 1], 1000)]
    groups = np.r_[np.ones(40, int), np.zeros(2000, int)]
    fairness = gaps(group_counts(truth, decisions, groups, 2))
    assert float(fairness["eopp"].value) == float(fairness["eodd"].value) == 1.0
    assert float(fairness["eodd"].value) == equalized_odds_difference(truth, decisions, sensitive_features=groups)
    assert float(fairness["eodd"].low) > 0.8 and fairness["eodd"].missing.tolist() == [False, True]
    first, limits = fairness["aodd"], fairness["eodd"]
    assert float(first.value) == 1.0, "the mean of the gaps that there are: the false alarms have none"
    assert (float(first.low), float(first.high)) == (float(limits.low) / 2, 1.0), "the other gap may be anything"


def test_without_two_groups_in_either_rate_the_odds_are_undefined() -> None:
    counts = GroupCounts(np.array([5, 4]), np.array([0, 4]), *(np.array([1, 1]),) * 2, np.array([0, 0]))
    fairness = gaps(counts)
    for metric in ("eodd", "aodd"):
        first = fairness[metric]  # type: ignore[index]
        assert not first.defined and all(np.isnan(side) for side in (first.value, first.low, first.high))
    assert fairness["dp"].defined


def test_odds_with_a_rate_that_a_group_lacks_are_covered() -> None:
    """2,000 data sets: group 2 has positives only, so that the true gaps are .5 (TPR, three) and .2 (FPR, two)."""
    source, runs, n = np.random.default_rng(3), 2000, np.array([60, 60, 30])
    positive = np.tile(np.array([30, 30, 30]), (runs, 1))
    negative = np.tile(n, (runs, 1)) - positive
    hits = source.binomial(positive, np.array([0.9, 0.7, 0.4]))
    alarms = source.binomial(negative, np.array([0.1, 0.3, 0.5]))
    fairness = gaps(GroupCounts(positive + negative, positive, hits + alarms, hits, alarms), delta=0.1)
    for metric, true in {"eodd": 0.5, "aodd": 0.35}.items():
        first = fairness[metric]  # type: ignore[index]
        assert ((first.low > true) | (first.high < true)).mean() <= 0.1, metric


def test_estimates_whole() -> None:
    first, two = np.array([0.5, np.nan]), np.array([True, False])
    result = Gaps(
        first, np.array([0.0, np.nan]), np.array([1.0, np.nan]), two, np.array([[False, False, True], [True] * 3])
    )
    names = ("a", "b", "c")
    assert result.estimate(names, (0,)) == Estimate(0.5, 0.0, 1.0, "no samples that it needs in c", vacuous=True)
    assert result.estimate(names, (1,)) == Estimate(None, reason="no samples that it needs in a, b, c")
    alone = Gaps(first[1], first[1], first[1], two[1], np.array([False]))
    assert alone.estimate(("a",)) == Estimate(None, reason="fewer than two groups")
    for low, high in ((0.01, 1.0), (0.0, 0.99)):
        sharp = Gaps(first[0], np.array(low), np.array(high), two[0], np.array([False, False]))
        assert sharp.estimate(("a", "b")) == Estimate(0.5, low, high)
        assert type(sharp.estimate(("a", "b")).value) is float


def test_truths_and_falsehoods_are_1_and_0() -> None:
    truth, decisions = np.array([[True, False, True, True], [True, True, False, True]])
    groups = np.array([0, 0, 1, 1])
    matrix = matrix_counts(truth[:, None], decisions[:, None], groups[:, None])
    alone = GroupCounts(*(getattr(matrix, name)[0, 0] for name in NAMES))
    for each in (group_counts(truth, decisions, groups, 2), alone):
        assert [getattr(each, name).tolist() for name in NAMES] == [[2, 2], [1, 2], [2, 1], [1, 1], [1, 0]]


def test_each_entry_of_a_matrix_has_the_gaps_it_has_alone() -> None:
    truth, decisions = RNG.integers(0, 2, (2, 50, 3))
    attributes = RNG.integers(-1, 2, (50, 2))
    attributes[:, 1] = np.where(attributes[:, 1] == 0, -1, attributes[:, 1])
    counts = matrix_counts(truth, decisions, attributes)
    fairness = gaps(counts)
    for index in np.ndindex(3, 2):
        alone = gaps(GroupCounts(*(getattr(counts, name)[index] for name in NAMES)))
        for metric, each in alone.items():
            for name in ("value", "low", "high", "defined", "missing"):
                np.testing.assert_array_equal(getattr(fairness[metric], name)[index], getattr(each, name))
    assert fairness["dp"].defined.tolist() == [[True, False]] * 3


def test_one_sample_of_each_kind_is_enough() -> None:
    two, first = np.array([2, 40]), np.array([1, 20])
    counts = GroupCounts(two, first, np.array([1, 20]), np.array([1, 10]), np.array([0, 10]))
    fairness = gaps(counts, delta=0.4)
    assert [float(fairness[m].value) for m in METRICS] == [0.0, 0.5, 0.5, 0.5]
    single, many = exact(1, 1, 0.1), exact(10, 20, 0.1)
    tpr = max(single[1] - many[0], many[1] - single[0])
    single = exact(0, 1, 0.1)
    fpr = max(single[1] - many[0], many[1] - single[0])
    assert float(fairness["eodd"].high) == pytest.approx(max(tpr, fpr))
    assert float(fairness["aodd"].high) == pytest.approx((tpr + fpr) / 2)


def test_a_group_without_positives_has_a_part_in_the_odds_by_its_false_alarms() -> None:
    counts = GroupCounts(
        np.array([20, 20, 10]), np.array([10, 10, 0]), np.array([10, 10, 10]), np.array([8, 8, 0]), np.array([2, 2, 10])
    )
    fairness = gaps(counts)
    assert float(fairness["eodd"].value) == pytest.approx(0.8) and float(fairness["aodd"].value) == pytest.approx(0.4)


def test_a_classifier_of_one_class_may_refuse_to_answer() -> None:
    counts = class_counts(np.array([0, 0]), np.array([0, -1]), np.array([0, 0]), n_classes=1, n_groups=1)
    assert [getattr(counts, name).tolist() for name in NAMES] == [[[2]], [[2]], [[1]], [[1]], [[0]]]


def test_every_group_has_a_name() -> None:
    two = gaps(group_counts(np.array([0, 1]), np.array([0, 1]), np.array([0, 1]), 2))["dp"]
    with pytest.raises(ValueError, match="argument 2"):
        two.estimate(("a",))
