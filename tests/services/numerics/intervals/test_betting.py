"""Bets, capital and bounds against loops over the definitions, cell by cell."""

from __future__ import annotations

import math

import numpy as np
import pytest

from services.numerics.intervals import betting

VALUES = np.array([[0.2, 0.9, 0.4, 0.0, 0.7], [0.5, 0.1, 1.0, 0.3, 0.6], [0.8, 0.8, 0.8, 0.8, 0.8]])
MASK = np.array([[1, 1, 1, 1, 1], [1, 0, 1, 1, 0], [0, 1, 0, 0, 0]], dtype=bool)
FILLED = np.where(MASK, VALUES, 0.0)


def bets_by_loop(alpha: float, anytime: bool) -> np.ndarray:
    """Row by row over the filled cells; an empty cell bets nothing."""
    out = np.zeros(MASK.shape)
    for g, row in enumerate(MASK):
        total, squares = 0.0, 0.0
        for observed, i in enumerate(np.flatnonzero(row), start=1):
            variance = (0.25 + squares) / observed
            horizon = observed * math.log(observed + 1) if anytime else row.sum()
            out[g, i] = math.sqrt(2 * math.log(1 / alpha) / (variance * horizon))
            total += VALUES[g, i]
            squares += (VALUES[g, i] - (0.5 + total) / (observed + 1)) ** 2
    return out


def capital_by_loop(bets: np.ndarray, mean: np.ndarray) -> list[float]:
    messages = []
    for g, m in enumerate(mean):
        capital, most = 1.0, 1.0
        for value, bet in zip(FILLED[g], bets[g], strict=True):
            capital *= 1 + (min(bet, 0.75 / m) if m else bet) * (value - m)
            most = max(most, capital)
        messages.append(math.log(most))
    return messages


@pytest.mark.parametrize("anytime", [False, True])
def test_bets_are_those_of_the_definition_also_where_cells_are_empty(anytime: bool) -> None:
    result = betting.bet_sizes(FILLED, MASK, 0.1, anytime=anytime)
    np.testing.assert_allclose(result, bets_by_loop(0.1, anytime), rtol=1e-13)


@pytest.mark.parametrize("mean", [[0.0, 0.1, 0.3], [0.35, 0.35, 0.6], [0.9, 1.0, 1.0]])
def test_the_log_capital_is_that_of_the_definition(mean: list[float]) -> None:
    bets = bets_by_loop(0.1, False)
    result = betting.log_capital(FILLED, bets, np.array(mean))
    np.testing.assert_allclose(result, capital_by_loop(bets, np.array(mean)), rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("anytime", [False, True])
def test_the_lower_bound_is_where_the_capital_reaches_the_level(anytime: bool) -> None:
    values, mask = np.tile(VALUES, 8), np.tile(MASK, 8)
    values = np.where(mask, values, 0.0)
    bets = betting.bet_sizes(values, mask, 0.1, anytime=anytime)
    result = betting.lower_bound(values, mask, 0.1, anytime=anytime)
    assert (result > 0.05).all()
    assert (betting.log_capital(values, bets, result) >= math.log(10)).all()
    assert (betting.log_capital(values, bets, result + 6e-11) < math.log(10)).all()


def test_a_fixed_number_of_samples_is_the_default() -> None:
    values, mask = np.tile(VALUES[:1], 8), np.ones((1, 40), dtype=bool)
    fixed, anytime = (betting.lower_bound(values, mask, 0.1, anytime=how) for how in (False, True))
    assert betting.lower_bound(values, mask, 0.1) == fixed != anytime


def test_the_p_value_is_the_inverse_of_the_highest_capital() -> None:
    null = np.array([0.1, 0.35, 0.3])
    result = betting.log_p_value(FILLED, MASK, null, 0.1)
    np.testing.assert_allclose(result, [-c for c in capital_by_loop(bets_by_loop(0.1, False), null)], rtol=1e-13)
    assert (result < 0).any()


def test_without_samples_nothing_is_known() -> None:
    none = np.zeros((2, 0))
    assert betting.lower_bound(none, none.astype(bool), 0.1).tolist() == [0.0, 0.0]
    assert betting.log_p_value(none, none.astype(bool), np.full(2, 0.5), 0.1).tolist() == [0.0, 0.0]


def test_a_capital_that_just_reaches_the_level_rejects() -> None:
    """A sample of 7/8 and a bet that is cut to (3/4) / m: at m = 3/8 the capital is 1 + 2 / 2, and the level 1/2."""
    assert betting.lower_bound(np.full((1, 1), 0.875), np.ones((1, 1), dtype=bool), 0.5)[0] == 0.375
