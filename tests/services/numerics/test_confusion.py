"""Class order from a confusion matrix, and accuracy against chance."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom
from sklearn.metrics import confusion_matrix

from services.errors import MeasureError
from services.numerics.confusion import ClassOrder, class_order


def predictions(seed: int, k: int, n: int, accuracy: float) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, k, n)
    return labels, np.where(rng.random(n) < accuracy, labels, rng.integers(0, k, n))


@given(st.integers(0, 10**6), st.integers(3, 12), st.floats(0.75, 1.0))
def test_a_permuted_class_list_is_found(seed: int, k: int, accuracy: float) -> None:
    labels, predicted = predictions(seed, k, 60 * k, accuracy)
    order = np.random.default_rng(seed).permutation(k)
    result = class_order(confusion_matrix(labels, order[predicted], labels=range(k)))
    assert result.permutation == tuple(order)
    assert result.wrong_order == bool((order != np.arange(k)).any())
    assert result.explained >= 0.7
    assert result.moved == tuple(np.flatnonzero(order != np.arange(k)))


@given(st.integers(0, 10**6), st.integers(2, 12), st.integers(1, 300), st.floats(0.0, 1.0))
def test_right_order_is_not_called_wrong(seed: int, k: int, n: int, accuracy: float) -> None:
    labels, predicted = predictions(seed, k, n, accuracy)
    assert not class_order(confusion_matrix(labels, predicted, labels=range(k))).wrong_order


def test_two_swapped_classes_of_ten() -> None:
    labels, predicted = predictions(1, 10, 2000, 0.9)
    swap = np.arange(10)
    swap[[3, 5]] = swap[[5, 3]]
    order = class_order(confusion_matrix(labels, swap[predicted], labels=range(10)))
    assert order.wrong_order
    assert order.moved == (3, 5)
    assert order.accuracy < 0.75 < 0.85 < order.explained


def test_alphabetical_order_of_numbered_folders() -> None:
    """ImageFolder sorts names: '0', '1', '10', '11', '2', ...; the commonest way to meet this."""
    names = sorted(str(i) for i in range(12))
    labels, predicted = predictions(2, 12, 600, 0.8)
    order = class_order(confusion_matrix(np.array([names.index(str(y)) for y in labels]), predicted, labels=range(12)))
    assert order.wrong_order
    assert [int(name) for name in names] == list(order.permutation)


def test_a_collapsed_model_is_bad_not_permuted() -> None:
    labels = np.arange(500) % 5
    assert not class_order(confusion_matrix(labels, np.full(500, 3), labels=range(5))).wrong_order
    nothing = class_order(np.zeros((3, 3), dtype=int))
    assert not nothing.wrong_order
    assert nothing.permutation == (0, 1, 2)


def test_faults_are_named() -> None:
    with pytest.raises(MeasureError, match="square"):
        class_order(np.zeros((2, 3), dtype=int))


def test_a_class_order_whole() -> None:
    """Classes 1 and 2 of four are swapped; class 3 has no samples and stays."""
    counts = np.array([[40, 2, 1, 0], [1, 3, 39, 0], [0, 38, 4, 0], [0, 0, 0, 0]])
    assert class_order(counts) == ClassOrder((0, 2, 1, 3), 117 / 128, 47 / 128, (1, 2), True)
    assert class_order(counts, alpha=1e-30) == ClassOrder((0, 2, 1, 3), 117 / 128, 47 / 128, (1, 2), False)
    assert class_order(np.zeros((3, 3), int)) == ClassOrder((0, 1, 2), 0.0, 0.0, (), False)
    assert class_order(np.zeros((0, 0), int)) == ClassOrder((), 0.0, 0.0, (), False)
    assert all(type(k) is int for k in class_order(counts).permutation + class_order(counts).moved)


def test_ties_stay_in_place() -> None:
    """Every order explains a table of ones alike."""
    assert class_order(np.ones((5, 5), int)) == ClassOrder((0, 1, 2, 3, 4), 0.2, 0.2, (), False)


def test_the_evidence_is_a_sign_test_over_the_moved_classes_and_all_pairs() -> None:
    """11 of 11 and 2 of 2 samples of two classes speak for a swap: p = 2**-13, times the 3 pairs of 3 classes."""
    counts = np.array([[0, 11, 0], [2, 0, 0], [0, 0, 50]])
    p = 0.5**13
    assert class_order(counts, alpha=3 * p * 1.01).wrong_order
    assert not class_order(counts, alpha=3 * p * 0.99).wrong_order
    against = np.array([[3, 11, 0], [2, 0, 0], [0, 0, 50]])
    p = binom.sf(12, 16, 0.5)
    assert class_order(against, alpha=3 * p * 1.01).wrong_order
    assert not class_order(against, alpha=3 * p * 0.99).wrong_order
    assert not class_order(counts[:2, :2], alpha=0.5**13).wrong_order
    assert class_order(counts[:2, :2], alpha=0.5**13 * 1.01).wrong_order


def test_half_of_the_moved_samples_is_no_majority() -> None:
    half = np.array([[0, 30, 30], [30, 0, 30], [0, 0, 90]])
    assert not class_order(half, alpha=0.5).wrong_order
    half[0, 1] += 1
    assert class_order(half, alpha=0.5).wrong_order
