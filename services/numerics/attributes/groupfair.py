"""Group fairness of decisions, DP, EOpp, EOdd and AOdd, with intervals: one (task, attribute) pair or a matrix of them.

With R+ the positive decision, Y+ the positive truth, and ``gap(r) = max_g r_g - min_g r_g`` over groups g:

::

    DP   = gap(P(R+ | g))                                   selection rate
    EOpp = gap(P(R- | Y+, g)) = gap(TPR)                    missed positives
    EOdd = max(gap(TPR), gap(FPR)),   AOdd = (gap(TPR) + gap(FPR)) / 2

Intervals are Clopper-Pearson by union: the R rates that a metric is made of get exact two-sided intervals at level
delta / R each, so that all hold jointly with probability at least 1 - delta, and the metric's exact range over that box
is its interval. Valid at any number of samples, also where a rate is 0 or 1. Conditioned on the numbers of samples.

A group that a rate is undefined for (no samples, or none with that truth) is left out of *that rate* and stays in the
others: a group of positives alone, all missed, has an EOpp and an EOdd gap of 1. A gap of fewer than two groups is
undefined: never 0, never perfectly fair. Where one of the two gaps of the odds is undefined, EOdd and AOdd are the
other one, and their intervals allow it any value in [0, 1] (AOdd between half the lower limit and half the upper one
plus 1/2); where both are, so are EOdd and AOdd.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.numerics.arguments import Bools, Floats, Ints, as_indices, check_level, fault
from services.numerics.intervals.means import clopper_pearson
from services.records import Estimate
from services.records.fairness import METRICS as METRICS
from services.records.fairness import Metric as Metric


@dataclass(frozen=True)
class GroupCounts:
    """Counts, all (..., G) int64: the leading axes are tasks and attributes.

    Attributes:
        size: samples.
        positive: with truth Y+.
        selected: with decision R+.
        hits, alarms: with decision R+ and truth Y+, Y-.
    """

    size: Ints
    positive: Ints
    selected: Ints
    hits: Ints
    alarms: Ints

    @property
    def negative(self) -> Ints:
        """Samples with truth Y-."""
        return self.size - self.positive


@dataclass(frozen=True)
class Gaps:
    """One metric for all tasks and attributes, (...,) each; NaN exactly where `defined` is False.

    Attributes:
        value, low, high: the gap in [0, 1] and its limits.
        defined: at least two groups have a rate that it is made of.
        missing: (..., G) groups that lack one of its rates.
    """

    value: Floats
    low: Floats
    high: Floats
    defined: Bools
    missing: Bools

    def estimate(self, names: tuple[str, ...], index: tuple[int, ...] = ()) -> Estimate:
        """One of them as an `Estimate`; `names` are the G groups', `index` picks along the leading axes."""
        lacking = ", ".join(name for name, absent in zip(names, self.missing[index], strict=True) if absent)
        reason = f"no samples that it needs in {lacking}" if lacking else ""
        if not self.defined[index]:
            return Estimate(None, reason=reason or "fewer than two groups")
        low, high = float(self.low[index]), float(self.high[index])
        return Estimate(float(self.value[index]), low, high, reason, vacuous=low <= 0.0 and high >= 1.0)


def group_counts(
    truth: NDArray[Any], decisions: NDArray[Any], groups: NDArray[np.integer[Any]], n_groups: int
) -> GroupCounts:
    """Counts (G,) of one task: truth and decisions (N,) of 0 and 1, groups (N,) in [0, n_groups)."""
    index = as_indices(groups, len(np.asarray(truth)), n_groups, "groups")
    member = np.asarray(index[:, None] == np.arange(n_groups), dtype=np.float64)
    counts = _counts(_binary(truth, "truth")[:, None], _binary(decisions, "decisions")[:, None], member, n_groups)
    return GroupCounts(*(array[0, 0] for array in counts))


def matrix_counts(truth: NDArray[Any], decisions: NDArray[Any], attributes: NDArray[Any]) -> GroupCounts:
    """Counts (T, A, 2) of every task with every sensitive attribute, by five matrix products.

    Args:
        truth, decisions: (N, T) of 0 and 1.
        attributes: (N, A) of 0 and 1, or -1 where the attribute is unknown: such a sample is in neither group.
    """
    kinds = np.asarray(attributes)
    if kinds.ndim != 2 or not np.isin(kinds, (-1, 0, 1)).all():
        raise fault("attributes", "shape (N, A) of 0, 1 and -1 for unknown", f"shape {kinds.shape}")
    member = np.stack([kinds == 0, kinds == 1], axis=2, dtype=np.float64).reshape(len(kinds), 2 * kinds.shape[1])
    return GroupCounts(*_counts(_binary(truth, "truth"), _binary(decisions, "decisions"), member, 2))


def class_counts(
    labels: NDArray[np.integer[Any]],
    predicted: NDArray[np.integer[Any]],
    groups: NDArray[np.integer[Any]],
    *,
    n_classes: int,
    n_groups: int,
) -> GroupCounts:
    """Counts (K, G) of the K decisions "it is class k" of a classifier; a prediction of -1 selects no class.

    One pass over the samples and K G cells, whatever N: no (N, K) table is made.

    Args:
        labels, groups: (N,) in [0, K) and [0, G).
        predicted: (N,) in [-1, K).
    """
    size = len(np.asarray(labels))
    truth, member = as_indices(labels, size, n_classes, "labels"), as_indices(groups, size, n_groups, "groups")
    answers = np.asarray(predicted)
    chosen = as_indices(np.where(answers == -1, 0, answers), size, n_classes, "predicted")
    answered = answers != -1
    hit = answered & (chosen == truth)

    def cells(classes: Ints, rows: Bools) -> Ints:
        flat = np.bincount((classes * n_groups + member)[rows], minlength=n_classes * n_groups)
        return np.asarray(flat.reshape(n_classes, n_groups))

    everyone = np.ones(size, dtype=bool)
    sizes = np.bincount(member, minlength=n_groups).astype(np.int64)
    selected, hits = cells(chosen, answered), cells(truth, hit)
    return GroupCounts(np.tile(sizes, (n_classes, 1)), cells(truth, everyone), selected, hits, selected - hits)


def gaps(counts: GroupCounts, *, delta: float = 0.05) -> dict[Metric, Gaps]:
    """DP, EOpp, EOdd and AOdd. Each metric's interval misses with probability at most delta, for each entry alone."""
    check_level(delta, "delta")
    n = counts.size.shape[-1]
    dp = _gap(counts.selected, counts.size, delta / n)
    eopp = _gap(counts.hits, counts.positive, delta / n)
    tpr = _gap(counts.hits, counts.positive, delta / (2 * n))
    fpr = _gap(counts.alarms, counts.negative, delta / (2 * n))
    return {"dp": dp, "eopp": eopp, "eodd": _joined(tpr, fpr, np.maximum), "aodd": _joined(tpr, fpr, _halfway)}


def _counts(truth: NDArray[Any], decisions: NDArray[Any], member: Floats, n_groups: int) -> list[Ints]:
    """(T, A, G) each, from truth and decisions (N, T) and one-hot membership (N, A G); sums of 0 and 1 are exact."""
    if truth.shape != decisions.shape or len(truth) != len(member):
        raise fault("decisions", f"shape {truth.shape} as the truth, for {len(member)} samples", f"{decisions.shape}")
    ones = np.ones_like(truth)
    tables = (ones, truth, decisions, decisions * truth, decisions * (1.0 - truth))
    shape = (truth.shape[1], member.shape[1] // n_groups, n_groups)
    return [np.rint(table.T @ member).astype(np.int64).reshape(shape) for table in tables]


def _gap(successes: Ints, trials: Ints, level: float) -> Gaps:
    """The gap of rates (..., G) of the groups with trials, and its range over their exact intervals at `level` each."""
    known = trials > 0
    low, high = clopper_pearson(successes, np.maximum(trials, 1), level / 2.0)
    rates = successes / np.maximum(trials, 1)
    least = _over(low, known, -np.inf).max(axis=-1) - _over(high, known, np.inf).min(axis=-1)
    pairs = _over(high, known, -np.inf)[..., :, None] - _over(low, known, np.inf)[..., None, :]
    other = ~np.eye(trials.shape[-1], dtype=bool)
    most = np.where(other, pairs, -np.inf).max(axis=(-2, -1))
    value = _over(rates, known, -np.inf).max(axis=-1) - _over(rates, known, np.inf).min(axis=-1)
    defined = known.sum(axis=-1) >= 2
    value, low, high = (np.where(defined, side, np.nan) for side in (value, np.maximum(least, 0), most))
    return Gaps(value, low, high, defined, ~known)


def _over(values: Floats, known: Bools, other: float) -> Floats:
    return np.where(known, values, other)


def _halfway(low: Floats, high: Floats) -> Floats:
    return np.asarray((low + high) / 2.0)


def _joined(left: Gaps, right: Gaps, join: Any) -> Gaps:
    """Both gaps joined; of an undefined one the other stands in for the value, 0 and 1 for the limits."""
    defined = left.defined | right.defined
    value = join(np.where(left.defined, left.value, right.value), np.where(right.defined, right.value, left.value))
    low, high = (
        np.where(defined, join(*(np.where(gap.defined, getattr(gap, side), unknown) for gap in (left, right))), np.nan)
        for side, unknown in (("low", 0.0), ("high", 1.0))
    )
    return Gaps(value, low, high, defined, left.missing | right.missing)


def _binary(values: NDArray[Any], where: str) -> NDArray[Any]:
    array = np.asarray(values)
    if not np.isin(array, (0, 1)).all():
        raise fault(where, "0 and 1", f"{int((~np.isin(array, (0, 1))).sum())} other values of {array.size}")
    return array
