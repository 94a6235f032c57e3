"""Counts of signs from columns: each sample counts where it should, and only there."""

from __future__ import annotations

import numpy as np
import pytest

from services.errors import MeasureError
from services.numerics.evidence.adequacy import Sign, SignCount
from services.numerics.evidence.signs import by_class, paired_count, probe_counts, rate_count, suspects, unsettled


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
    assert unsettled(FIRST) == {}, "two samples of any number are no sign"
    many = {
        "stands": np.array([1] * 9 + [0]),
        "weaker-than-noise": np.array([1] * 9 + [-1]),
        "weaker-than-shorter": np.array([1] * 9 + [0]),
        "weaker-than-black-box": np.array([1] * 3 + [0] * 6 + [-1]),
    }
    assert unsettled(many) == {"weaker-than-noise": 1}, "nine against two are none"
    assert unsettled({"stands": many["stands"], "weaker-than-other-loss:dlr": many["weaker-than-noise"]}) == {
        "weaker-than-other-loss:dlr": 1
    }


def test_another_side_that_was_left_when_it_said_enough_counts_as_unknown() -> None:
    first = {"stands": np.array([1] * 9 + [0] * 4), "weaker-than-noise": np.array([1] * 9 + [-1] * 4)}
    second = {"stands": np.zeros(4), "weaker-than-noise": np.array([0, 0, -1, -1])}
    (count,) = probe_counts(first, second)
    assert count == SignCount(Sign.NOISE, 9, 13, None, probe=True) and count.p_value == 1.0


def test_a_probe_of_which_all_stand_has_no_other_side() -> None:
    (count,) = probe_counts({"stands": np.ones(3), "weaker-than-noise": np.array([1, 0, 0])})
    assert count == SignCount(Sign.NOISE, 1, 3, 0, probe=True)


def test_counts_by_class_are_those_of_the_samples_of_each() -> None:
    rng = np.random.default_rng(2)
    labels, correct = rng.choice([0, 1, 4], 300), rng.random(300) < 0.8
    stands, left = (rng.random(300) < 0.5).astype(float), rng.choice([1.0, 0.5], 300)
    correct[labels == 1] = False
    paired, rates = (
        list(by_class(Sign.NOISE, labels, correct, stands, left)),
        list(by_class(Sign.ZERO_GRADIENT, labels, correct, stands)),
    )
    assert [count.label for count in paired] == [0, 4], "of class 1 there is nothing to look at"
    for count, rate in zip(paired, rates, strict=True):
        mine = labels == count.label
        whole = paired_count(Sign.NOISE, correct[mine], stands[mine], left[mine])
        assert (count.against, count.counted, count.favour) == (whole.against, whole.counted, whole.favour)
        assert (count.part, rate.part) == (f"class {count.label}",) * 2
        assert (rate.against, rate.counted) == (int((correct & (stands > 0))[mine].sum()), whole.counted)
    with pytest.raises(MeasureError, match="columns of one length"):
        list(by_class(Sign.NOISE, labels[1:], correct, stands, left))


PARTED = {
    "id": np.arange(6),
    "label": np.array([0, 0, 0, 1, 1, 2]),
    "stands": np.array([1, 1, 1, 1, 0, 0]),
    "unpredictive-gradient": np.array([1, 1, 0, 0, 0, 1]),
    "unpredictive-gradient:channel 1": np.array([1, 1, -1, -1, -1, -1]),
    "unpredictive-gradient:channel 2": np.array([-1, -1, 0, -1, 1, -1]),
    "weaker-than-noise": np.array([1, 0, 1, 0, -1, -1]),
}


def test_counts_of_parts_and_classes() -> None:
    wide = {"label": np.array([2, 2, 3]), "unpredictive-gradient": np.array([1, 0, 0])}
    found = {(count.sign, count.part): count for count in probe_counts(PARTED, classes=[wide])}
    unpredictive = {part: found[Sign.UNPREDICTIVE, part] for sign, part in found if sign is Sign.UNPREDICTIVE}
    assert {part: (count.against, count.counted) for part, count in unpredictive.items()} == {
        "": (3, 6),
        "channel 1": (2, 2),
        "channel 2": (1, 2),
        "class 0": (2, 3),
        "class 1": (0, 2),
        "class 2": (2, 3),
        "class 3": (0, 1),
    }
    fallen = found[Sign.NOISE, "class 0"]
    assert (fallen.against, fallen.counted, fallen.favour, fallen.label) == (2, 3, None, 0)
    assert (Sign.NOISE, "class 1") not in found, "nothing fell there"
    assert {count.part for count in suspects(found.values())} == {"channel 1", "class 0", "class 2"}


def test_a_suspect_part_is_counted_where_it_was_looked_at_again() -> None:
    again = {"unpredictive-gradient:channel 1": np.array([1, 0, 0, 0, 0, -1])}
    found = {count.part: count for count in probe_counts(PARTED, parts=again)}
    assert (found["channel 1"].against, found["channel 1"].counted) == (1, 5)
    assert (found["channel 2"].against, found["channel 2"].counted) == (1, 2)
