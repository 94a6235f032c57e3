"""Counts of signs from columns: each sample counts where it should, and only there."""

from __future__ import annotations

import numpy as np
import pytest

from services.errors import MeasureError
from services.numerics.evidence.adequacy import Sign, SignCount
from services.numerics.evidence.signs import paired_count, probe_counts, rate_count, unsettled


def test_pairs_of_correctly_classified_samples() -> None:
    """A naive loop is the oracle; noise counts as broken when one draw of many was."""
    rng = np.random.default_rng(0)
    correct, attack = rng.random(200) < 0.8, (rng.random(200) < 0.5).astype(float)
    noise = rng.choice([1.0, 0.99, 0.3], 200)
    against = favour = 0
    for right, stands, survived in zip(correct, attack, noise, strict=True):
        against += right and stands == 1 and survived < 1
        favour += right and stands == 0 and survived == 1
    assert paired_count(Sign.NOISE, correct, attack, noise) == SignCount(Sign.NOISE, against, correct.sum(), favour)


def test_rates_are_of_the_counted_samples() -> None:
    assert rate_count(Sign.ZERO_GRADIENT, [1, 1, 0, 1], [1, 0, 1, 1]) == SignCount(Sign.ZERO_GRADIENT, 2, 3)


@pytest.mark.parametrize("columns", [([1, 1], [1], [1, 1]), ([1, 1], [1, 1], [[1, 1]])])
def test_columns_of_other_lengths(columns: tuple[list[int], ...]) -> None:
    with pytest.raises(MeasureError, match="columns of one length"):
        paired_count(Sign.NOISE, *columns)


FIRST = {
    "id": np.arange(6),
    "stands": np.array([1, 1, 1, 1, 0, 0]),
    "zero-gradient": np.array([1, 0, 0, 0, 0, 1]),
    "weaker-than-other-loss:margin": np.array([1, 0, 0, 0, 0, 1]),
    "weaker-than-other-loss:dlr": np.array([1, 1, 0, 0, -1, -1]),
    "weaker-than-noise": np.array([0, 0, 0, 0, -1, -1]),
    "survives-unbounded": np.array([1, -1, 0, 0, -1, -1]),
    "weaker-than-black-box": np.full(6, -1),
}


def test_counts_of_a_probe() -> None:
    """What nobody looked at is in no count; the other side of a pair is unknown until somebody looks."""
    counts = list(probe_counts(FIRST))
    assert counts == [
        SignCount(Sign.ZERO_GRADIENT, 2, 6, probe=True),
        SignCount(Sign.OTHER_LOSS, 1, 6, 1, probe=True),
        SignCount(Sign.OTHER_LOSS, 2, 6, None, probe=True),
        SignCount(Sign.NOISE, 0, 6, None, probe=True),
        SignCount(Sign.UNBOUNDED, 1, 3, probe=True),
    ]
    second = {"stands": np.ones(2), "weaker-than-other-loss:dlr": np.array([1, 0])}
    assert list(probe_counts(FIRST, second))[2] == SignCount(Sign.OTHER_LOSS, 2, 6, 1, probe=True)


def test_the_other_side_is_looked_for_only_where_it_may_matter() -> None:
    assert unsettled(FIRST) == set(), "two samples of any number are no sign"
    many = {
        "stands": np.array([1] * 9 + [0]),
        "weaker-than-noise": np.array([1] * 9 + [-1]),
        "weaker-than-shorter": np.array([1] * 9 + [0]),
        "weaker-than-black-box": np.array([1] * 3 + [0] * 6 + [-1]),
    }
    assert unsettled(many) == {Sign.NOISE}


def test_a_probe_of_which_all_stand_has_no_other_side() -> None:
    (count,) = probe_counts({"stands": np.ones(3), "weaker-than-noise": np.array([1, 0, 0])})
    assert count == SignCount(Sign.NOISE, 1, 3, 0, probe=True)
