"""Levels of a stream of tests, and comparisons without pairs: their promises, by simulation and by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom, fisher_exact

from services.numerics.evidence.streams import false_alarm_bound, gamma, lond_level
from services.numerics.evidence.unpaired import p_value, unpaired_changes


def test_the_weights_sum_to_one_at_most() -> None:
    whole = math.fsum(gamma(t) for t in range(1, 200_000))  # the rest comes slowly
    assert 0.9 < whole < 1.0
    assert all(gamma(t) > gamma(t + 1) for t in range(1, 500))


def test_levels_by_hand() -> None:
    assert lond_level(0.05, []) == pytest.approx(0.05 * gamma(1)) and gamma(1) > 0.16
    none = lond_level(0.05, [False] * 9)
    assert none == pytest.approx(0.05 * gamma(10) / sum(1 / i for i in range(1, 11)))
    assert lond_level(0.05, [True, *[False] * 8]) == pytest.approx(2 * none)


def test_while_nothing_is_found_a_year_of_tests_stays_within_the_promise() -> None:
    levels = [lond_level(0.05, [False] * t) for t in range(365)]
    assert false_alarm_bound(levels) < 0.05
    assert levels[-1] > 0.05 / (365 * 366)  # plain spending is weaker by then


def test_false_discoveries_of_a_stream() -> None:
    """A third of the hypotheses are false; of the rest p-values are uniform, ten times the same draw."""
    rng, shares = np.random.default_rng(0), []
    for _ in range(150):
        null = np.repeat(rng.random(20) < 0.7, 10)
        p = np.where(null, np.repeat(rng.random(20), 10), rng.random(200) * 1e-6)
        found: list[bool] = []
        for each in p:
            found.append(bool(each <= lond_level(0.2, found)))
        hits = np.array(found)
        shares.append((hits & null).sum() / max(1, hits.sum()))
    assert np.mean(shares) < 0.2


def test_two_sets_of_equal_means_are_seldom_told_apart() -> None:
    rng, alpha = np.random.default_rng(1), 0.1
    wrong = sum(p_value((rng.random(300) < 0.8).astype(float), rng.beta(8, 2, 300)) <= alpha for _ in range(200))
    assert wrong <= binom.isf(1e-4, 200, alpha)


def test_evidence_of_many_nights_shows_what_one_does_not() -> None:
    rng = np.random.default_rng(2)
    before = (rng.random(20_000) < 0.90).astype(float)
    nights = [(rng.random(2_000) < 0.86).astype(float) for _ in range(10)]
    one, all_of_them = p_value(before, nights[0]), p_value(before, np.concatenate(nights))
    assert one > 1e-4 > 1e-7 > all_of_them
    assert p_value(np.concatenate(nights), before) == 1.0


def test_fisher_against_scipy() -> None:
    rng = np.random.default_rng(4)
    before, after = (rng.random(120) < 0.9).astype(float), (rng.random(200) < 0.8).astype(float)
    groups = np.zeros(120, int), np.zeros(200, int)
    found = unpaired_changes(before, after, groups, 1, bound=1.0, alpha=0.05, binary=True)
    table = [[before.sum(), 120 - before.sum()], [after.sum(), 200 - after.sum()]]
    assert found.worse[0] == pytest.approx(fisher_exact(table, alternative="greater").pvalue)
    assert found.better[0] == pytest.approx(fisher_exact(table, alternative="less").pvalue)


def test_by_group_with_limits_and_groups_that_one_side_lacks() -> None:
    rng = np.random.default_rng(3)
    groups = np.arange(4000) % 4
    before = np.where(groups == 1, 0.9, 0.7) + 0.1 * rng.random(4000)
    after = np.where(groups == 1, 0.5, 0.7) + 0.1 * rng.random(4000)
    keep = groups != 3
    found = unpaired_changes(before[keep], after, (groups[keep], groups), 4, bound=1.0, alpha=0.05)
    assert found.worse[1] < 1e-6 and found.better[1] == 1.0 and found.counts.tolist() == [1000, 1000, 1000, 0]
    assert math.isnan(found.worse[3]) and found.test == "unpaired betting"
    assert found.low[1] <= -0.4 <= found.high[1] and found.low[0] <= 0.0 <= found.high[0]
