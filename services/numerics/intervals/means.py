"""Confidence intervals for group means of scores in [0, bound] (GF 4.2, and tighter ones).

========================  ================================================================  ==========================
method                    guarantee                                                         samples of a group
========================  ================================================================  ==========================
``hoeffding``             Hoeffding 1963; GF Prop. 1                                        independent
``empirical-bernstein``   Maurer & Pontil 2009, Theorem 11                                  independent
``betting``               WSR Theorem 3, hedged capital                                     independent, one mean
``clopper-pearson``       exact, scores 0 or bound only                                     independent, one mean
``anytime``               betting by a mixture over fractions: at every number of samples   independent
========================  ================================================================  ==========================

All but the last are for a number of samples that was fixed before, and for one look. Two-sided intervals hold for all
groups jointly with probability at least 1 - delta (Bonferroni: delta / G each, G the number of groups with samples).
One-sided bounds hold for each group alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from services.numerics.arguments import Bools, Floats, Ints, as_indices, as_scores, check_bound, check_level, fault
from services.numerics.intervals import betting, mixture

Method = Literal["hoeffding", "empirical-bernstein", "betting", "clopper-pearson", "anytime"]

CELLS = 1 << 18
"""Elements of a padded block of groups, so that temporaries stay in the cache."""


@dataclass(frozen=True)
class Intervals:
    """Limits for G groups.

    Attributes:
        low, high: (G,) in [0, bound], low <= mean <= high; NaN exactly where the group has no samples.
        defined: (G,) the group has samples.
        vacuous: (G,) the interval is the whole range [0, bound], so it excludes nothing.
        method, delta, bound: as asked.
    """

    low: Floats
    high: Floats
    defined: Bools
    vacuous: Bools
    method: Method
    delta: float
    bound: float


@dataclass(frozen=True)
class Sample:
    """Scores by group, scaled to [0, 1].

    Attributes:
        values: (N,) scores / bound, sorted by group, in the source's order within a group.
        counts, starts: (G,) samples of each group and where they begin.
        seed: of the order in which betting takes them; None keeps the source's order.
        times: how often each counts, to plan by: as if so many more like them had been seen; `anytime` alone knows it.
    """

    values: Floats
    counts: Ints
    starts: Ints
    seed: int | None
    times: float = 1.0

    @classmethod
    def of(
        cls,
        scores: NDArray[Any],
        groups: NDArray[np.integer[Any]],
        n_groups: int,
        *,
        bound: float,
        seed: int | None,
        times: float = 1.0,
    ) -> Sample:
        """Check and sort scores (N,) in [0, bound] by group (N,) in [0, n_groups)."""
        check_bound(bound)
        values = as_scores(scores, bound) / bound
        index = as_indices(groups, values.size, n_groups, "groups")
        counts = np.bincount(index, minlength=n_groups).astype(np.int64)
        return cls(values[np.argsort(index, stable=True)], counts, np.cumsum(counts) - counts, seed, times)

    @property
    def means(self) -> Floats:
        """(G,) means in [0, 1]; 0 where there are no samples (masked by the callers)."""
        return self._sums(self.values) / np.maximum(self.counts, 1)

    @property
    def variances(self) -> Floats:
        """(G,) unbiased variances; 0 where there are fewer than two samples."""
        squares = self._sums((self.values - np.repeat(self.means, self.counts)) ** 2)
        return squares / np.maximum(self.counts - 1, 1)

    def _sums(self, values: Floats) -> NDArray[Any]:
        group = np.repeat(np.arange(self.counts.size), self.counts)
        return np.bincount(group, weights=values, minlength=self.counts.size)

    def blocks(self) -> Iterator[tuple[Ints, Floats, Bools]]:
        """Blocks of groups of similar size: their indices (g,), padded values (g, n) and which cells are filled.

        Columns come in a random order keyed by `seed`, so that a source sorted by difficulty does not bias the running
        variance. The order of a group's samples depends on the seed and on their number, never on the scores, which is
        all that betting asks, nor on other groups.
        """
        order = np.argsort(self.counts)[::-1]
        order = order[self.counts[order] > 0]
        while order.size:
            width = int(self.counts[order[0]])
            block, order = np.split(order, [max(1, CELLS // width)])
            turn = np.arange(width) if self.seed is None else reading_order(width, self.seed)
            mask = turn[None, :] < self.counts[block][:, None]
            cells = np.minimum(self.starts[block][:, None] + turn[None, :], self.values.size - 1)
            yield block, np.where(mask, self.values[cells], 0.0), mask


def reading_order(width: int, seed: int) -> Ints:
    """A random order of [0, width); what lies below any n < width comes in the order that width n would have had."""
    return np.argsort(np.random.default_rng(seed).random(width))


Bounds = tuple[Floats, Floats]
"""(G,) lower and upper limits in [0, 1], each one-sided at the level asked."""


def hoeffding_half_width(n: NDArray[Any] | float, alpha: float, bound: float) -> Floats:
    """``bound * sqrt(log(2 / alpha) / (2 n))``: two-sided at level alpha for n samples (GF Prop. 1, alpha = delta /
    K).
    """
    return np.asarray(bound * np.sqrt(np.log(2.0 / alpha) / (2.0 * np.asarray(n))))


def _hoeffding(sample: Sample, alpha: float, anytime: bool) -> Bounds:
    width = hoeffding_half_width(np.maximum(sample.counts, 1), 2.0 * alpha, 1.0)
    return sample.means - width, sample.means + width


def _empirical_bernstein(sample: Sample, alpha: float, anytime: bool) -> Bounds:
    """``sqrt(2 V log(2 / alpha) / n) + 7 log(2 / alpha) / (3 (n - 1))`` on each side; n = 1 gives all."""
    log, n = np.log(2.0 / alpha), sample.counts
    width = np.sqrt(2.0 * sample.variances * log / np.maximum(n, 1)) + 7.0 * log / (3.0 * np.maximum(n - 1, 1))
    return sample.means - width, sample.means + width


def _betting(sample: Sample, alpha: float, anytime: bool) -> Bounds:
    low, high = np.zeros(sample.counts.size), np.ones(sample.counts.size)
    for block, values, mask in sample.blocks():
        low[block] = betting.lower_bound(values, mask, alpha, anytime=anytime)
        high[block] = 1.0 - betting.lower_bound(1.0 - values, mask, alpha, anytime=anytime)
    return low, high


def clopper_pearson(successes: NDArray[Any], counts: NDArray[Any], alpha: float) -> Bounds:
    """One-sided exact limits at level alpha each for `successes` of `counts` trials (Clopper & Pearson 1934)."""
    k, n = np.asarray(successes), np.asarray(counts)
    low = np.where(k > 0, betaincinv(np.maximum(k, 1.0), n - k + 1.0, alpha), 0.0)
    high = np.where(k < n, betaincinv(k + 1.0, np.maximum(n - k, 1.0), 1.0 - alpha), 1.0)
    return low, high


def _clopper_pearson(sample: Sample, alpha: float, anytime: bool) -> Bounds:
    if not np.isin(sample.values, (0.0, 1.0)).all():
        raise fault("method", "scores that are all 0 or the bound for clopper-pearson", "others", "use betting")
    return clopper_pearson(np.rint(sample.means * sample.counts), sample.counts, alpha)


def _anytime(sample: Sample, alpha: float, anytime: bool) -> Bounds:
    if np.isin(sample.values, (0.0, 1.0)).all():
        n: Floats = sample.counts.astype(np.float64) * sample.times
        k = np.rint(sample.means * sample.counts) * sample.times
        sides = (mixture.lower_bound_of_counts(part, n, alpha) for part in (k, n - k))
        low, other = sides
        return low, 1.0 - other
    low, high = np.zeros(sample.counts.size), np.ones(sample.counts.size)
    for block, values, mask in sample.blocks():
        low[block] = mixture.lower_bound(values, mask, alpha, times=sample.times)
        high[block] = 1.0 - mixture.lower_bound(1.0 - values, mask, alpha, times=sample.times)
    return low, high


_METHODS: dict[Method, Callable[[Sample, float, bool], Bounds]] = {
    "hoeffding": _hoeffding,
    "empirical-bernstein": _empirical_bernstein,
    "betting": _betting,
    "clopper-pearson": _clopper_pearson,
    "anytime": _anytime,
}


def limits(sample: Sample, alpha: float, method: Method, *, anytime: bool = False) -> Bounds:
    """Lower and upper limits (G,) in [0, 1], each with confidence 1 - alpha for its group alone.

    The estimate always lies between them: moving a limit outwards keeps its guarantee.

    Raises:
        MeasureError: an unknown method, or `anytime` with one that is for a fixed number of samples.
    """
    check_level(alpha, "alpha")
    if sample.times != 1.0 and method != "anytime":
        raise fault("times", "1 for limits of a fixed number of samples", f"{sample.times:g}")
    if method not in _METHODS:
        raise fault("method", f"one of {', '.join(_METHODS)}", repr(method))
    if anytime and method != "betting":
        raise fault("method", "betting for anytime-valid limits", repr(method))
    low, high = _METHODS[method](sample, alpha, anytime)
    return np.clip(low, 0.0, sample.means), np.clip(high, sample.means, 1.0)


def method_for(method: Method | None, *, binary: bool) -> Method:
    """The method asked for, or the tightest that is valid: exact for 0/1 scores, betting for others."""
    return method or ("clopper-pearson" if binary else "betting")


def simultaneous(
    scores: NDArray[Any],
    groups: NDArray[np.integer[Any]],
    n_groups: int,
    *,
    bound: float,
    delta: float,
    method: Method | None = None,
    binary: bool = False,
    seed: int | None = 0,
    times: float = 1.0,
    anytime: bool = False,
) -> Intervals:
    """Two-sided intervals for the means of all groups, jointly with probability at least 1 - delta.

    Args:
        scores: (N,) in [0, bound].
        groups: (N,) integers in [0, n_groups).
        method: None for the tightest valid one (`method_for`).
        binary: scores are 0 or bound.
        seed: of the order in which betting takes the samples; None keeps theirs.
        times: see `Sample`.
        anytime: betting, valid at every look; an interval made for a fixed n must not be looked at repeatedly.

    Raises:
        MeasureError: arguments out of range, or a method that does not fit the scores.
    """
    check_level(delta, "delta")
    sample = Sample.of(scores, groups, n_groups, bound=bound, seed=seed, times=times)
    defined = sample.counts > 0
    chosen = method_for(method, binary=binary)
    sides = limits(sample, delta / (2 * max(1, int(defined.sum()))), chosen, anytime=anytime)
    return _intervals(sides, defined, chosen, delta, bound)


def _intervals(sides: Bounds, defined: Bools, method: Method, delta: float, bound: float) -> Intervals:
    low, high = (np.where(defined, side * bound, np.nan) for side in sides)
    return Intervals(low, high, defined, defined & (low <= 0.0) & (high >= bound), method, delta, bound)
