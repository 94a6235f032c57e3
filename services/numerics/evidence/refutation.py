"""Is the certificate true? GREAT scores held against the adversarial examples that attacks found.

A GREAT score g(x) is claimed to be a lower bound on the L2 distance to the nearest adversarial. An adversarial at
distance d(x) < g(x) refutes that claim for x.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from services.numerics.arguments import Floats, as_indices, check_level, fault
from services.numerics.intervals.means import clopper_pearson
from services.records import Estimate


@dataclass(frozen=True, slots=True)
class Refutation:
    """The share of correctly classified samples whose claimed radius an attack refuted.

    Attributes:
        overall: the share over all correctly classified samples, with its own 1 - delta interval.
        classes: the share in each class, in label order; the intervals hold together with probability 1 - delta.
        refuted: refuted samples of each class.
        counted: correctly classified samples of each class.
        untested: of these, censored ones whose claim exceeds the search limit: neither refuted nor supported, counted
            as not refuted, so the share is a lower bound while there are any.
        delta: of the intervals.
    """

    overall: Estimate
    classes: tuple[Estimate, ...]
    refuted: tuple[int, ...]
    counted: tuple[int, ...]
    untested: tuple[int, ...]
    delta: float


def refute(
    scores: ArrayLike,
    distances: ArrayLike,
    correct: ArrayLike,
    censored: ArrayLike,
    labels: ArrayLike,
    *,
    classes: int,
    delta: float = 0.05,
) -> Refutation:
    """Count, per class and overall, the claims that attacks refuted.

    ``share_k = #{i in class k: correct_i, not censored_i, d_i < g_i} / #{i in class k: correct_i}``, with two-sided
    Clopper-Pearson intervals: at level 1 - delta overall, and at 1 - delta / K' for each of the K' classes that have
    correctly classified samples, so that those hold simultaneously.

    Args:
        scores: g, (n,), claimed L2 radii.
        distances: d, (n,), L2 distances of adversarials found; the search limit where `censored`.
        correct, censored: (n,), 0 or 1.
        labels: (n,), in [0, classes).
        classes: K.
        delta: error probability.

    Raises:
        MeasureError: arrays of different lengths, numbers that are not finite, labels that are not integers in
            [0, classes), or a delta outside (0, 1).
    """
    check_level(delta, "delta")
    claim = _finite("scores", scores)
    n = claim.size
    distance = _finite("distances", distances, n)
    right, open_ended = _finite("correct", correct, n) > 0, _finite("censored", censored, n) > 0
    group = as_indices(np.asarray(labels), n, classes, "labels")

    beaten = right & ~open_ended & (distance < claim)
    counted, refuted, untested = (
        np.bincount(group[part], minlength=classes) for part in (right, beaten, right & open_ended & (distance < claim))
    )
    level = delta / max(1, int(np.count_nonzero(counted)))
    return Refutation(
        overall=_share(int(refuted.sum()), int(counted.sum()), delta),
        classes=tuple(_share(int(k), int(n), level) for k, n in zip(refuted, counted, strict=True)),
        refuted=tuple(refuted.tolist()),
        counted=tuple(counted.tolist()),
        untested=tuple(untested.tolist()),
        delta=delta,
    )


def _share(successes: int, n: int, delta: float) -> Estimate:
    """k / n with its Clopper-Pearson interval (Clopper & Pearson 1934)."""
    if n == 0:
        return Estimate(None, reason="no correctly classified sample")
    low, high = clopper_pearson(np.array(successes), np.array(n), delta / 2)
    return Estimate(successes / n, float(low), float(high))


def _finite(name: str, values: ArrayLike, n: int | None = None) -> Floats:
    array = np.asarray(values)
    if array.ndim != 1 or (n is not None and array.size != n):
        raise fault(name, "shape (N,)" if n is None else f"shape ({n},)", f"shape {array.shape}")
    if not np.isfinite(array).all():
        raise fault(name, "finite numbers", f"{np.sum(~np.isfinite(array))} others")
    return array
