"""How far the chosen temperature depends on the samples: groups drawn again, whatever the shards."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from services.numerics.calibration import Grid, resampled_range
from services.numerics.temperature import ClassCurve, GroupedCurve, group_of

GRID = Grid(low=0.1, high=5.0, step=0.1, fine_step=0.01)
NODES = GRID.nodes("sigmoid")
CLASSES = 5


def answers(count: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Logits and labels of a network that finds each class harder than the one before."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, CLASSES, count)
    logits = draw.normal(0, 1.5, (count, CLASSES))
    logits[np.arange(count), labels] += 4 - 0.6 * labels
    return logits, labels


def grouped(count: int, seed: int, groups: int = 20) -> GroupedCurve:
    logits, labels = answers(count, seed)
    ids = np.arange(count)
    return GroupedCurve.from_logits(logits, labels, ids, CLASSES, groups=groups, nodes=NODES, activation="sigmoid")


def test_the_groups_together_are_the_samples() -> None:
    logits, labels = answers(500, 1)
    whole = ClassCurve.from_logits(logits, labels, CLASSES, nodes=NODES, activation="sigmoid")
    together = grouped(500, 1).whole
    np.testing.assert_allclose(together.sums, whole.sums, rtol=1e-12)
    assert (together.counts == whole.counts).all() and (together.correct == whole.correct).all()


def test_shards_may_be_cut_anywhere() -> None:
    logits, labels = answers(300, 2)
    ids = np.random.default_rng(0).permutation(10_000)[:300]

    def part(rows: slice) -> GroupedCurve:
        return GroupedCurve.from_logits(
            logits[rows], labels[rows], ids[rows], CLASSES, groups=7, nodes=NODES, activation="sigmoid"
        )

    whole, cut = part(slice(None)), GroupedCurve.merge([part(slice(0, 41)), part(slice(41, 300))])
    for one, other in zip(whole.groups, cut.groups, strict=True):
        np.testing.assert_allclose(one.sums, other.sums, rtol=1e-12)
        assert (one.counts == other.counts).all()


def test_arrays_lead_back() -> None:
    curve = grouped(100, 3, groups=4)
    again = GroupedCurve.from_arrays(curve.arrays(), NODES, 4)
    for one, other in zip(curve.groups, again.groups, strict=True):
        assert (one.sums == other.sums).all() and (one.correct == other.correct).all()


@pytest.mark.parametrize("ids", [np.arange(20_000), 10 * np.arange(20_000), 1_000_003 * np.arange(20_000)])
def test_groups_are_alike_in_size_whatever_the_ids(ids: NDArray[np.int64]) -> None:
    counts = np.bincount(group_of(ids, 20), minlength=20)
    assert ((counts - 1_000) ** 2 / 1_000).sum() < 60, "chi-square with 19 degrees of freedom"
    classes = np.bincount(group_of(ids[::10], 20), minlength=20)
    assert ((classes - 100) ** 2 / 100).sum() < 60, "and within a class that is every tenth id"


def test_a_draw_has_the_mean_and_the_spread_of_other_samples() -> None:
    """Over draws, class means vary about as those of other samples do."""
    at = np.array([1.0])
    curve = grouped(4_000, 4)
    drawn = np.array([curve.resampled(np.random.default_rng(i)).means(at)[0] for i in range(400)])
    fresh = np.array([grouped(4_000, 100 + i, groups=1).whole.means(at)[0] for i in range(100)])
    np.testing.assert_allclose(drawn.mean(axis=0), curve.whole.means(at)[0], atol=4 * drawn.std(axis=0).max() / 20)
    assert (drawn.std(axis=0) / fresh.std(axis=0) > 0.5).all() and (drawn.std(axis=0) / fresh.std(axis=0) < 2).all()


@pytest.mark.long
def test_more_samples_narrow_the_range() -> None:
    def width(count: int) -> float:
        curves = [grouped(count, seed) for seed in range(4)]
        found = resampled_range("class-accuracy", curves, grid=GRID)
        assert found is not None and GRID.low <= found[0] <= found[1] <= GRID.high
        return found[1] - found[0]

    assert width(100) > width(20_000)


def test_nothing_is_claimed_where_nothing_can_be_drawn() -> None:
    curves = [grouped(200, seed, groups=1) for seed in range(3)]
    assert resampled_range("class-accuracy", curves, grid=GRID) is None, "one group"
    many = [grouped(200, seed) for seed in range(2)]
    assert resampled_range("fixed", many, grid=GRID) is None
    assert resampled_range("fleet-accuracy", many, grid=GRID) is None, "two models have no rank correlation"
    assert resampled_range("fleet-accuracy", [], grid=GRID) is None
