"""Worse or better than before: the same samples scored in two audits, and many such comparisons together.

Each comparison has two one-sided hypotheses, "the mean has not fallen" and "the mean has not risen", and a valid
finite-sample p-value for each:

==============================  ==========================================  =======================================
scores                          p-value                                     needs
==============================  ==========================================  =======================================
0 or 1                          McNemar's exact test: of the pairs that     independent pairs, one mean difference
                                differ, Binomial(n, 1/2)
in [0, bound]                   betting on the difference (WSR), Ville      independent pairs, one mean difference
a stratified whole              Maurer & Pontil's Theorem 11, inverted      independent pairs alone
==============================  ==========================================  =======================================

Holm's step-down over both hypotheses of all comparisons (`decide`) keeps the probability of *any* false "worse" or
"better" at most alpha, however the comparisons depend on each other: two models see the same samples, a sample is in
its class and in the whole. Controlling the false discovery rate instead would let a flag be false more often the more
true ones there are; under such dependence that needs Benjamini and Yekutieli's factor log m, and is no sharper for few.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from services.numerics.arguments import Floats, Ints, as_indices, check_level, fault
from services.numerics.intervals import betting
from services.numerics.intervals.clusters import cluster_means
from services.numerics.intervals.means import Method, Sample, limits, method_for
from services.numerics.paired import as_pairs, holm
from services.numerics.tails import at_most
from services.records import Estimate

Flag = Literal["worse", "better", "not separated"]


@dataclass(frozen=True)
class Changes:
    """Mean differences after - before of G groups; NaN everywhere where a group has no pairs.

    Attributes:
        counts: (G,) pairs.
        before, after, difference: (G,) means in the score's unit.
        low, high: (G,) limits of the difference, each one-sided at the level asked.
        worse: (G,) p-values of "the mean has not fallen"; small ones say that it has.
        better: (G,) p-values of "the mean has not risen".
        test: of the p-values: "exact McNemar", "betting" or "empirical Bernstein".
    """

    counts: Ints
    before: Floats
    after: Floats
    difference: Floats
    low: Floats
    high: Floats
    worse: Floats
    better: Floats
    test: str


def changes(
    before: NDArray[Any],
    after: NDArray[Any],
    groups: NDArray[np.integer[Any]],
    n_groups: int,
    *,
    bound: float,
    alpha: float,
    binary: bool = False,
    stratified: bool = False,
    clusters: NDArray[np.integer[Any]] | None = None,
    seed: int | None = 0,
) -> Changes:
    """Compare scores (N,) in [0, bound] of the same samples, by group (N,).

    Args:
        alpha: of each limit. For a family of limits that hold together, give a share of its level to each.
        binary: scores are 0 or bound.
        stratified: a group's pairs have *different* mean differences, as those of all classes together when the number
            of samples a class was fixed in advance.
        clusters: (N,) which samples belong together: then a cluster's mean scores in a group are a pair.
        seed: of the order in which betting takes the pairs.

    Raises:
        MeasureError: scores of different lengths or out of range, or `binary` ones that are not 0 or bound.
    """
    check_level(alpha, "alpha")
    old, new = as_pairs(before, after, bound)
    index = as_indices(groups, old.size, n_groups, "groups")
    if clusters is not None:
        binary = False
        (old, pairs), (new, _) = (cluster_means(side, index, clusters) for side in (old, new))
        index = pairs
    sample = Sample.of((new - old + bound) / (2.0 * bound), index, n_groups, bound=1.0, seed=seed)
    defined = sample.counts > 0
    method: Method = "empirical-bernstein" if stratified else "betting"
    low, high = limits(sample, alpha, method)
    if stratified:
        worse, better, test = *_bernstein(sample), "empirical Bernstein"
    elif binary:
        worse, better, test = *_mcnemar(old, new, index, n_groups, bound), "exact McNemar"
    else:
        worse, better, test = *_betting(sample, alpha), "betting"

    def by_class(values: Floats) -> Floats:
        return np.where(defined, values, np.nan)

    return Changes(
        counts=sample.counts,
        before=by_class(_means(old, index, sample.counts)),
        after=by_class(_means(new, index, sample.counts)),
        difference=by_class((2.0 * sample.means - 1.0) * bound),
        low=by_class((2.0 * low - 1.0) * bound),
        high=by_class((2.0 * high - 1.0) * bound),
        worse=by_class(worse),
        better=by_class(better),
        test=test,
    )


def worst_change(
    before: NDArray[Any],
    after: NDArray[Any],
    groups: NDArray[np.integer[Any]],
    n_groups: int,
    *,
    bound: float,
    alpha: float,
    clusters: NDArray[np.integer[Any]] | None = None,
    seed: int | None = 0,
) -> Estimate:
    """The smallest mean difference of any group: how much the group lost that lost most (or gained least).

    low: the smallest of the groups' one-sided bounds at level alpha each, an intersection-union test (Berger 1982): it
    exceeds the truth with probability at most alpha, without a correction for the number of groups. high: the smallest
    of their upper bounds at level alpha / G each. Groups without pairs are left out.

    Returns:
        undefined when no group has pairs.

    Raises:
        MeasureError: as `changes`.
    """
    own = changes(before, after, groups, n_groups, bound=bound, alpha=alpha, clusters=clusters, seed=seed)
    defined = own.counts > 0
    if not defined.any():
        return Estimate(None, reason="no samples in common")
    share = alpha / int(defined.sum())
    joint = changes(before, after, groups, n_groups, bound=bound, alpha=share, clusters=clusters, seed=seed)
    sides = (own.difference, own.low, joint.high)
    value, low, high = (float(side[defined].min()) for side in sides)
    return Estimate(value, low, high)


def change_of_the_worst(
    before: NDArray[Any],
    after: NDArray[Any],
    groups: NDArray[np.integer[Any]],
    n_groups: int,
    *,
    bound: float,
    alpha: float,
    binary: bool = False,
    weakest: tuple[int, int] | None = None,
    clusters: NDArray[np.integer[Any]] | None = None,
    seed: int | None = 0,
) -> Estimate:
    """The smallest group mean after less the smallest before, ``min_k a_k - min_k b_k``: what the worst class gained.

    With one-sided limits at alpha / 4 each: d_k and D_k of the paired differences, A_k (lower) of the means after, L_k
    (lower) of those before; and U and B above the smallest means after and before: the upper limits of the two groups
    `weakest`, which were chosen without these samples, for no smallest mean exceeds that of any one group; without
    them the smallest upper limits of all groups, at alpha / 4 together (Bonferroni).

    low: ``min_k max(A_k - B, max(0, L_k - B) + d_k)``. For the k where a_k is smallest either bounds the gain: a_k is
    at least A_k, and b_k lies at least L_k - B above the smallest b, so a class far from the worst may fall that far.
    high: ``max_k min(D_k, U - L_k)`` over the k with L_k <= B, the groups that may be the worst before.

    Only the limits of one k need to hold on either side, whichever it is, so those of single groups are not corrected
    for their number. Either limit misses with probability at most alpha.

    Args:
        before, after: (N,) scores in [0, bound] of the same samples.
        weakest: the groups that other samples say are the weakest, before and after.
        alpha, binary, clusters, seed: as in `changes`.

    Returns:
        undefined when no group has pairs.

    Raises:
        MeasureError: as `changes`.
    """
    share = alpha / 4
    paired = changes(before, after, groups, n_groups, bound=bound, alpha=share, clusters=clusters, seed=seed)
    defined = paired.counts > 0
    if not defined.any():
        return Estimate(None, reason="no samples in common")

    def sides(scores: NDArray[Any], chosen: int | None) -> tuple[Floats, float]:
        """The lower limit of each group, and a number above the smallest mean."""
        values, index = np.asarray(scores, dtype=np.float64), as_indices(groups, len(scores), n_groups, "groups")
        if clusters is not None:
            values, index = cluster_means(values, index, clusters)
        sample = Sample.of(values, index, n_groups, bound=bound, seed=seed)
        method = method_for(None, binary=binary and clusters is None)
        least, most = (side * bound for side in limits(sample, share, method))
        if chosen is not None and defined[chosen]:
            return least, float(most[chosen])
        joint = limits(sample, share / int(defined.sum()), method)[1] * bound
        return least, float(joint[defined].min())

    first, last = (None, None) if weakest is None else weakest
    (old, old_bar), (new, new_bar) = sides(before, first), sides(after, last)
    gained = np.maximum(new - old_bar, np.maximum(0.0, old - old_bar) + paired.low)
    most = np.minimum(paired.high, new_bar - old)[defined & (old <= old_bar)]
    value = float(paired.after[defined].min() - paired.before[defined].min())
    return Estimate(value, min(float(gained[defined].min()), value), max(float(most.max()), value))


def decide(worse: Sequence[float], better: Sequence[float], alpha: float) -> list[tuple[Flag, float]]:
    """The flag of each comparison and its adjusted p-value, the smaller of its two directions.

    Args:
        worse, better: p-values as in `Changes`; one NaN in both for a comparison that could not be made.
        alpha: the probability of one or more false flags, at most.
    """
    check_level(alpha, "alpha")
    known = tuple(None if np.isnan(p) else float(p) for p in (*worse, *better))
    adjusted = [1.0 if p is None else p for p in holm(known)]
    pairs = zip(adjusted[: len(worse)], adjusted[len(worse) :], strict=True)
    return [_flag(down, up, alpha) for down, up in pairs]


def _flag(down: float, up: float, alpha: float) -> tuple[Flag, float]:
    if min(down, up) > alpha:
        return "not separated", min(down, up)
    return ("worse", down) if down <= up else ("better", up)


def _means(values: Floats, index: Ints, counts: Ints) -> Floats:
    sums = np.bincount(index, weights=values, minlength=counts.size)
    return np.asarray(sums / np.maximum(counts, 1))


def _mcnemar(old: Floats, new: Floats, index: Ints, n_groups: int, bound: float) -> tuple[Floats, Floats]:
    """Given the pairs that differ, those that rose are Binomial(n, 1/2) when neither direction is likelier."""
    for name, values in (("before", old), ("after", new)):
        if not np.isin(values, (0.0, bound)).all():
            raise fault(name, f"scores that are all 0 or {bound:g} for an exact test", "others")
    up = np.bincount(index[new > old], minlength=n_groups)
    down = np.bincount(index[new < old], minlength=n_groups)
    return at_most(up, up + down, 0.5), at_most(down, up + down, 0.5)


def _betting(sample: Sample, alpha: float) -> tuple[Floats, Floats]:
    worse, better = np.zeros(sample.counts.size), np.zeros(sample.counts.size)
    for block, values, mask in sample.blocks():
        half = np.full(block.size, 0.5)
        better[block] = betting.log_p_value(values, mask, half, alpha)
        worse[block] = betting.log_p_value(1.0 - values, mask, half, alpha)
    return np.exp(worse), np.exp(better)


def _bernstein(sample: Sample) -> tuple[Floats, Floats]:
    """The smallest level at which the limit of `empirical-bernstein` leaves 1/2 out, on either side.

    With x = sqrt(log(2 / p)), ``7 x^2 / (3 (n - 1)) + sqrt(2 V / n) x = |mean - 1/2|``.
    """
    n = np.maximum(sample.counts, 2)  # with so few the level is 1 whatever they are
    a, b = 7.0 / (3.0 * (n - 1)), np.sqrt(2.0 * sample.variances / n)
    away = sample.means - 0.5
    root = (-b + np.sqrt(b**2 + 4.0 * a * np.abs(away))) / (2.0 * a)
    p = np.minimum(1.0, 2.0 * np.exp(-(root**2)))
    return np.where(away < 0, p, 1.0), np.where(away > 0, p, 1.0)
