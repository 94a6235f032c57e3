"""The simulated year and the audits that obey: short runs, and what they would say of a broken promise."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import decide, obeyed, year
from services.records import Outcome


def test_levels_of_a_year_add_up_to_less_than_delta() -> None:
    spent = year.levels(year.NIGHTS)
    assert 0 < spent.sum() < year.DELTA and (np.diff(spent) < 0).all()


@pytest.mark.parametrize("kind", [year.new_versions, year.fresh_samples])
def test_a_drop_is_found_within_a_week_and_equal_versions_are_not_worse(kind: type) -> None:
    week = year.levels(year.WEEK)
    rng = np.random.default_rng(0)
    _, dropped = year.year(kind(1000, year.DROP, rng), year.WEEK)
    nothing, _ = year.year(kind(1000, 0.0, rng), year.WEEK)
    assert (dropped <= week).any() and not (nothing <= week).any()
    assert (nothing > 0).all()


def test_a_ratchet_is_caught_by_the_first_accepted_audit_alone() -> None:
    with_first, without = (year.ratchet(first, np.random.default_rng(1), nights=12) for first in (True, False))
    assert with_first < 0.02 < without


def test_the_reserve_keeps_a_lucky_version_from_promotion() -> None:
    kept, plain = (
        np.mean([year.promoted(kept, np.random.default_rng([2, run])) for run in range(12)]) for kept in (True, False)
    )
    assert kept == 0.0 <= plain


@pytest.mark.parametrize("metric", obeyed.METRICS)
def test_an_audit_that_obeys_ends_with_the_right_verdict_or_none(metric: str) -> None:
    far = next(
        each
        for each in decide.settings(10)
        if each.metric == metric and each.place == "slightly beyond" and each.binary
    )
    outcome, count = obeyed.obey(far, obeyed.anytime_config(), np.random.default_rng(3))
    assert outcome is not far.wrong and count >= obeyed.FIRST * 10
    assert outcome in (Outcome.PASS, Outcome.FAIL, Outcome.UNDECIDED)
