"""The profile of a series: per group how many samples and the exact sum of their scores (GF 3.2).

Workers return counts and sums, never means. Sums are kept in two fixed-point limbs whose additions are exact in
float64, so they do not depend on order: the merge of any shards is *bitwise* the profile of the whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.numerics.arguments import Bools, Floats, Ints, as_indices, as_scores, check_bound, fault

_COARSE = 1.5 * 2.0**26
_FINE = 1.5 * 2.0**-1
MOST_SAMPLES = 1 << 26
"""Samples a group may have before the limbs' additions could round: 67 million."""


@dataclass(frozen=True)
class Profile:
    """Counts and sums of scores in [0, bound] per group; K groups.

    Attributes:
        counts: (K,) samples.
        limbs: (4, K) high and low limb of the sum of scores, high and low limb of the sum of squares, in units of
            `scale` and `scale ** 2`. Additive: the limbs of a merge are the sums of the limbs.
        bound: scores lie in [0, bound].
    """

    counts: Ints
    limbs: Floats
    bound: float

    @classmethod
    def from_scores(
        cls, scores: NDArray[Any], groups: NDArray[np.integer[Any]], n_groups: int, *, bound: float
    ) -> Profile:
        """Add up scores (N,) in [0, bound] by group (N,) in [0, n_groups).

        Raises:
            MeasureError: a score out of range or NaN, a group out of range, or more than 2**26 samples in a group.
        """
        check_bound(bound)
        values = as_scores(scores, bound) / scale_of(bound)
        index = as_indices(groups, values.size, n_groups, "groups")
        counts = np.bincount(index, minlength=n_groups)
        if counts.size and counts.max() > MOST_SAMPLES:
            raise fault("groups", f"at most {MOST_SAMPLES} samples a group", str(counts.max()))
        limbs = [np.bincount(index, weights=limb, minlength=n_groups) for limb in (*_split(values), *_split(values**2))]
        return cls(counts, np.array(limbs), bound)

    @classmethod
    def merge(cls, profiles: Iterable[Profile]) -> Profile:
        """The profile of all samples together, bitwise equal to the one made of the whole.

        Raises:
            MeasureError: nothing to merge, or profiles of different bounds or numbers of groups.
        """
        parts = list(profiles)
        if not parts:
            raise fault("profiles", "at least one", "none")
        kinds = {(part.bound, part.n_groups) for part in parts}
        if len(kinds) > 1:
            raise fault("profiles", "one bound and one number of groups", f"{sorted(kinds)}")
        counts = np.sum([part.counts for part in parts], axis=0)
        return cls(counts, np.sum([part.limbs for part in parts], axis=0), parts[0].bound)

    @property
    def n_groups(self) -> int:
        """Number of groups K, those without samples included."""
        return int(self.counts.size)

    @property
    def total(self) -> int:
        """Number of samples N."""
        return int(self.counts.sum())

    @property
    def defined(self) -> Bools:
        """(K,) the group has samples."""
        return self.counts > 0

    @property
    def sums(self) -> Floats:
        """(K,) sums of scores."""
        return np.asarray((self.limbs[0] + self.limbs[1]) * scale_of(self.bound))

    @property
    def squares(self) -> Floats:
        """(K,) sums of squared scores."""
        return np.asarray((self.limbs[2] + self.limbs[3]) * scale_of(self.bound) ** 2)

    @property
    def means(self) -> Floats:
        """(K,) mean scores Omega_k in [0, bound]; NaN exactly where `defined` is False, so read both together."""
        return _divide(self.sums, self.counts)

    @property
    def variances(self) -> Floats:
        """(K,) population variances in [0, bound**2 / 4]; NaN exactly where `defined` is False."""
        return np.clip(_divide(self.squares, self.counts) - self.means**2, 0.0, self.bound**2 / 4)

    @property
    def aggregate(self) -> float | None:
        """Mean score of all samples, ``sum_k n_k / N * Omega_k`` (exact); None without samples."""
        if not self.total:
            return None
        high, low = math.fsum(self.limbs[0]), math.fsum(self.limbs[1])
        return (high + low) * scale_of(self.bound) / self.total


def scale_of(bound: float) -> float:
    """The power of two at or above the bound: dividing by it is exact."""
    return 2.0 ** math.ceil(math.log2(bound))


def _split(values: Floats) -> tuple[Floats, Floats]:
    """Values in [0, 1] as a multiple of 2**-26 and a rest that is a multiple of 2**-53, exact to 2**-54.

    Adding and subtracting 1.5 * 2**(52 - b) rounds a double to a multiple of 2**-b.
    """
    high = (values + _COARSE) - _COARSE
    return np.asarray(high), ((values - high) + _FINE) - _FINE


def _divide(sums: Floats, counts: Ints) -> Floats:
    return np.asarray(np.divide(sums, counts, out=np.full(counts.size, np.nan), where=counts > 0))
