"""The order of samples, and how many of each class come next."""

from __future__ import annotations

import numpy as np

from jobs.audit.early.order import Order, counts_at, first_level, next_level

LABELS = np.random.default_rng(0).integers(0, 4, 200)
EVERY = np.ones(4, dtype=bool)


def test_every_row_comes_once_and_a_smaller_part_is_within_a_larger_one() -> None:
    order = Order.of(LABELS, 5, seed=3)
    np.testing.assert_array_equal(np.sort(order.prefix(order.sizes)), np.arange(200))
    np.testing.assert_array_equal(order.sizes, np.bincount(LABELS, minlength=5))
    few, more = order.prefix(np.array([3, 0, 2, 1, 0])), order.prefix(np.array([5, 2, 2, 4, 0]))
    np.testing.assert_array_equal(LABELS[few], [0, 0, 0, 2, 2, 3])
    assert set(few) <= set(more)


def test_the_order_follows_the_seed_and_is_not_that_of_the_source() -> None:
    rows = np.concatenate(Order.of(LABELS, 4, seed=1).classes)
    np.testing.assert_array_equal(rows, np.concatenate(Order.of(LABELS, 4, seed=1).classes))
    assert (rows != np.concatenate(Order.of(LABELS, 4, seed=2).classes)).any()
    assert (np.diff(Order.of(LABELS, 4, seed=1).classes[0]) < 0).any()


def test_levels_rise_to_the_end() -> None:
    assert [first_level(k) for k in (2, 10, 1000)] == [50, 10, 1]
    level, seen = first_level(1000), []
    while level < 50:
        seen.append(level)
        level = next_level(level)
    assert len(seen) < 12 and seen == sorted(set(seen))


def test_only_wanted_classes_get_more_and_none_gets_fewer_or_more_than_it_has() -> None:
    counts, sizes = np.array([8, 8, 8, 2]), np.array([100, 12, 9, 2])
    wanted = np.array([False, True, True, True])
    np.testing.assert_array_equal(counts_at(15, counts, sizes, wanted, in_proportion=False), [8, 12, 9, 2])


def test_in_proportion_every_class_gets_its_share() -> None:
    sizes = np.array([400, 200, 100, 100])
    none = np.zeros(4, dtype=np.int64)
    result = counts_at(10, none, sizes, ~EVERY, in_proportion=True)
    np.testing.assert_array_equal(result, [20, 10, 5, 5])
