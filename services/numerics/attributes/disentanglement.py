"""How well single latents stand for single factors: the mutual information gap (Chen et al. 2018, eq. 6).

::

    MIG = mean_k (I(z_1st; v_k) - I(z_2nd; v_k)) / H(v_k)        in [0, 1]

over known factors v_k, with the two latents most informative about v_k. 1 means that one latent alone knows the factor.
Latents, and factors with more than 20 values, are cut into 20 equal bins, as in the authors' comparisons; the plug-in
estimate of mutual information is too large by about (bins - 1) (values - 1) / (2 N), so small N flatter every latent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.numerics.arguments import Floats, Ints, fault
from services.records import Estimate

BINS = 20


@dataclass(frozen=True)
class Disentanglement:
    """The gap by factor and in all.

    Attributes:
        mig: mean gap over the factors that vary.
        gaps: by factor, in [0, 1]; undefined for a factor that does not vary.
        latent: by factor the most informative latent; None where undefined.
    """

    mig: Estimate
    gaps: dict[str, Estimate]
    latent: dict[str, int | None]


def mutual_information_gap(latents: NDArray[Any], factors: Mapping[str, NDArray[Any]]) -> Disentanglement:
    """Judge latents (N, L), L >= 2, by factors (N,) each.

    Raises:
        MeasureError: fewer than two latents, or a factor of another length.
    """
    codes = np.asarray(latents)
    if codes.ndim != 2 or codes.shape[1] < 2 or not len(codes) or not np.isfinite(codes).all():
        raise fault("latents", "finite numbers (N, L) with N >= 1 and L >= 2", f"shape {codes.shape}")
    binned = np.stack([in_bins(column) for column in codes.T], axis=1)
    gaps: dict[str, Estimate] = {}
    best: dict[str, int | None] = {}
    for name, values in factors.items():
        array = np.asarray(values)
        if array.shape != (len(codes),):
            raise fault(f"factors ({name})", f"shape ({len(codes)},)", f"shape {array.shape}")
        gaps[name], best[name] = _gap(binned, coded(array))
    known = [gap.value for gap in gaps.values() if gap.value is not None]
    mig = Estimate(float(np.mean(known))) if known else Estimate(None, reason="no factor that varies")
    return Disentanglement(mig, gaps, best)


def mutual_information(first: Ints, second: Ints) -> float:
    """Plug-in mutual information in nats of codes (N,) from 0."""
    joint = np.zeros((int(first.max()) + 1, int(second.max()) + 1))
    np.add.at(joint, (first, second), 1.0 / first.size)
    apart = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0)
    positive = joint > 0
    return max(0.0, float((joint[positive] * np.log(joint[positive] / apart[positive])).sum()))


def _gap(binned: Ints, factor: Ints) -> tuple[Estimate, int | None]:
    if factor.min() == factor.max():
        return Estimate(None, reason="the factor does not vary"), None
    entropy = mutual_information(factor, factor)
    information = np.array([mutual_information(column, factor) for column in binned.T])
    second, first = np.sort(information)[-2:]
    return Estimate(min(1.0, float((first - second) / entropy))), int(information.argmax())


def coded(values: NDArray[Any]) -> Ints:
    distinct, codes = np.unique(values, return_inverse=True)
    return codes.astype(np.int64) if distinct.size <= BINS else in_bins(values)


def in_bins(values: Floats) -> Ints:
    low, high = float(values.min()), float(values.max())
    if high <= low:
        return np.zeros(values.size, dtype=np.int64)
    return np.minimum(((values - low) / (high - low) * BINS).astype(np.int64), BINS - 1)
