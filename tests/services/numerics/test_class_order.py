"""Another class order: never called where confusion is honest, found where it is not."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from benchmarks.orders import KINDS, honest, permuted, rates
from services.errors import MeasureError
from services.numerics.class_order import Certainty, ClassOrder, class_order

SIZES = (2, 10, 100, 1000)


def counted(matrix: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Labels and predictions with these confusion counts."""
    cells = np.repeat(np.arange(np.size(matrix)), np.ravel(matrix))
    return cells // len(matrix), cells % len(matrix)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES)
def test_honest_confusion_is_never_called_another_order(size: int, kind: str) -> None:
    """Reduced; `python -m benchmarks.orders` runs the whole grid."""
    for per_class in (2, 5, 50):
        for accuracy in (0.1, 0.34, 0.5, 0.76, 0.95):
            if accuracy >= 1 / size:
                assert rates(size, per_class, accuracy, kind, "none", times=10 if size < 1000 else 1) == 0.0


@pytest.mark.parametrize("size", (*SIZES, 5000))
def test_a_swapped_pair_and_a_rotation_are_found_at_50_a_class(size: int) -> None:
    times = 100 if size < 100 else 5
    assert rates(size, 50, 0.8, "even", "swap", times=times) >= 0.99
    assert rates(size, 50, 0.8, "even", "rotation", times=times) == 1.0
    assert rates(size, 50, 0.8, "even", "run", times=times) >= 0.99


def test_a_rotation_of_many_classes_is_found_with_two_samples_a_class() -> None:
    assert rates(1000, 2, 0.6, "even", "rotation", times=10) == 1.0


@given(st.integers(0, 10**6), st.integers(2, 12), st.integers(1, 300), st.floats(0.0, 1.0))
def test_right_order_is_not_called_wrong(seed: int, k: int, n: int, share: float) -> None:
    """A mixture of the label and a draw of all classes: the label is never behind another class."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, k, n)
    predicted = np.where(rng.random(n) < share, labels, rng.integers(0, k, n))
    assert class_order(labels, predicted, k).certainty is not Certainty.CERTAIN


@given(st.integers(0, 10**6), st.integers(3, 12))
def test_any_order_is_found_with_its_classes(seed: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    labels, guess = honest(rng, k, 60, 0.9, "even")
    order = rng.permutation(k)
    found = class_order(labels, order[guess], k)
    moved = np.flatnonzero(order != np.arange(k))
    assert found.moved == tuple(moved) and found.to == tuple(order[moved])
    assert (found.certainty is Certainty.CERTAIN) == bool(moved.size)
    assert found.explained == pytest.approx(np.mean(guess == labels))


def test_numbered_folders_sorted_as_text() -> None:
    """'0', '1', '10', '11', '2', ...: the commonest way to meet this, found with three samples a class."""
    names = sorted(range(200), key=str)
    rng = np.random.default_rng(0)
    labels, guess = honest(rng, 200, 3, 0.8, "even")
    found = class_order(labels, np.array(names)[guess], 200)
    assert found.certainty is Certainty.CERTAIN
    assert all(names[k] == j for k, j in zip(found.moved, found.to, strict=True))


def test_an_attacked_network_is_possibly_but_not_certainly_permuted() -> None:
    """Two pairs of classes turn into each other, the others are wrong everywhere: no other order makes it good."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(10), 50)
    predicted = (labels + rng.integers(1, 10, 500)) % 10
    predicted[labels < 4] = labels[labels < 4] ^ 1
    found = class_order(labels, predicted, 10)
    assert found.certainty is Certainty.POSSIBLE and found.moved == (0, 1, 2, 3)
    good = np.where(labels < 4, predicted, labels)
    assert class_order(labels, good, 10).certainty is Certainty.CERTAIN


def test_no_order_makes_an_attacked_network_good() -> None:
    """Real networks under strong attacks: never right, a fifth of the samples in the next class."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(10), 50)
    predicted = (labels + np.where(rng.random(500) < 0.3, 1, rng.integers(1, 10, 500))) % 10
    found = class_order(labels, predicted, 10)
    assert found.certainty is Certainty.POSSIBLE and found.accuracy == 0.0 and found.explained < 0.5


def test_few_samples_are_a_possibility() -> None:
    labels, predicted = counted([[0, 9, 0], [9, 0, 0], [0, 0, 9]])
    assert class_order(labels, predicted, 3).certainty is Certainty.POSSIBLE


def test_the_evidence_is_a_binomial_tail_times_the_kinds_of_moves() -> None:
    """20 of 20 samples of two of three classes: (2/3)^20; 3 * 4 + 3 moves of a list, half of the level for these."""
    labels, predicted = counted([[0, 12, 0], [8, 0, 0], [0, 0, 50]])
    limit = 2 * (2 / 3) ** 20 * 3 * 2**2
    assert class_order(labels, predicted, 3, level=limit * 1.01).certainty is Certainty.CERTAIN
    assert class_order(labels, predicted, 3, level=limit * 0.99).certainty is not Certainty.CERTAIN


@given(st.integers(1, 80), st.integers(0, 80))
def test_the_tail_is_bounded_from_above(moved: int, stay: int) -> None:
    """What passes at a level passes the exact binomial tail at that level, after the same union."""
    labels, predicted = counted([[stay, moved], [moved, stay]])
    exact = float(binom.sf(2 * moved - 1, 2 * (moved + stay), 0.5))
    level = min(0.9, max(1e-300, 2 * 4 * exact * 0.99))
    if level < 0.9:
        assert class_order(labels, predicted, 2, level=level).certainty is not Certainty.CERTAIN


def test_a_collapsed_model_is_bad_not_permuted() -> None:
    labels = np.arange(500) % 5
    assert class_order(labels, np.full(500, 3), 5).certainty is Certainty.NONE
    nothing = class_order(np.zeros(0, int), np.zeros(0, int), 3)
    assert nothing == ClassOrder((), (), 0.0, 0.0, Certainty.NONE)


def test_classes_without_samples_and_failed_predictions_are_left_out() -> None:
    labels, predicted = counted([[40, 2, 1, 0], [1, 0, 39, 0], [0, 40, 0, 0], [0, 0, 0, 0]])
    found = class_order(np.append(labels, 1), np.append(predicted, -1), 4)
    assert found == ClassOrder((1, 2), (2, 1), 40 / 123, 119 / 123, Certainty.CERTAIN)
    assert all(type(k) is int for k in found.moved + found.to)


def test_five_thousand_classes_take_less_than_a_second() -> None:
    labels, guess = honest(np.random.default_rng(0), 5000, 50, 0.5, "pairs")
    start = time.process_time()
    class_order(labels, guess, 5000)
    assert time.process_time() - start < 1.0


def test_permutations_of_the_simulation_are_what_they_say() -> None:
    rng = np.random.default_rng(0)
    every = np.arange(9)
    assert int(np.sum(permuted(rng, 9, "swap") != every)) == 2
    assert len(set((permuted(rng, 9, "rotation") - every) % 9)) == 1
    assert sorted(permuted(rng, 9, "run")) == list(every)


def test_an_honest_partner_is_at_most_twice_as_frequent() -> None:
    labels, guess = honest(np.random.default_rng(0), 10, 20_000, 0.1, "pairs")
    assert np.mean(guess == labels) == pytest.approx(0.1, abs=0.01)
    assert np.mean(guess == labels ^ 1) == pytest.approx(0.2 + 0.7 / 9, abs=0.09)


def test_faults_are_named() -> None:
    with pytest.raises(MeasureError, match="labels"):
        class_order(np.array([0, 3]), np.array([0, 1]), 3)
    with pytest.raises(MeasureError, match="predicted"):
        class_order(np.array([0, 2]), np.array([0, 3]), 3)
    with pytest.raises(MeasureError, match="at least two"):
        class_order(np.array([0]), np.array([0]), 1)
    assert math.isfinite(class_order(np.array([0, 1]), np.array([0, 1]), 2).explained)
