"""Stratified, seeded, nested draws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.loading.samples.selection import apportioned, select, split_half

labels_of = st.lists(st.integers(0, 4), min_size=1, max_size=80).map(lambda values: np.array(values, dtype=np.int64))


@given(labels_of, st.integers(1, 10), st.integers(0, 3))
def test_per_class_takes_the_least_of_both(labels: np.ndarray, per_class: int, seed: int) -> None:
    rows = select(labels, 5, per_class=per_class, limit=None, seed=seed)
    counts = np.bincount(labels, minlength=5)
    assert np.array_equal(np.bincount(labels[rows], minlength=5), np.minimum(counts, per_class))
    assert np.all(np.diff(rows) > 0)


@given(labels_of, st.integers(1, 10), st.integers(0, 3))
def test_a_larger_draw_contains_the_smaller(labels: np.ndarray, per_class: int, seed: int) -> None:
    small = select(labels, 5, per_class=per_class, limit=None, seed=seed)
    large = select(labels, 5, per_class=per_class + 1, limit=None, seed=seed)
    assert set(small.tolist()) <= set(large.tolist())


def test_the_seed_decides_and_all_means_all() -> None:
    labels = np.repeat(np.arange(3), 40)
    first, again = (select(labels, 3, per_class=5, limit=None, seed=1) for _ in range(2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, select(labels, 3, per_class=5, limit=None, seed=2))
    assert np.array_equal(select(labels, 3, per_class=None, limit=500, seed=1), np.arange(120))


@pytest.mark.parametrize("seed", [0, 7])
def test_halves_are_disjoint_and_stratified(seed: int) -> None:
    labels = np.repeat(np.arange(4), [10, 11, 1, 6])
    train, test = (split_half(labels, part=part, seed=seed) for part in ("train", "test"))
    assert sorted([*train, *test]) == list(range(28))
    assert np.abs(np.bincount(labels[train], minlength=4) - np.bincount(labels[test], minlength=4)).max() <= 1


@given(labels_of, st.integers(1, 80), st.integers(0, 3))
def test_a_larger_limit_contains_the_smaller(labels: np.ndarray, limit: int, seed: int) -> None:
    small, large = (select(labels, 5, per_class=None, limit=size, seed=seed) for size in (limit, limit + 1))
    assert len(small) == min(limit, len(labels))
    assert set(small.tolist()) <= set(large.tolist())


@given(labels_of, st.integers(5, 80), st.integers(0, 3))
def test_a_limit_leaves_a_sample_of_every_class(labels: np.ndarray, limit: int, seed: int) -> None:
    rows = select(labels, 5, per_class=None, limit=limit, seed=seed)
    assert set(labels[rows].tolist()) == set(labels.tolist())


@given(labels_of, st.integers(1, 80))
def test_without_a_least_number_the_split_is_proportional(labels: np.ndarray, limit: int) -> None:
    counts = np.bincount(labels, minlength=5)
    quota = apportioned(counts, limit, least=0)
    exact = counts * min(limit, counts.sum()) / counts.sum()
    assert quota.sum() == min(limit, counts.sum())
    assert np.all(quota <= counts) and np.all(np.abs(quota - exact) <= 2)


def test_seats_are_webster_s() -> None:
    """The worked example of Balinski & Young, Fair Representation (1982): 26 seats; Webster gives 9, 8, 5, 3, 1."""
    counts = np.array([9061, 7179, 5259, 3319, 1182])
    assert apportioned(counts, 26, least=0).tolist() == [9, 8, 5, 3, 1]
