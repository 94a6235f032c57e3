"""Confusion matrices as sparse counts: of a million cells of a thousand classes few hold a sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.numerics.arguments import Floats, Ints, as_indices, check_level, fault
from services.numerics.intervals.means import clopper_pearson


@dataclass(frozen=True, slots=True)
class ConfusionMatrix:
    """How many samples of each class are taken for each.

    Attributes:
        size: number of classes K.
        labels, predicted, counts: (M,) the cells that hold samples, by label and then prediction; the prediction is -1
            where there is none.
    """

    size: int
    labels: Ints
    predicted: Ints
    counts: Ints

    @classmethod
    def of(cls, labels: NDArray[Any], predicted: NDArray[Any], size: int) -> ConfusionMatrix:
        """Count samples with labels (N,) in [0, K) and predictions (N,) in [-1, K).

        Raises:
            MeasureError: other shapes or values.
        """
        rows, columns = as_indices(labels, len(labels), size, "labels"), np.asarray(predicted, dtype=np.int64)
        if columns.shape != rows.shape or (columns.size and not -1 <= columns.min() <= columns.max() < size):
            raise fault("predicted", f"one class in [-1, {size}) a label", f"shape {columns.shape}")
        return cls._from_codes(size, rows * (size + 1) + columns + 1, np.ones(len(rows), dtype=np.int64))

    @classmethod
    def _from_codes(cls, size: int, codes: Ints, weights: Ints) -> ConfusionMatrix:
        cells, inverse = np.unique(codes, return_inverse=True)
        counts = np.bincount(inverse, weights=weights, minlength=len(cells)).astype(np.int64)
        return cls(size, cells // (size + 1), cells % (size + 1) - 1, counts)

    def merge(self, other: ConfusionMatrix) -> ConfusionMatrix:
        """The matrix of both parts' samples."""
        codes = [part.labels * (part.size + 1) + part.predicted + 1 for part in (self, other)]
        return self._from_codes(self.size, np.concatenate(codes), np.concatenate([self.counts, other.counts]))

    @property
    def totals(self) -> Ints:
        """(K,) samples of each class."""
        return np.bincount(self.labels, weights=self.counts, minlength=self.size).astype(np.int64)

    @property
    def wrong(self) -> NDArray[np.bool_]:
        """(M,) the cells off the diagonal."""
        wrong: NDArray[np.bool_] = self.labels != self.predicted
        return wrong

    @property
    def shares(self) -> Floats:
        """(M,) share of the class in each cell."""
        shares: Floats = self.counts / self.totals[self.labels]
        return shares

    def share_of(self, labels: Ints, predicted: Ints) -> Floats:
        """Shares of any cells (m,), 0 where there is no sample; the classes must have some."""
        own = self.labels * (self.size + 1) + self.predicted + 1
        wanted = np.asarray(labels) * (self.size + 1) + np.asarray(predicted) + 1
        place = np.minimum(np.searchsorted(own, wanted), max(0, len(own) - 1))
        hit = own[place] == wanted if len(own) else np.zeros(len(wanted), dtype=bool)
        return np.where(hit, self.shares[place] if len(own) else 0.0, 0.0)

    def intervals(self, delta: float) -> tuple[Floats, Floats]:
        """Exact limits (M,) of the shares (Clopper & Pearson 1934).

        Guarantee: with probability at least 1 - delta those of *all* K x (number of classes with samples) cells hold,
        so that the pair with the largest share may be chosen by looking (Bonferroni).
        """
        return self._limits(self.counts, self.totals[self.labels], delta)

    def intervals_of(self, labels: Ints, predicted: Ints, delta: float) -> tuple[Floats, Floats]:
        """The same limits (m,) of any cells, also of those without a sample; the classes must have some."""
        totals = self.totals[labels]
        return self._limits(np.rint(self.share_of(labels, predicted) * totals).astype(np.int64), totals, delta)

    def _limits(self, counts: Ints, totals: Ints, delta: float) -> tuple[Floats, Floats]:
        check_level(delta, "delta")
        cells = max(1, int((self.totals > 0).sum()) * self.size)
        return clopper_pearson(counts, totals, delta / (2 * cells))

    def block_order(self) -> Ints:
        """(K,) the classes such that those taken for each other are neighbours.

        Average linkage on 1 minus the mean of the two shares that two classes exchange, with leaves in optimal order
        (Bar-Joseph et al. 2001).
        """
        if self.size < 3:
            return np.arange(self.size)
        shares = np.zeros((self.size, self.size))
        inside = self.predicted >= 0
        shares[self.labels[inside], self.predicted[inside]] = self.shares[inside]
        distance = 1.0 - (shares + shares.T) / 2
        np.fill_diagonal(distance, 0.0)
        from scipy.cluster.hierarchy import leaves_list, linkage  # a fifth of a second of every audit's start
        from scipy.spatial.distance import squareform

        tree = linkage(squareform(distance, checks=False), "average", optimal_ordering=True)
        return np.asarray(leaves_list(tree), dtype=np.int64)
