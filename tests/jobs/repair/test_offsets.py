"""Which offsets are tried next, and which of those tried is best."""

from __future__ import annotations

import numpy as np
import pytest

from jobs.repair.offsets import Tried, best_of, front, proposals

NAN = float("nan")


def tried(*scores: float, mean: float | None = None, offsets: tuple[float, ...] = ()) -> Tried:
    return Tried(offsets or (0.0,) * len(scores), scores, float(np.nanmean(scores)) if mean is None else mean)


def test_weak_classes_go_up_by_the_step_and_offsets_sum_to_nothing() -> None:
    (moved,) = proposals(tried(0.1, 0.5, 0.9), [2.0])
    assert moved == pytest.approx((2.0, 0.0, -2.0))
    further = proposals(tried(0.1, 0.5, 0.9, offsets=(1.0, 0.0, -1.0)), [1.0, 0.5])
    assert [pytest.approx(each) for each in further] == [(2.0, 0.0, -2.0), (1.5, 0.0, -1.5)]
    (skewed,) = proposals(tried(0.0, 0.8, 0.8, 0.8), [1.0])
    assert sum(skewed) == pytest.approx(0, abs=1e-3) and skewed[0] == max(skewed)


def test_a_class_without_samples_moves_with_the_mean_and_equal_classes_move_nothing() -> None:
    (moved,) = proposals(tried(0.2, NAN, 0.8), [1.0])
    assert moved == pytest.approx((1.0, 0.0, -1.0))
    assert proposals(tried(0.4, 0.4, NAN), [1.0]) == []


def test_the_best_has_the_best_worst_class_among_those_that_keep_the_mean() -> None:
    plain, fair, costly = tried(0.1, 0.9), tried(0.3, 0.65), tried(0.4, 0.4)
    assert best_of([plain, fair, costly], 0.45) == fair
    assert best_of([plain, fair, costly], 0.0) == costly
    stuck, moved = tried(0.0, 0.1, 0.9, 0.9), tried(0.0, 0.3, 0.8, 0.8)
    assert best_of([stuck, moved], 0.0) == moved, "the weaker half decides where the worst class is the same"


def test_the_front_has_no_point_that_another_beats_in_both() -> None:
    points = [tried(0.1, 0.9), tried(0.3, 0.6), tried(0.2, 0.5), tried(0.4, 0.4)]
    assert [(each.worst, each.mean) for each in front(points)] == [
        pytest.approx(pair) for pair in ((0.1, 0.5), (0.3, 0.45), (0.4, 0.4))
    ]
