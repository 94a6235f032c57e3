"""Samples in clusters: means a cluster and group against a loop, and one sample of each cluster."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.numerics.change import changes
from services.numerics.intervals.clusters import cluster_means, one_of_each
from services.numerics.paired import mean_difference

ROWS = st.lists(
    st.tuples(st.floats(0, 1, allow_subnormal=False), st.integers(0, 3), st.integers(0, 5)), min_size=1, max_size=40
)


@given(rows=ROWS)
def test_means_are_those_of_a_loop(rows: list[tuple[float, int, int]]) -> None:
    values, groups, clusters = (np.array(column) for column in zip(*rows, strict=True))
    means, of = cluster_means(values, groups, clusters)
    pairs = sorted({(g, c) for _, g, c in rows})
    assert of.tolist() == [group for group, _ in pairs]
    for mean, (group, cluster) in zip(means, pairs, strict=True):
        mine = [v for v, g, c in rows if (g, c) == (group, cluster)]
        assert mean == pytest.approx(sum(mine) / len(mine), abs=1e-12)
        assert mean <= max(mine) + 1e-12 and means.max() <= values.max()


@given(rows=ROWS, seed=st.integers(0, 99))
def test_one_sample_of_each_cluster(rows: list[tuple[float, int, int]], seed: int) -> None:
    clusters = np.array([cluster for _, _, cluster in rows])
    chosen = one_of_each(clusters, seed)
    assert sorted(clusters[chosen].tolist()) == sorted(set(clusters.tolist()))
    assert (np.diff(chosen) > 0).all()


def test_any_sample_of_a_cluster_may_be_the_one() -> None:
    clusters = np.repeat(np.arange(500), 4)
    place = one_of_each(clusters, 1) % 4
    assert (np.bincount(place, minlength=4) > 80).all()


def test_a_comparison_of_clusters_is_that_of_their_means() -> None:
    """Every pair four times, and the numbers of one audit are those of each pair once."""
    rng = np.random.default_rng(0)
    before, after, groups = rng.random(60), rng.random(60), rng.integers(0, 3, 60)
    many = [np.repeat(each, 4) for each in (before, after, groups, np.arange(60))]
    plain = changes(before, after, groups, 3, bound=1.0, alpha=0.05, seed=0)
    clustered = changes(*many[:3], 3, bound=1.0, alpha=0.05, clusters=many[3], seed=0)
    assert clustered.counts.tolist() == plain.counts.tolist()
    np.testing.assert_allclose(clustered.difference, plain.difference, atol=1e-12)
    wide = mean_difference(before, after, bound=1.0, alpha=0.05)
    narrow = mean_difference(*many[:2], bound=1.0, alpha=0.05)
    same = mean_difference(*many[:2], bound=1.0, alpha=0.05, clusters=many[3])
    assert (same.value, same.low, same.high) == pytest.approx((wide.value, wide.low, wide.high), abs=1e-9)
    assert narrow.high < same.high - 0.02


def test_mcnemar_is_not_asked_of_means() -> None:
    clusters = np.repeat(np.arange(30), 5)
    before, after = np.ones(150), np.zeros(150)
    found = changes(before, after, np.zeros(150, int), 1, bound=1.0, alpha=0.05, binary=True, clusters=clusters)
    assert found.test == "betting" and found.counts.tolist() == [30] and found.worse[0] < 0.05
