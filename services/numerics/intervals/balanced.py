"""The mean over all samples when the classes were not sampled in proportion: an audit that decides early.

Of each class the first samples are taken in proportion to its size, as many as the class that was measured least
allows; the mean over these is that of all samples but for rounding, and `mixture`'s bounds hold for it at every such
part, whichever is looked at and why.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from services.numerics.arguments import Bools, Floats, Ints
from services.records import Estimate


def balanced_part(codes: Ints, sizes: Ints) -> tuple[Bools, float]:
    """(n,) which of the samples taken are in proportion, and by how much the mean of a score in [0, 1] may shift.

    With f the smallest share taken of any class, the first ``floor(f N_k)`` samples of class k. The shift is the total
    variation ``1/2 sum_k |n_k / n - N_k / N|`` between the shares of the classes in this part and among all samples.

    Args:
        codes: (n,) class of each sample taken; those of a class in the order in which they were taken.
        sizes: (K,) N_k, all samples of each class.
    """
    there = sizes > 0
    counts = np.bincount(codes, minlength=sizes.size)
    share = float(np.min(counts[there] / sizes[there])) if there.any() else 0.0
    quota = np.floor(share * sizes + 1e-9).astype(np.int64)
    order = np.argsort(codes, kind="stable")
    place = np.empty(codes.size, dtype=np.int64)
    place[order] = np.arange(codes.size) - np.repeat(np.cumsum(counts) - counts, counts)
    kept, total = place < quota[codes], int(quota.sum())
    shift = 0.5 * float(np.abs(quota / total - sizes / sizes.sum()).sum()) if total else 1.0
    return kept, shift


def weighted_mean(scores: Floats, codes: Ints, sizes: Ints) -> float | None:
    """``sum_k N_k / N mean_k``; None while a class that has samples has none among these."""
    counts = np.bincount(codes, minlength=sizes.size)
    if not sizes.any() or (counts[sizes > 0] == 0).any():
        return None
    means = np.bincount(codes, weights=scores, minlength=sizes.size) / np.maximum(counts, 1)
    return float(means @ sizes / sizes.sum())


def shifted(estimate: Estimate, value: float | None, shift: float, bound: float) -> Estimate:
    """The estimate with its limits moved outwards by a shift of the mean of a score in [0, bound], around `value`."""
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return estimate
    middle = estimate.value if value is None else value
    low = max(0.0, min(middle, estimate.low - shift * bound))
    high = min(bound, max(middle, estimate.high + shift * bound))
    return replace(estimate, value=middle, low=low, high=high)
