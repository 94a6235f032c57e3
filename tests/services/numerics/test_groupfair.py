"""Group fairness: against loops, fairlearn on every pair, and coverage by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from fairlearn.metrics import (
    demographic_parity_difference,
    equal_opportunity_difference,
    equalized_odds_difference,
)

from services.errors import MeasureError
from services.fairness.metrics import group_fairness
from services.numerics.groupfair import METRICS, class_counts, gaps, group_counts, matrix_counts

RNG = np.random.default_rng(5)


def test_the_matrix_equals_the_loop_over_fairlearn() -> None:
    truth, decisions = RNG.integers(0, 2, (2, 300, 6))
    attributes = RNG.integers(0, 2, (300, 5))
    found = gaps(matrix_counts(truth, decisions, attributes))
    for t in range(6):
        for a in range(5):
            args, by = (truth[:, t], decisions[:, t]), {"sensitive_features": attributes[:, a]}
            assert found["dp"].value[t, a] == pytest.approx(demographic_parity_difference(*args, **by), abs=1e-12)
            assert found["eopp"].value[t, a] == pytest.approx(equal_opportunity_difference(*args, **by), abs=1e-12)
            assert found["eodd"].value[t, a] == pytest.approx(equalized_odds_difference(*args, **by), abs=1e-12)
            mean = equalized_odds_difference(*args, agg="mean", **by)
            assert found["aodd"].value[t, a] == pytest.approx(mean, abs=1e-12)


def test_the_wrapper_gives_fairlearns_values_with_sizes_and_intervals_for_more_than_two_groups() -> None:
    truth, decisions = RNG.integers(0, 2, (2, 400))
    groups = np.array(["a", "b", "c"])[RNG.integers(0, 3, 400)]
    found = group_fairness(truth, decisions, groups)
    assert found.names == ("a", "b", "c")
    assert found.counts.size.sum() == 400
    ours = gaps(found.counts)
    for metric in METRICS:
        estimate = found.metrics[metric]
        assert estimate.value == pytest.approx(float(ours[metric].value), abs=1e-12)
        assert estimate.low <= estimate.value <= estimate.high  # type: ignore[operator]
    assert found.metrics["eodd"].value >= found.metrics["aodd"].value  # type: ignore[operator]


def test_a_group_without_samples_is_undefined_and_never_perfectly_fair() -> None:
    truth, decisions, groups = np.array([1, 0, 1, 0]), np.array([1, 0, 1, 0]), np.array(["a"] * 4)
    found = group_fairness(truth, decisions, groups, names=("a", "b")).metrics
    assert all(found[metric].value is None for metric in METRICS)
    assert found["dp"].reason == "no samples that it needs in b"


def test_a_group_without_positives_leaves_parity_defined_and_opportunity_not() -> None:
    truth, decisions = np.array([1, 0, 0, 0]), np.array([1, 0, 1, 1])
    found = group_fairness(truth, decisions, np.array(["a", "a", "b", "b"])).metrics
    assert found["dp"].value == 0.5
    assert (found["eopp"].value, found["eodd"].value) == (None, None)
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
    found = gaps(matrix_counts(truth, RNG.random((120, 2000)) < chance, group[:, None]), delta=0.1)
    for metric, true in {"eopp": 0.2, "eodd": 0.25, "aodd": 0.225}.items():
        one = found[metric]  # type: ignore[index]
        assert ((one.low > true) | (one.high < true)).mean() <= 0.1, metric


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
    found = class_counts(labels, predicted, groups, n_classes=7, n_groups=4)
    for k in range(7):
        alone = group_counts(labels == k, predicted == k, groups, 4)
        for name in ("size", "positive", "selected", "hits", "alarms"):
            np.testing.assert_array_equal(getattr(found, name)[k], getattr(alone, name))
    assert gaps(found)["dp"].missing[:, 3].all()


def test_a_prediction_that_is_no_class_is_refused() -> None:
    with pytest.raises(MeasureError, match=r"predicted.*integers in \[0, 2\)"):
        class_counts(np.array([0, 1]), np.array([0, 2]), np.array([0, 0]), n_classes=2, n_groups=1)
