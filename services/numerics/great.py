"""The local GREAT score of a sample, from its logits (GF 3.1, GREAT Theorem 1).

``g(x) = B * max(s_y - max_{j != y} s_j, 0)`` with ``B = sqrt(pi / 2)`` and ``s = sigmoid(z / T)`` or ``softmax(z /
T)``. Both activations are monotone, so the sign of the margin and the runner-up do not depend on T. All margins are
computed in float64 in a form that does not cancel: float32 ``sigmoid(30) - sigmoid(25)`` is 0.0, and a confident,
correct sample would score nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from services.numerics.arguments import Bools, Floats, Ints, as_indices, check_temperature, fault

Activation = Literal["sigmoid", "softmax"]
Logits = NDArray[np.floating[Any]]

GREAT_BOUND = math.sqrt(math.pi / 2)
"""B, the largest score: an L2 distance in units of the generator's Gaussian."""

SATURATION = 2.0**-24
"""Half a float32 step below 1: activations that differ by no more than this may round to the same float32."""

CHUNK = 1 << 18
"""Elements handled at a time, so that temporaries stay in the cache whatever N and K are."""


@dataclass(frozen=True)
class GreatScores:
    """Scores of N samples.

    Attributes:
        scores: (N,) in [0, sqrt(pi / 2)]; 0 where not correct.
        correct: (N,) the label's logit is strictly the largest; a tie for the top is not correct.
        saturated: (N,) correct, and the margin within 2**-24 of 0 or 1, where float32 evaluation cannot distinguish it
            from the end of the range. When many margins saturate, classes tie and a disparity of 0 looks fair.
        finite: (N,) all logits finite; other samples count, as not correct with score 0.
    """

    scores: Floats
    correct: Bools
    saturated: Bools
    finite: Bools


@dataclass(frozen=True)
class Margins:
    """What a score needs of a row of logits besides the partition function.

    Attributes:
        own: (N,) logit of the label, float64.
        rival: (N,) largest logit of another class, float64.
        correct, finite: as in `GreatScores`.
    """

    own: Floats
    rival: Floats
    correct: Bools
    finite: Bools


def check_logits(logits: Logits, labels: NDArray[Any]) -> tuple[Logits, Ints]:
    """Return logits (N, K >= 2) and labels (N,) in [0, K), or raise MeasureError naming what is wrong."""
    array = np.asarray(logits)
    if array.ndim != 2 or array.shape[1] < 2:
        raise fault("logits", "shape (N, K) with at least two classes", f"shape {array.shape}")
    if not np.issubdtype(array.dtype, np.floating):
        raise fault("logits", "floating point numbers", f"dtype {array.dtype}")
    if array.dtype == np.float16:
        array = array.astype(np.float32)
    return array, as_indices(labels, array.shape[0], array.shape[1], "labels")


def chunks(n: int, width: int) -> Iterator[slice]:
    """Slices of [0, n) of bounded size for rows of `width` elements."""
    step = max(1, CHUNK // width)
    return (slice(start, min(start + step, n)) for start in range(0, n, step))


def margins(logits: Logits, labels: Ints) -> Margins:
    """The label's logit, the runner-up, and who is right, for checked logits (n, K) of one chunk.

    Works on the transpose: a reduction over a long contiguous axis is an order of magnitude faster than one over ten
    elements at a time.
    """
    n = labels.size
    columns = logits.T.copy()
    flat, place = columns.ravel(), labels * n + np.arange(n)
    own, least = flat.take(place), columns.min(axis=0)
    flat[place] = -np.inf
    rival = columns.max(axis=0)
    finite = np.isfinite(own) & np.isfinite(least) & np.isfinite(rival)
    correct = finite & (own > rival)
    wide = np.asarray(own, dtype=np.float64), np.asarray(rival, dtype=np.float64)
    return Margins(*wide, correct, finite)


def sigmoid_margin(own: Floats, rival: Floats, temperature: float) -> Floats:
    """``sigmoid(a) - sigmoid(b) = (1 - exp(b - a)) / ((1 + exp(-a)) (1 + exp(b)))`` for a = own / T and b = rival / T.

    ``exp(b - a)`` is the product of the two exponentials; where it is near 1, ``expm1`` keeps what would cancel. Rows
    with own <= rival get no meaningful value.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        left, right = np.exp(own / -temperature), np.exp(rival / temperature)
        gap = 1.0 - left * right
        near = np.flatnonzero((own > rival) > (gap > 0.0625))
        gap[near] = -np.expm1((rival[near] - own[near]) / temperature)
        left += 1.0
        right += 1.0
        gap /= np.multiply(left, right, out=left)
        return gap


def softmax_margin(logits: Logits, own: Floats, rival: Floats, temperature: float) -> Floats:
    """``p_y - p_r = (1 - exp((z_r - z_y) / T)) / sum_j exp((z_j - z_y) / T)``; no term exceeds 1 in a correct row."""
    with np.errstate(over="ignore"):
        shifted = np.exp((logits - own[:, None]) / temperature)
        return np.asarray(-np.expm1((rival - own) / temperature) / shifted.sum(axis=1))


def predictions(logits: Logits) -> Ints:
    """The largest logit's class (N,), the first of tied ones; -1 where a logit is NaN or infinite."""
    predicted = np.empty(len(logits), dtype=np.int64)
    for rows in chunks(*logits.shape):
        part = logits[rows]
        predicted[rows] = np.where(np.isfinite(part).all(axis=1), part.argmax(axis=1), -1)
    return predicted


def _chunk_scores(logits: Logits, labels: Ints, temperature: float, activation: Activation) -> GreatScores:
    split = margins(logits, labels)
    if activation == "sigmoid":
        margin = np.where(split.correct, sigmoid_margin(split.own, split.rival, temperature), 0.0)
    else:
        rows = np.flatnonzero(split.correct)
        margin = np.zeros(labels.size)
        margin[rows] = softmax_margin(logits[rows], split.own[rows], split.rival[rows], temperature)
    saturated = split.correct & ((margin <= SATURATION) | (margin >= 1.0 - SATURATION))
    return GreatScores(GREAT_BOUND * margin, split.correct, saturated, split.finite)


def great_scores(
    logits: Logits, labels: NDArray[np.integer[Any]], *, temperature: float, activation: Activation
) -> GreatScores:
    """Local GREAT scores of N samples.

    Args:
        logits: (N, K) with K >= 2.
        labels: (N,) integers in [0, K).
        temperature: T > 0; divides the logits.
        activation: "sigmoid" (GF on CIFAR-10) or "softmax" (GF on ImageNet).

    Returns:
        Scores in [0, sqrt(pi / 2)], relative error about 1e-14 also where float32 saturates. Memory beyond the result
        is bounded, whatever N and K are.

    Raises:
        MeasureError: shapes, types, labels or temperature are not as said.
    """
    check_temperature(temperature)
    check_activation(activation)
    array, targets = check_logits(logits, labels)
    parts = [_chunk_scores(array[rows], targets[rows], temperature, activation) for rows in chunks(*array.shape)] or [
        _chunk_scores_empty()
    ]
    if len(parts) == 1:
        return parts[0]
    names = ("scores", "correct", "saturated", "finite")
    return GreatScores(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def check_activation(activation: str) -> None:
    """Raise MeasureError for anything but the two activations."""
    if activation not in ("sigmoid", "softmax"):
        raise fault("activation", "'sigmoid' or 'softmax'", repr(activation))


def _chunk_scores_empty() -> GreatScores:
    none = np.zeros(0, dtype=bool)
    return GreatScores(np.zeros(0), none, none, none)


def offset_free_scores(
    logits: Logits, labels: NDArray[np.integer[Any]], *, temperature: float, activation: Activation
) -> Floats:
    """Scores (N,) after the mean logit of each sample is removed: the offset sensitivity.

    A constant added to all logits changes no probability and no prediction, yet it moves a sigmoid score. Networks
    trained by cross-entropy carry an arbitrary offset, so a large difference from `great_scores` says that sigmoid
    scores of two models compare offsets. With the softmax the two agree.
    """
    array, targets = check_logits(logits, labels)
    scores = np.zeros(targets.size)
    for rows in chunks(*array.shape):
        with np.errstate(invalid="ignore", over="ignore"):
            centred = np.array(array[rows], dtype=np.float64)
            centred -= centred.mean(axis=1, keepdims=True)
        scores[rows] = great_scores(centred, targets[rows], temperature=temperature, activation=activation).scores
    return scores
