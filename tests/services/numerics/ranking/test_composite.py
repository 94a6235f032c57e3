"""Composites against hand-computed numbers and a naive loop, their invariances, and the front against brute force."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.errors import MeasureError
from services.numerics.ranking.composite import (
    ALIKE,
    ALONE,
    Composite,
    check_weights,
    composite,
    pareto_front,
    places,
    with_leader,
)
from services.records import Estimate

NAN = math.nan


def of(values: Any, weights: Sequence[float] = (), lower: Sequence[bool] = (), **limits: Any) -> Composite:
    table = np.array(values, dtype=float)
    wide = table.shape[1]
    return composite(
        table,
        low=np.array(limits.get("low", table), dtype=float),
        high=np.array(limits.get("high", table), dtype=float),
        names=[f"m{column}" for column in range(wide)],
        weights=weights or [1.0] * wide,
        lower_is_better=lower or [False] * wide,
    )


def values_of(found: Composite) -> list[float | None]:
    return [score.value for score in found.scores]


def test_three_models_by_hand() -> None:
    """Accuracy .95 .85 .75, robust accuracy 0 .5 .4, seconds 3 33 13 (lower is better), weights 1, 2, 1."""
    result = of([[0.95, 0.0, 3], [0.85, 0.5, 33], [0.75, 0.4, 13]], (1, 2, 1), (False, False, True))
    assert values_of(result) == pytest.approx([(1 + 0 + 1) / 4, (0.5 + 2 + 0) / 4, (0 + 1.6 + 2 / 3) / 4], abs=1e-15)
    assert places(result.scores) == (3, 1, 2)


def test_the_range_takes_every_metric_at_its_worse_and_better_limit_on_the_same_scale() -> None:
    values = [[0.9, 10], [0.5, 30]]
    result = of(values, (3, 1), (False, True), low=[[0.8, 8], [0.4, 26]], high=[[1.0, 14], [0.6, 34]])
    first, second = result.scores
    assert (first.value, second.value) == (1.0, 0.0)
    assert first.low == pytest.approx((3 * 0.75 + 0.8) / 4) and first.high == pytest.approx((3 * 1.25 + 1.1) / 4)
    assert second.low == pytest.approx((3 * -0.25 - 0.2) / 4) and second.high == pytest.approx((3 * 0.25 + 0.2) / 4)
    assert with_leader(result.scores) == (True, False)


def test_a_model_that_lacks_a_metric_has_no_score_and_moves_nobody_elses() -> None:
    whole = of([[0.2, 0.3], [0.6, 0.1]])
    with_gap = of([[0.2, 0.3], [0.9, NAN], [0.6, 0.1], [NAN, NAN]])
    assert [with_gap.scores[0], with_gap.scores[2]] == list(whole.scores)
    assert with_gap.scores[1].value is None and with_gap.scores[1].reason == "lacks m1"
    assert with_gap.scores[3].reason == "lacks m0, m1"
    assert places(with_gap.scores) == (1, None, 1, None)


def test_a_metric_of_weight_nought_is_neither_counted_nor_needed() -> None:
    assert values_of(of([[0.2, NAN], [0.6, 7.0]], (1, 0))) == [0.0, 1.0]


def test_a_metric_in_which_all_are_equal_counts_for_nobody() -> None:
    result = of([[0.2, 0.7, 1], [0.6, 0.7, 2], [0.3, 0.7, 3]])
    assert result.spread.tolist() == [True, False, True]
    assert values_of(result) == values_of(of([[0.2, 1], [0.6, 2], [0.3, 3]]))
    rounding = of([[0.1 + 0.2, 1], [0.3, 2]])
    assert rounding.spread.tolist() == [False, True]


def test_nothing_to_compare_is_undefined_with_a_reason() -> None:
    assert of([[0.2, 0.4]]).scores == (Estimate(None, reason=ALONE),)
    assert {score.reason for score in of([[0.2, 0.4]] * 3).scores} == {ALIKE}
    assert of(np.zeros((0, 2))).scores == ()
    lonely = of([[0.2, 0.4], [NAN, 0.1]]).scores
    assert [score.reason for score in lonely] == [ALONE, "lacks m0"]


def test_an_unknown_interval_leaves_the_range_unknown() -> None:
    result = of([[0.2, 0.3], [0.6, 0.1]], (1, 2), low=[[NAN, 0.2], [0.5, 0.0]], high=[[0.3, 0.4], [0.7, NAN]])
    assert [(s.low is None, s.high is None) for s in result.scores] == [(True, False), (False, True)]
    assert with_leader(result.scores) == (True, None)
    lower = of([[0.2], [0.6]], lower=[True], low=[[NAN], [0.5]], high=[[0.3], [0.7]])
    assert lower.scores[0].high is None and lower.scores[0].low is not None


@pytest.mark.parametrize("weights", [(1, -1), (1, NAN), (1, math.inf), (0, 0), (1,), (1, 1, 1)])
def test_weights_that_cannot_be_are_refused(weights: tuple[float, ...]) -> None:
    with pytest.raises(MeasureError, match="weights"):
        check_weights(weights, 2)


def test_an_infinite_value_is_refused() -> None:
    with pytest.raises(MeasureError, match="infinity"):
        of([[0.2, math.inf], [0.6, 0.1]])


def naive(table: np.ndarray, weights: Sequence[float], lower: Sequence[bool]) -> list[float | None]:
    """The definition as nested loops over plain floats."""
    rows = [[float(value) for value in row] for row in table]
    whole = [row for row in rows if not any(math.isnan(v) for v, w in zip(row, weights, strict=True) if w > 0)]
    messages = []
    for row in rows:
        above, below = 0.0, 0.0
        for column, weight in enumerate(weights):
            if weight == 0 or not whole:
                continue
            least, most = min(r[column] for r in whole), max(r[column] for r in whole)
            if most - least <= 1e-12 * max(abs(most), abs(least)):
                continue
            share = (row[column] - least) / (most - least)
            above += weight * (1 - share if lower[column] else share)
            below += weight
        messages.append(None if row not in whole or not below else above / below)
    return messages


def boards(missing: bool = True) -> st.SearchStrategy[tuple[np.ndarray, list[float], list[bool]]]:
    """Tables of up to 8 models and 5 metrics, coarse enough for ties, with weights and directions."""
    number = st.integers(-20, 20).map(lambda step: step / 10)
    cell = st.one_of(number, st.just(NAN)) if missing else number
    return st.integers(1, 5).flatmap(
        lambda wide: st.tuples(
            st.lists(st.lists(cell, min_size=wide, max_size=wide), min_size=1, max_size=8).map(np.array),
            st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0]), min_size=wide, max_size=wide).filter(any),
            st.lists(st.booleans(), min_size=wide, max_size=wide),
        )
    )


@given(boards())
def test_agrees_with_the_naive_loop(board: tuple[np.ndarray, list[float], list[bool]]) -> None:
    result, expected = values_of(of(*board)), naive(*board)
    assert [value is None for value in result] == [value is None for value in expected]
    known = [(a, b) for a, b in zip(result, expected, strict=True) if a is not None]
    assert all(abs(a - b) < 1e-12 and -1e-12 <= a <= 1 + 1e-12 for a, b in known)


@given(boards(), st.floats(0.01, 100), st.integers(-50, 50), st.floats(0.01, 100))
def test_units_and_the_size_of_weights_do_not_matter(
    board: tuple[np.ndarray, list[float], list[bool]], scale: float, shift: int, times: float
) -> None:
    table, weights, lower = board
    other = of(table * scale + shift, [times * weight for weight in weights], lower)
    turned = of(-table, weights, [not first for first in lower])
    for each in (other, turned):
        for a, b in zip(values_of(each), values_of(of(*board)), strict=True):
            assert (a is None) == (b is None) and (a is None or a == pytest.approx(b, abs=1e-9))


@given(boards(), st.randoms(use_true_random=False))
def test_the_order_of_models_and_metrics_does_not_matter(
    board: tuple[np.ndarray, list[float], list[bool]], random: Any
) -> None:
    table, weights, lower = board
    rows, columns = list(range(table.shape[0])), list(range(table.shape[1]))
    random.shuffle(rows)
    random.shuffle(columns)
    moved = of(table[rows][:, columns], [weights[c] for c in columns], [lower[c] for c in columns])
    before = of(*board)
    assert places(moved.scores) == tuple(places(before.scores)[row] for row in rows)
    assert pareto_front(table[rows], lower) == tuple(pareto_front(table, lower)[row] for row in rows)


@given(boards())
def test_the_best_in_all_metrics_scores_one_and_the_front_is_brute_force(
    board: tuple[np.ndarray, list[float], list[bool]],
) -> None:
    table, weights, lower = board
    signed = np.where(lower, -table, table)
    front = pareto_front(table, lower)
    for row, message in zip(signed, front, strict=True):
        if np.isnan(row).any():
            assert message is None
            continue
        beaten = any(
            all(a >= b for a, b in zip(other, row, strict=True)) and any(a > b for a, b in zip(other, row, strict=True))
            for other in signed
            if not np.isnan(other).any()
        )
        assert message is not beaten
    scores = of(table, weights, lower).scores
    first = [index for index, place in enumerate(places(scores)) if place == 1]
    if all(weights) and first and not np.isnan(table).any():
        assert any(front[index] for index in first), "a leader under positive weights is beaten by none"


def test_equal_models_stand_on_the_front_together() -> None:
    assert pareto_front(np.array([[1, 2], [1, 2], [0, 3], [0, 2]]), [False, False]) == (True, True, True, False)
    with pytest.raises(MeasureError, match="criteria"):
        pareto_front(np.zeros((2, 0)), [])


def test_places_are_shared_by_ties_and_with_leader_covers_all_leaders() -> None:
    scores = [Estimate(0.5, 0.4, 0.6), Estimate(0.9, 0.7, 1.0), Estimate(0.9, 0.6, 1.0), Estimate(0.6, 0.5, 0.7)]
    assert places(scores) == (4, 1, 1, 3)
    assert with_leader(scores) == (False, True, True, True)
    assert with_leader([Estimate(None, reason="x")]) == (None,)


def test_records_whole() -> None:
    """Two metrics, the second lower is better; the third model lacks one, the fourth an interval on one side."""
    result = composite(
        np.array([[1.0, 4.0], [3.0, 2.0], [NAN, 1.0], [2.0, 4.0]]),
        low=np.array([[0.5, 3.5], [2.5, 1.5], [NAN, 0.5], [NAN, 3.0]]),
        high=np.array([[1.5, 4.5], [3.5, 2.5], [NAN, 1.5], [2.5, 5.0]]),
        names=("accuracy", "error"),
        weights=(3, 1),
        lower_is_better=(False, True),
    )
    assert result == Composite(
        (
            Estimate(0.0, -0.25, 0.25),
            Estimate(1.0, 0.75, 1.25),
            Estimate(None, reason="lacks accuracy"),
            Estimate(0.375, None, 0.6875),
        ),
        result.spread,
    )
    assert result.spread.dtype == np.bool_ and result.spread.tolist() == [True, True]
    assert all(type(part) is float for part in (result.scores[0].value, result.scores[0].low, result.scores[0].high))


def test_what_is_missing_is_listed_and_comes_before_what_is_alike() -> None:
    result = of([[NAN, NAN], [1.0, 2.0], [1.0, 2.0]])
    assert result.scores == (Estimate(None, reason="lacks m0, m1"), *[Estimate(None, reason=ALIKE)] * 2)
    assert result.spread.tolist() == [False, False]
    assert of([[NAN, 1.0], [NAN, 2.0]]).scores == (Estimate(None, reason="lacks m0"),) * 2
    nobody = of(np.zeros((0, 2))).spread
    assert nobody.tolist() == [False, False] and nobody.dtype == np.bool_


def test_a_spread_is_relative_to_the_largest_number() -> None:
    assert of([[1.0, 1000.0], [1.0 + 5e-13, 1000.0 + 5e-9]]).spread.tolist() == [False, True]
    assert of([[-1.0, -1000.0], [-1.0 - 5e-13, -1000.0 - 5e-9]]).spread.tolist() == [False, True]
    assert of([[-1000.0], [-1000.0 - 5e-10]]).spread.tolist() == [False]
    assert of([[1000.0], [1000.0 + 5e-10]]).spread.tolist() == [False]


def test_places_are_told_by_twelve_decimals() -> None:
    assert places([Estimate(0.5), Estimate(0.5 + 4e-13), Estimate(0.5 + 2e-12)]) == (2, 2, 1)
    assert places([]) == ()


def test_a_leader_without_a_lower_limit_bars_nobody() -> None:
    assert with_leader([Estimate(0.9), Estimate(0.5, 0.1, 0.95)]) == (True, None)
    assert with_leader([Estimate(0.9, 0.7, 1.0), Estimate(0.5, 0.1, 0.7), Estimate(0.5, 0.1)]) == (True, True, None)
    assert with_leader([Estimate(0.9, 0.7, 1.0), Estimate(0.5, 0.1, 0.69), Estimate(None)]) == (True, False, None)


def test_weights_come_back_as_floats() -> None:
    result = check_weights([0, 2], 2)
    assert result.dtype == np.float64 and result.tolist() == [0.0, 2.0]


def test_a_front_of_integers_with_a_gap() -> None:
    """Whoever lacks a criterion is compared with none, however good it is in the others."""
    table = np.array([[3, 1], [2, 2], [9, NAN], [1, 2]])
    assert pareto_front(table, [False, False]) == (True, True, None, False)
    assert pareto_front(table, [True, True]) == (True, False, None, True)
    assert pareto_front(np.array([[0], [1]], dtype=np.uint8), [True]) == (True, False)
    assert pareto_front(np.array([[3], [2]]), [0]) == (True, False)  # type: ignore[list-item]
