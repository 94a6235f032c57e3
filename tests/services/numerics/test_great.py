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
from services.numerics import great
from services.numerics.great import (
    GREAT_BOUND,
    SATURATION,
    check_logits,
    chunks,
    great_scores,
    margins,
    offset_free_scores,
    predictions,
    sigmoid_margin,
    softmax_margin,
)

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
    great = great_scores(logits, labels, temperature=temperature, activation=activation)
    np.testing.assert_allclose(great.scores, naive(logits, labels, temperature, activation), atol=1e-14)
    np.testing.assert_array_equal(predictions(logits), logits.argmax(axis=1))
    np.testing.assert_array_equal(great.correct, logits.argmax(axis=1) == labels)


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
    result = great_scores(np.array([[a, b]]), np.array([0]), temperature=1.0, activation="sigmoid").scores[0]
    assert result == pytest.approx(GREAT_BOUND * float(exact), rel=4e-15 * max(1.0, abs(a)))
    assert result > 0


def test_float32_evaluation_loses_what_is_kept_and_the_sample_is_called_saturated() -> None:
    z = np.array([[30.0, 25.0]], dtype=np.float32)
    single = np.float32(1) / (np.float32(1) + np.exp(-z))
    assert single[0, 0] - single[0, 1] == 0.0
    great = great_scores(z, np.array([0]), temperature=1.0, activation="sigmoid")
    assert 1e-11 < great.scores[0] < 2e-11
    assert great.saturated[0]


def test_saturated_wherever_float32_gives_the_ends() -> None:
    rng = np.random.default_rng(3)
    z = rng.normal(scale=12, size=(3000, 2)).astype(np.float32)
    z = -np.sort(-z, axis=1)
    single = np.float32(1) / (np.float32(1) + np.exp(-z))
    margin = single[:, 0] - single[:, 1]
    great = great_scores(z, np.zeros(3000, dtype=int), temperature=1.0, activation="sigmoid")
    at_end = great.correct & ((margin == 0) | (margin == 1))
    assert at_end.sum() > 50
    assert great.saturated[at_end].all()
    np.testing.assert_array_equal(
        great.saturated,
        (great.scores <= GREAT_BOUND * SATURATION) & great.correct | (great.scores >= GREAT_BOUND * (1 - SATURATION)),
    )
    assert not great_scores(
        np.array([[2.0, 0.0]]), np.array([0]), temperature=1.0, activation="sigmoid"
    ).saturated.any()


def test_ties_mistakes_and_non_finite_logits_score_nothing() -> None:
    z = np.array([[1, 1, 0], [0, 2, 1], [np.nan, 0, 5], [np.inf, 0, 0], [3, -np.inf, 0], [3, 1, 0]], dtype=np.float32)
    for activation in ACTIVATIONS:
        great = great_scores(z, np.zeros(6, dtype=int), temperature=1.0, activation=activation)
        np.testing.assert_array_equal(great.correct, [False] * 5 + [True])
        np.testing.assert_array_equal(great.finite, [True, True, False, False, False, True])
        np.testing.assert_array_equal(predictions(z), [0, 1, -1, -1, -1, 0])
        assert (great.scores[:5] == 0).all()
        assert great.scores[5] > 0
        assert not great.saturated[:5].any()


def test_extreme_temperatures_and_logits_stay_in_range() -> None:
    z = np.array([[3e38, -3e38], [1e-30, 0.0], [-700.0, -800.0], [800.0, 710.0], [3e38, 2.9e38]])
    for activation in ACTIVATIONS:
        for temperature in (1e-3, 1.0, 1e6):
            great = great_scores(z, np.zeros(5, dtype=int), temperature=temperature, activation=activation)
            assert np.isfinite(great.scores).all()
            assert ((great.scores >= 0) & (great.scores <= GREAT_BOUND)).all()
            assert great.correct.all()


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
    great = great_scores(np.zeros((0, 3)), np.zeros(0, dtype=int), temperature=1.0, activation="sigmoid")
    assert great.scores.shape == great.correct.shape == (0,)


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


def test_scores_whole() -> None:
    """Right, wrong, tied, not finite; types of all five columns."""
    z = np.array([[2.0, 0.0, 1.0], [0.0, 1.0, 3.0], [1.0, 1.0, 0.0], [np.nan, 0.0, 0.0]])
    for dtype in (np.float64, np.float32, np.float16):
        great = great_scores(z.astype(dtype), np.array([0, 0, 1, 1]), temperature=1.0, activation="sigmoid")
        margin = 1 / (1 + math.exp(-2)) - 1 / (1 + math.exp(-1))
        np.testing.assert_allclose(great.scores, [GREAT_BOUND * margin, 0, 0, 0], rtol=1e-14)
        assert great.correct.tolist() == [True, False, False, False]
        assert predictions(z.astype(dtype)).tolist() == [0, 2, 0, -1]
        assert great.finite.tolist() == [True, True, True, False]
        assert great.saturated.tolist() == [False] * 4
        kinds = [getattr(great, name).dtype for name in ("scores", "correct", "saturated", "finite")]
        assert kinds == [np.float64, np.bool_, np.bool_, np.bool_]


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_no_samples_whole(activation: str) -> None:
    great = great_scores(np.zeros((0, 3)), np.zeros(0, dtype=int), temperature=1.0, activation=activation)
    kinds = [getattr(great, name).dtype for name in ("scores", "correct", "saturated", "finite")]
    assert kinds == [np.float64, np.bool_, np.bool_, np.bool_]
    assert {getattr(great, name).shape for name in ("scores", "correct", "saturated", "finite")} == {(0,)}
    free = offset_free_scores(np.zeros((0, 3)), np.zeros(0, dtype=int), temperature=1.0, activation=activation)
    assert free.shape == (0,)


def test_parts_of_any_size_give_the_same_columns() -> None:
    logits, labels = sample(6, 50, 4)
    logits[7] = np.nan
    logits[8] = [60, -60, -60, -60]
    labels[8] = 0
    for activation in ACTIVATIONS:
        whole = great_scores(logits, labels, temperature=1.0, activation=activation)
        free, classes = offset_free_scores(logits, labels, temperature=1.0, activation=activation), predictions(logits)
        with pytest.MonkeyPatch.context() as patch:
            for elements in (1, 9, 80):
                patch.setattr(great, "CHUNK", elements)
                parts = great_scores(logits, labels, temperature=1.0, activation=activation)
                for name in ("scores", "correct", "saturated", "finite"):
                    np.testing.assert_array_equal(getattr(parts, name), getattr(whole, name))
                np.testing.assert_array_equal(predictions(logits), classes)
                again = offset_free_scores(logits, labels, temperature=1.0, activation=activation)
                np.testing.assert_array_equal(again, free)
        assert whole.saturated[8] and not whole.finite[7]


def test_chunks_cover_all_rows_once() -> None:
    assert list(chunks(0, 3)) == []
    assert list(chunks(5, 1 << 17)) == [slice(0, 2), slice(2, 4), slice(4, 5)]
    assert list(chunks(2, 1 << 18)) == [slice(0, 1), slice(1, 2)]
    assert list(chunks(2, 1 << 19)) == [slice(0, 1), slice(1, 2)]
    assert list(chunks(4, 1 << 16)) == [slice(0, 4)]


def test_margins_whole() -> None:
    logits = np.array(
        [[1, 3, 2], [5, 1, 5], [0, 1, 2], [np.inf, 0, 1], [4, 0, -np.inf], [0, np.nan, 1]], dtype=np.float32
    )
    split = margins(logits, np.array([1, 0, 0, 1, 0, 0]))
    assert split.own.tolist()[:5] == [3, 5, 0, 0, 4]
    assert split.rival.tolist()[:5] == [2, 5, 2, np.inf, 0]
    assert split.correct.tolist() == [True, False, False, False, False, False]
    assert split.finite.tolist() == [True, True, True, False, False, False]
    assert (split.own.dtype, split.rival.dtype) == (np.float64, np.float64)
    before = logits.copy()
    margins(logits, np.array([1, 0, 0, 1, 0, 0]))
    np.testing.assert_array_equal(logits, before)


@pytest.mark.parametrize("temperature", [0.3, 1.0, 4.0])
def test_a_sigmoid_margin_near_and_far(temperature: float) -> None:
    own = np.array([2.0, 2.0, 2.0, 0.5, 30.0, 1e-9])
    rival = np.array([-3.0, 1.9, 2.0 - 1e-9, 0.4, 29.999, 0.0])
    a, b = (side.astype(np.longdouble) / temperature for side in (own, rival))
    exact = -np.expm1(b - a) / ((1 + np.exp(-a)) * (1 + np.exp(b)))
    np.testing.assert_allclose(sigmoid_margin(own, rival, temperature), exact.astype(float), rtol=1e-14)


def test_what_saturates_at_the_last_bit() -> None:
    """Margins just inside and at 2**-24 of 0, and of 1."""
    for margin, saturated in ((SATURATION * 1.001, False), (SATURATION * 0.999, True)):
        low = np.array([[4 * margin, 0.0]])  # near 0 the sigmoid has slope 1/4
        assert great_scores(low, np.array([0]), temperature=1.0, activation="sigmoid").saturated[0] == saturated
        far = math.log(2 / margin - 1)
        high = np.array([[far, -far]])
        assert great_scores(high, np.array([0]), temperature=1.0, activation="sigmoid").saturated[0] == saturated


def test_softmax_margins_by_hand() -> None:
    logits = np.array([[2.0, 0.0, 1.0], [500.0, 0.0, -500.0]])
    result = softmax_margin(logits, np.array([2.0, 500.0]), np.array([1.0, 0.0]), 2.0)
    e = np.exp(logits[0] / 2)
    assert result[0] == pytest.approx((e[0] - e[2]) / e.sum(), rel=1e-14)
    assert result[1] == 1.0
    huge = softmax_margin(np.array([[1e308, -1e308]]), np.array([1e308]), np.array([-1e308]), 1.0)
    assert huge.tolist() == [1.0]


def test_logits_of_half_precision_are_taken_as_single() -> None:
    result, labels = check_logits(np.zeros((2, 3), dtype=np.float16), np.array([0, 1], dtype=np.uint8))
    assert (result.dtype, labels.dtype) == (np.float32, np.int64)
    assert check_logits(np.zeros((2, 2)), np.array([0, 1]))[0].dtype == np.float64
    assert check_logits([[0.0, 1.0]], [0])[0].shape == (1, 2)  # type: ignore[arg-type]


def test_offset_free_scores_by_hand() -> None:
    z = np.array([[5.0, 4.0, 3.0], [np.inf, 0.0, 0.0]], dtype=np.float32)
    result = offset_free_scores(z, np.array([0, 0]), temperature=2.0, activation="sigmoid")
    assert result[0] == pytest.approx(GREAT_BOUND * (1 / (1 + math.exp(-0.5)) - 0.5), rel=1e-14)
    assert result[1] == 0.0
    huge = offset_free_scores(np.full((1, 3), 1e308), np.array([0]), temperature=1.0, activation="sigmoid")
    assert huge.tolist() == [0.0]
    logits, labels = sample(9, 20, 5)
    single, double = (
        offset_free_scores(z, labels, temperature=0.7, activation="softmax")
        for z in (logits, logits.astype(np.float64))
    )
    np.testing.assert_array_equal(single, double)


def test_predictions_whole() -> None:
    z = np.array([[1, 3, 2], [5, 1, 5], [0, 1, 2], [np.inf, 0, 1], [4, 0, -np.inf], [0, np.nan, 1]], dtype=np.float32)
    result = predictions(z)
    assert result.tolist() == [1, 0, 2, -1, -1, -1] and result.dtype == np.int64
    assert predictions(np.zeros((0, 3))).tolist() == []
