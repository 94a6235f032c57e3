"""What a confusion matrix shows before any long work: classes in another order."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.stats import binomtest

from services.numerics.checks import Ints, fault


@dataclass(frozen=True)
class ClassOrder:
    """How well a re-ordering of the model's classes explains its predictions.

    Attributes:
        permutation: (K,) entry k is the model's output for the data's class k under the best re-ordering.
        explained: share of samples that the re-ordering puts right, in [0, 1].
        accuracy: share that is right as it stands.
        moved: classes seen in the samples that the re-ordering moves.
        wrong_order: the evidence says that the class orders differ; then `permutation` is the remedy.
    """

    permutation: tuple[int, ...]
    explained: float
    accuracy: float
    moved: tuple[int, ...]
    wrong_order: bool


def class_order(confusion: NDArray[np.integer[Any]], *, alpha: float = 1e-6) -> ClassOrder:
    """Look for a permutation of classes that explains a confusion matrix (K, K) better than the given order.

    The permutation maximises the samples put right (linear assignment); classes without samples, and ties, stay in
    place. The orders are called different when among the samples that either order puts right, and the other does not,
    so many speak for the permutation that fair coins would do it with probability below ``alpha / (pairs of classes)``
    (a sign test, with a union over the classes a moved one could have gone to), and the permutation puts most samples
    of the moved classes right.

    Raises:
        MeasureError: the matrix is not square or holds negative counts.
    """
    counts = np.asarray(confusion)
    if counts.ndim != 2 or counts.shape[0] != counts.shape[1] or (counts.size and counts.min() < 0):
        raise fault("confusion", "a square matrix of counts", f"shape {counts.shape}")
    size, total = len(counts), int(counts.sum())
    if not total:
        return ClassOrder(tuple(range(size)), 0.0, 0.0, (), False)
    _, columns = linear_sum_assignment(counts + 1e-3 * np.eye(size) / size, maximize=True)
    gain, loss = int(counts[np.arange(size), columns].sum()), int(np.trace(counts))
    moved = np.flatnonzero((columns != np.arange(size)) & (counts.sum(axis=1) > 0))
    wrong = _speaks_for(counts, columns, moved, alpha)
    return ClassOrder(tuple(int(c) for c in columns), gain / total, loss / total, tuple(int(k) for k in moved), wrong)


def _speaks_for(counts: Ints, columns: Ints, moved: Ints, alpha: float) -> bool:
    if not moved.size:
        return False
    for_it, against = int(counts[moved, columns[moved]].sum()), int(counts[moved, moved].sum())
    sign = binomtest(for_it, for_it + against, alternative="greater").pvalue
    majority = for_it > 0.5 * counts[moved].sum()
    return bool(majority and sign < alpha / max(1, math.comb(len(counts), 2)))
