"""Refuted shares against a naive loop and statsmodels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.proportion import proportion_confint

from services.errors import MeasureError
from services.numerics.evidence.refutation import Refutation, refute
from services.records import Estimate


def table(seed: int, n: int = 300, classes: int = 4) -> dict[str, Any]:
    """Random scores, distances censored at 1, correctness and labels."""
    source = np.random.default_rng(seed)
    distances = source.exponential(0.5, n)
    return {
        "scores": source.random(n) * 1.25,
        "distances": np.minimum(distances, 1.0),
        "correct": source.random(n) < 0.8,
        "censored": distances > 1.0,
        "labels": source.integers(0, classes, n),
    }


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_counts_equal_the_naive_loop(seed: int) -> None:
    data, refuted, counted, untested = table(seed), [0] * 4, [0] * 4, [0] * 4
    for g, d, right, open_ended, y in zip(*data.values(), strict=True):
        if right:
            counted[y] += 1
            if open_ended and g > d:
                untested[y] += 1
            elif g > d:
                refuted[y] += 1
    refutation = refute(**data, classes=4)
    assert (refutation.refuted, refutation.counted, refutation.untested) == (
        tuple(refuted),
        tuple(counted),
        tuple(untested),
    )
    assert refutation.overall.value == pytest.approx(sum(refuted) / sum(counted))


def test_intervals_are_clopper_pearsons() -> None:
    refutation = refute(**table(3), classes=4, delta=0.1)
    total = proportion_confint(sum(refutation.refuted), sum(refutation.counted), 0.1, method="beta")
    assert (refutation.overall.low, refutation.overall.high) == pytest.approx(total)
    for share, k, n in zip(refutation.classes, refutation.refuted, refutation.counted, strict=True):
        assert (share.low, share.high) == pytest.approx(proportion_confint(k, n, 0.1 / 4, method="beta"))


def test_all_and_none_have_closed_ends() -> None:
    ones, zeros = np.ones(50), np.zeros(50, dtype=np.int64)
    beaten = refute(ones, ones / 2, ones, 0 * ones, zeros, classes=1)
    held = refute(ones / 2, ones, ones, 0 * ones, zeros, classes=1)
    assert (beaten.overall.value, beaten.overall.high) == (1.0, 1.0)
    assert beaten.overall.low == pytest.approx(0.025 ** (1 / 50))
    assert (held.overall.value, held.overall.low) == (0.0, 0.0)


def test_a_distance_equal_to_the_claim_refutes_nothing() -> None:
    assert refute([0.5], [0.5], [1], [0], [0], classes=1).overall.value == 0
    assert refute([0.5], [0.5], [1], [1], [0], classes=1).untested == (0,)


def test_a_class_without_correct_samples_is_undefined_and_costs_no_level() -> None:
    refutation = refute([1.0, 1.0], [0.5, 0.0], [1, 0], [0, 0], [0, 1], classes=3)
    assert [share.value for share in refutation.classes] == [1.0, None, None]
    assert refutation.classes[1].reason == "no correctly classified sample"
    assert refutation.classes[0] == refutation.overall
    assert refute([], [], [], [], [], classes=2).overall.value is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scores": [np.nan, 1.0]}, "finite numbers"),
        ({"distances": [1.0]}, r"shape \(2,\)"),
        ({"labels": [0, 2]}, r"integers in \[0, 2\)"),
        ({"delta": 0.0}, "strictly between 0 and 1"),
    ],
)
def test_wrong_input(change: dict[str, Any], message: str) -> None:
    good = {"scores": [1.0, 1.0], "distances": [1.0, 1.0], "correct": [1, 1], "censored": [0, 0], "labels": [0, 1]}
    with pytest.raises(MeasureError, match=message):
        refute(**{**good, **change}, classes=2)


def test_a_refutation_whole() -> None:
    """Three classes: two of three beaten and one untested; none right; one right and not beaten."""
    refutation = refute(
        scores=[0.5, 0.5, 0.9, 0.5, 0.9, 0.2],
        distances=[0.4, 0.5, 0.3, 0.1, 0.8, 0.8],
        correct=[1, 1, 1, 0, 1, 1],
        censored=[0, 0, 0, 0, 1, 1],
        labels=[0, 0, 0, 1, 0, 2],
        classes=3,
        delta=0.1,
    )
    of_class, overall = proportion_confint(2, 4, 0.05, method="beta"), proportion_confint(2, 5, 0.1, method="beta")
    assert refutation == Refutation(
        overall=Estimate(0.4, pytest.approx(overall[0]), pytest.approx(overall[1])),
        classes=(
            Estimate(0.5, pytest.approx(of_class[0]), pytest.approx(of_class[1])),
            Estimate(None, reason="no correctly classified sample"),
            Estimate(0.0, 0.0, pytest.approx(proportion_confint(0, 1, 0.05, method="beta")[1])),
        ),
        refuted=(2, 0, 0),
        counted=(4, 0, 1),
        untested=(1, 0, 0),
        delta=0.1,
    )
    assert type(refutation.counted[0]) is int and type(refutation.overall.low) is float


def test_a_refutation_of_nothing_whole_at_the_usual_level() -> None:
    none = Estimate(None, reason="no correctly classified sample")
    empty = refute([], [], [], [], np.zeros(0, int), classes=2)
    assert empty == Refutation(none, (none, none), (0, 0), (0, 0), (0, 0), 0.05)
