"""Local GREAT scores against arbitrary-precision and naive evaluation."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from services.errors import MeasureError
from services.numerics.scores import GREAT_BOUND, SATURATION, great_scores, offset_free_scores, predictions

ACTIVATIONS = ["sigmoid", "softmax"]


def naive(logits: np.ndarray, labels: np.ndarray, temperature: float, activation: str) -> np.ndarray:
    """The published way, sample by sample, in float64."""
    out = []
    for z, y in zip(logits.astype(np.float64) / temperature, labels, strict=True):
        s = 1 / (1 + np.exp(-z)) if activation == "sigmoid" else np.exp(z - z.max()) / np.exp(z - z.max()).sum()
        out.append(GREAT_BOUND * max(s[y] - max(s[j] for j in range(len(z)) if j != y), 0.0))
    return np.array(out)


def sample(seed: int, n: int = 400, k: int = 10) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    logits = rng.normal(scale=2, size=(n, k)).astype(np.float32)
    labels = rng.integers(0, k, n)
    logits[np.arange(n), labels] += 3
    return logits, labels


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("temperature", [0.1, 1.0, 2.7, 10.0])
def test_equals_the_naive_loop(activation: str, temperature: float) -> None:
    logits, labels = sample(1)
    found = great_scores(logits, labels, temperature=temperature, activation=activation)
    np.testing.assert_allclose(found.scores, naive(logits, labels, temperature, activation), atol=1e-14)
    np.testing.assert_array_equal(predictions(logits), logits.argmax(axis=1))
    np.testing.assert_array_equal(found.correct, logits.argmax(axis=1) == labels)


@pytest.mark.parametrize(("a", "b"), [(30.0, 25.0), (1.0, 1.0 - 2**-20), (-25.0, -30.0), (700.0, 0.0), (40.0, -40.0)])
def test_does_not_cancel(a: float, b: float) -> None:
    """Exact rational arithmetic on Taylor-free exponentials: exp is taken to 60 digits by squaring."""

    def exp(x: Fraction) -> Fraction:
        y, term, total = x / 2**12, Fraction(1), Fraction(1)
        for i in range(1, 30):
            term = term * y / i
            total += term
        for _ in range(12):
            total = Fraction(round(total * total * 10**400), 10**400)
        return total

    exact = 1 / (1 + exp(Fraction(-a))) - 1 / (1 + exp(Fraction(-b)))
    found = great_scores(np.array([[a, b]]), np.array([0]), temperature=1.0, activation="sigmoid").scores[0]
    assert found == pytest.approx(GREAT_BOUND * float(exact), rel=4e-15 * max(1.0, abs(a)))
    assert found > 0


def test_float32_evaluation_loses_what_is_kept_and_the_sample_is_called_saturated() -> None:
    z = np.array([[30.0, 25.0]], dtype=np.float32)
    single = np.float32(1) / (np.float32(1) + np.exp(-z))
    assert single[0, 0] - single[0, 1] == 0.0
    found = great_scores(z, np.array([0]), temperature=1.0, activation="sigmoid")
    assert 1e-11 < found.scores[0] < 2e-11
    assert found.saturated[0]


def test_saturated_wherever_float32_gives_the_ends() -> None:
    rng = np.random.default_rng(3)
    z = rng.normal(scale=12, size=(3000, 2)).astype(np.float32)
    z = -np.sort(-z, axis=1)
    single = np.float32(1) / (np.float32(1) + np.exp(-z))
    margin = single[:, 0] - single[:, 1]
    found = great_scores(z, np.zeros(3000, dtype=int), temperature=1.0, activation="sigmoid")
    at_end = found.correct & ((margin == 0) | (margin == 1))
    assert at_end.sum() > 50
    assert found.saturated[at_end].all()
    np.testing.assert_array_equal(
        found.saturated,
        (found.scores <= GREAT_BOUND * SATURATION) & found.correct | (found.scores >= GREAT_BOUND * (1 - SATURATION)),
    )
    assert not great_scores(
        np.array([[2.0, 0.0]]), np.array([0]), temperature=1.0, activation="sigmoid"
    ).saturated.any()


def test_ties_mistakes_and_non_finite_logits_score_nothing() -> None:
    z = np.array([[1, 1, 0], [0, 2, 1], [np.nan, 0, 5], [np.inf, 0, 0], [3, -np.inf, 0], [3, 1, 0]], dtype=np.float32)
    for activation in ACTIVATIONS:
        found = great_scores(z, np.zeros(6, dtype=int), temperature=1.0, activation=activation)
        np.testing.assert_array_equal(found.correct, [False] * 5 + [True])
        np.testing.assert_array_equal(found.finite, [True, True, False, False, False, True])
        np.testing.assert_array_equal(predictions(z), [0, 1, -1, -1, -1, 0])
        assert (found.scores[:5] == 0).all()
        assert found.scores[5] > 0
        assert not found.saturated[:5].any()


def test_extreme_temperatures_and_logits_stay_in_range() -> None:
    z = np.array([[3e38, -3e38], [1e-30, 0.0], [-700.0, -800.0], [800.0, 710.0], [3e38, 2.9e38]])
    for activation in ACTIVATIONS:
        for temperature in (1e-3, 1.0, 1e6):
            found = great_scores(z, np.zeros(5, dtype=int), temperature=temperature, activation=activation)
            assert np.isfinite(found.scores).all()
            assert ((found.scores >= 0) & (found.scores <= GREAT_BOUND)).all()
            assert found.correct.all()


@given(st.integers(0, 10**6), st.sampled_from(ACTIVATIONS), st.floats(0.02, 20), st.floats(-50, 50))
def test_offset_free_does_not_see_an_offset(seed: int, activation: str, temperature: float, offset: float) -> None:
    logits, labels = sample(seed, 20, 4)
    logits = np.round(logits.astype(np.float64), 3)
    first = offset_free_scores(logits, labels, temperature=temperature, activation=activation)
    second = offset_free_scores(logits + round(offset), labels, temperature=temperature, activation=activation)
    np.testing.assert_allclose(first, second, atol=1e-10)
    plain = great_scores(logits, labels, temperature=temperature, activation=activation).scores
    if activation == "softmax":
        np.testing.assert_allclose(first, plain, atol=1e-10)


@given(
    hnp.arrays(np.float32, st.tuples(st.integers(1, 30), st.integers(2, 6)), elements=st.floats(-50, 50, width=32)),
    st.randoms(use_true_random=False),
)
def test_samples_do_not_see_each_other(logits: np.ndarray, random) -> None:
    labels = np.array([random.randrange(logits.shape[1]) for _ in range(len(logits))])
    order = np.array(random.sample(range(len(logits)), len(logits)))
    for activation in ACTIVATIONS:
        whole = great_scores(logits, labels, temperature=0.7, activation=activation)
        mixed = great_scores(logits[order], labels[order], temperature=0.7, activation=activation)
        np.testing.assert_array_equal(whole.scores[order], mixed.scores)
        assert ((whole.scores > 0) <= whole.correct).all()
        assert whole.scores.max() <= GREAT_BOUND


def test_many_classes_are_chunked_alike() -> None:
    logits, labels = sample(5, 700, 1000)
    for activation in ACTIVATIONS:
        whole = great_scores(logits, labels, temperature=1.0, activation=activation).scores
        np.testing.assert_array_equal(
            whole[:3], great_scores(logits[:3], labels[:3], temperature=1.0, activation=activation).scores
        )
        np.testing.assert_allclose(whole[:50], naive(logits[:50], labels[:50], 1.0, activation), atol=1e-14)


def test_no_samples_give_no_scores() -> None:
    found = great_scores(np.zeros((0, 3)), np.zeros(0, dtype=int), temperature=1.0, activation="sigmoid")
    assert found.scores.shape == found.correct.shape == (0,)


@pytest.mark.parametrize(
    ("logits", "labels", "temperature", "activation", "says"),
    [
        (np.zeros((2, 1)), [0, 0], 1.0, "sigmoid", "at least two classes"),
        (np.zeros((2, 3)), [0], 1.0, "sigmoid", r"shape \(2,\)"),
        (np.zeros((2, 3)), [0, 3], 1.0, "sigmoid", "1 of 2 outside"),
        (np.zeros((2, 3)), [0.0, 1.0], 1.0, "sigmoid", "integers"),
        (np.zeros((2, 3), dtype=int), [0, 1], 1.0, "sigmoid", "floating point"),
        (np.zeros((2, 3)), [0, 1], 0.0, "sigmoid", "temperature: expected a positive"),
        (np.zeros((2, 3)), [0, 1], math.nan, "softmax", "temperature: expected a positive"),
        (np.zeros((2, 3)), [0, 1], 1.0, "relu", "'sigmoid' or 'softmax'"),
    ],
)
def test_faults_are_named(logits: np.ndarray, labels: list, temperature: float, activation: str, says: str) -> None:
    with pytest.raises(MeasureError, match=says):
        great_scores(logits, np.array(labels), temperature=temperature, activation=activation)
