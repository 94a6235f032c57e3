"""Slices that nobody named: exact tests, none in noise, and planted ones are found."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom, hypergeom

from services.errors import MeasureError
from services.numerics.attributes.slices import SliceSearch, find_slices, stratified_tail


def test_the_tail_is_that_of_the_sum_of_hypergeometric_counts() -> None:
    size, wrong, inside = np.array([20, 9, 5]), np.array([6, 9, 0]), np.array([7, 3, 2])
    draws = np.random.default_rng(0).hypergeometric(wrong, size - wrong, inside, size=(200_000, 3)).sum(axis=1)
    for observed in range(3, 10):
        assert stratified_tail(observed, size, wrong, inside) == pytest.approx((draws >= observed).mean(), abs=0.005)
    alone = stratified_tail(4, size[:1], wrong[:1], inside[:1])
    assert alone == pytest.approx(float(hypergeom.sf(3, 20, 6, 7)))
    assert stratified_tail(0, size, wrong, inside) == 1.0


def searched(seed: int, planted: float = 0.0, n: int = 600, delta: float = 0.1) -> SliceSearch:
    """Failures that depend on the class alone, and in a corner of the embedding by `planted` more often."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, 5, n)
    embedding = draw.normal(size=(n, 8))
    corner = draw.random(n) < 0.12
    embedding[corner, 0] += 6
    bright = draw.random(n) + 0.3 * (labels == 2)
    fails = draw.random(n) < 0.1 + 0.15 * labels / 4 + planted * corner
    return find_slices(~fails, labels, {"brightness": bright}, embedding, delta=delta, seed=seed)


@pytest.mark.long
def test_in_noise_a_slice_is_named_at_most_as_often_as_delta_although_classes_differ() -> None:
    times, delta = 400, 0.1
    named = sum(bool(searched(seed, delta=delta).slices) for seed in range(times))
    assert named <= binom.isf(0.001, times, delta), f"{named} of {times}"


def test_a_planted_group_is_found_with_its_rate_and_failing_rows() -> None:
    hits = 0
    for seed in range(20):
        found = searched(1000 + seed, planted=0.5)
        for each in found.slices:
            assert each.rate < each.expected and each.rate_low <= each.rate <= each.rate_high
            assert each.wrong == len(each.rows) <= each.n
        hits += any(each.source == "embedding" and each.rate_high < 0.85 for each in found.slices)
    assert hits >= 19


def test_the_same_seed_finds_the_same_and_a_quarter_has_its_range() -> None:
    draw = np.random.default_rng(5)
    labels, bright = np.zeros(800, dtype=np.int64), draw.random(800)
    right = draw.random(800) > np.where(bright > 0.75, 0.6, 0.1)
    first, again = (find_slices(right, labels, {"brightness": bright}, None, delta=0.05, seed=3) for _ in range(2))
    assert [each.p for each in first.slices] == [each.p for each in again.slices]
    weakest = first.slices[0]
    assert weakest.source == "brightness" and weakest.high is None and 0.7 < (weakest.low or 0) < 0.8


def test_too_few_samples_constant_attributes_and_perfect_models_give_nothing() -> None:
    labels = np.zeros(10, dtype=np.int64)
    one = find_slices(np.zeros(10, dtype=bool), labels, {"x": np.arange(10.0)}, np.ones((10, 3)), delta=0.05, seed=0)
    assert one.slices == () and one.tested == 0
    labels = np.arange(400) % 4
    sure = find_slices(np.ones(400, dtype=bool), labels, {"x": np.ones(400)}, np.ones((400, 3)), delta=0.05, seed=0)
    assert sure.slices == () and sure.candidates == 0
    with pytest.raises(MeasureError, match="one value for each of 400 samples"):
        find_slices(np.ones(400, dtype=bool), labels, {"x": np.ones(3)}, None, delta=0.05, seed=0)
