"""Means over seeds: the textbook interval, what is undefined, and what the limits cover."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from services.errors import MeasureError
from services.numerics.ranking.seeds import Seeds, over_seeds
from services.records import Estimate


def test_mean_spread_and_the_t_interval_of_scipy() -> None:
    values = [0.50, 0.52, 0.57]
    result = over_seeds([Estimate(value, value, value) for value in values])
    low, high = stats.t.interval(0.95, 2, loc=np.mean(values), scale=stats.sem(values))
    assert (result.mean.value, result.spread) == (pytest.approx(np.mean(values)), pytest.approx(np.std(values, ddof=1)))
    assert (result.mean.low, result.mean.high) == (pytest.approx(low), pytest.approx(high))


def test_the_networks_own_intervals_are_added() -> None:
    result = over_seeds([Estimate(0.5, 0.4, 0.65), Estimate(0.5, 0.4, 0.65)]).mean
    assert (result.low, result.value, result.high) == (pytest.approx(0.4), 0.5, pytest.approx(0.65))


def test_one_network_keeps_its_interval_and_has_no_spread() -> None:
    first = Estimate(0.5, 0.4, 0.6)
    assert over_seeds([first]).mean is first and over_seeds([first]).spread is None


def test_a_network_without_a_value_leaves_the_mean_undefined() -> None:
    result = over_seeds([Estimate(0.5), Estimate(None, reason="all scores 0")])
    assert result.mean == Estimate(None, reason="undefined for 1 of 2 networks: all scores 0") and result.spread is None


def test_a_side_that_one_network_lacks_is_unknown() -> None:
    result = over_seeds([Estimate(0.5, 0.4), Estimate(0.6, 0.5, 0.7)]).mean
    assert result.high is None and result.low is not None


def test_limits_stay_in_the_range_of_the_metric() -> None:
    result = over_seeds([Estimate(0.95, 0.9, 0.99), Estimate(0.99, 0.94, 1.0)], least=0.0, most=1.0).mean
    assert result.high == 1.0 and 0.0 < result.low < 0.95


def test_no_network_is_refused() -> None:
    with pytest.raises(MeasureError, match="networks"):
        over_seeds([])


def test_the_limits_cover_the_mean_over_all_seeds() -> None:
    draw = np.random.default_rng(3)
    inside = 0
    for _ in range(400):
        values = draw.normal(0.6, 0.02, 3)
        result = over_seeds([Estimate(float(value), float(value), float(value)) for value in values]).mean
        inside += bool(result.low <= 0.6 <= result.high)
    assert 364 <= inside <= 396, "95 % of 400 within four standard deviations"


def test_means_over_seeds_whole() -> None:
    networks = [Estimate(0.5, 0.45, 0.55), Estimate(0.6, 0.5, 0.7), Estimate(0.7, 0.65, 0.8)]
    margin = stats.t.ppf(0.95, 2) * 0.1 / 3**0.5
    result = over_seeds(networks, delta=0.1)
    assert result.spread == pytest.approx(0.1)
    assert result.mean == Estimate(
        pytest.approx(0.6), pytest.approx(1.6 / 3 - margin), pytest.approx(2.05 / 3 + margin)
    )
    assert over_seeds(networks) == over_seeds(networks, delta=0.05)
    assert over_seeds(networks, least=0.4, most=0.8).mean == Estimate(pytest.approx(0.6), 0.4, 0.8)
    assert over_seeds(networks, delta=0.1, least=0.3, most=0.9).mean == result.mean
    assert {type(part) for part in (result.spread, result.mean.value)} == {float}


def test_undefined_networks_whole() -> None:
    lost = Estimate(None, reason="all scores 0")
    assert over_seeds([lost]) == Seeds(lost, None)
    assert over_seeds([lost, Estimate(None), Estimate(0.1)]) == Seeds(
        Estimate(None, reason="undefined for 2 of 3 networks: all scores 0"), None
    )
    assert over_seeds([Estimate(None), Estimate(0.1)]).mean.reason == "undefined for 1 of 2 networks"
    assert over_seeds([Estimate(None)]) == Seeds(Estimate(None), None)
    first = Estimate(0.5, 0.4, 0.6)
    assert over_seeds([first]) == Seeds(first, None)
    sides = over_seeds([Estimate(0.5, None, 0.6), Estimate(0.5, 0.4, 0.6)]).mean
    assert (sides.low, sides.high) == (None, pytest.approx(0.6))
