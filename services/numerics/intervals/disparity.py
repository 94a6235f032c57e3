"""Intervals for RDI, NRGC, WCR, FP and the aggregate (GF Prop. 2; GF calls bounds for NRGC and WCR open).

RDI, NRGC and FP are functions of the group means, and the simultaneous intervals say that with probability at least
1 - delta all means lie in the box ``[L_1, U_1] x ... x [L_G, U_G]``. The exact range of the function over the box is
then an interval with the same guarantee; each function below computes that range exactly. WCR has better than the box.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.numerics.arguments import Floats, as_scores, check_bound, check_level, fault
from services.numerics.disparity import ALL_ZERO, NO_GROUP, nrgc, rank_weights
from services.numerics.intervals.means import Intervals, Method, Sample, limits, method_for
from services.records import Estimate

Range = tuple[float, float]

MOST_EXACT = 200
"""Groups up to which NRGC's largest value over a box is exact; beyond, the assignments would take seconds."""


def rdi_range(low: Floats, high: Floats) -> Range:
    """Smallest and largest ``max_k m_k - min_k m_k`` over the box.

    Smallest: all means inside ``[max L, min U]`` when that is not empty, else its gap. Largest: ``max_{i != j} U_i -
    L_j``.
    """
    least = max(0.0, float(low.max() - high.min()))
    if low.size == 1:
        return 0.0, 0.0
    return least, max(0.0, -_best_pair(-high, low))


def fp_range(low: Floats, high: Floats, penalty: float) -> Range:
    """Smallest and largest ``mean_k m_k - penalty * RDI(m)`` over the box.

    The function is concave. Largest: given the largest mean b, raise every mean to ``min(U_k, b)``, which costs
    nothing; what is left is concave and piecewise linear in b with corners at the U_k, so trying them (and max L, the
    smallest b there is) is enough. Smallest: ``min_{i, j}`` of ``mean m - penalty (m_i - m_j)``, linear for each pair,
    so every mean sits at an end: L_j for j, for i the end that its coefficient ``1/G - penalty`` asks for, L for the
    others.
    """
    size = low.size
    if size == 1:
        return float(low[0]), float(high[0])
    caps = np.unique(np.append(np.maximum(high, low.max()), low.max()))
    ordered = np.sort(high)
    below = np.searchsorted(ordered, caps)
    prefix = np.concatenate([[0.0], np.cumsum(ordered)])
    mean = (prefix[below] + caps * (size - below)) / size
    most = float(np.max(mean - penalty * (caps - np.minimum(ordered[0], caps))))
    coefficient = 1.0 / size - penalty
    change = np.minimum(coefficient * low, coefficient * high) - low / size
    return float(low.mean()) + _best_pair(change, penalty * low), most


def _best_pair(first: Floats, second: Floats) -> float:
    """``min_{i != j} first_i + second_j`` from the two smallest of each."""
    a, b = np.argsort(first)[:2], np.argsort(second)[:2]
    return min(float(first[i] + second[j]) for i in a for j in b if i != j)


def nrgc_range(low: Floats, high: Floats) -> Range | None:
    """Smallest and largest NRGC over the box; None when the box holds nothing but 0.

    Smallest, exact in O(G log G): among vectors of the box with one sum, ``clip(c, L, U)`` is majorised by all others
    and NRGC's numerator is Schur-convex. Between neighbouring values among the L_k and U_k the order of the clipped
    vector does not change, so numerator and denominator are linear in c, their ratio is monotone, and one of the 2 G
    values is best. Largest: `largest_nrgc`.
    """
    if high.max() <= 0.0:
        return None
    low, high = low / high.max(), high / high.max()  # NRGC has no scale; this keeps subnormal scores apart
    return _smallest_nrgc(low, high), largest_nrgc(low, high)


def _smallest_nrgc(low: Floats, high: Floats) -> float:
    size = low.size
    levels = np.unique(np.concatenate([low, high]))
    weights, lows, highs = rank_weights(size), np.sort(low), np.sort(high)
    under, over = np.searchsorted(highs, levels), np.searchsorted(lows, levels)

    def total(factors: Floats) -> Floats:
        capped = np.concatenate([[0.0], np.cumsum(factors * highs)])[under]
        raised = np.concatenate([[0.0], np.cumsum((factors * lows)[::-1])])[size - over]
        steps = np.concatenate([[0.0], np.cumsum(factors)])
        return np.asarray(capped + raised + levels * (steps[over] - steps[under]))

    if not low.any():
        return 0.0
    return max(0.0, float(np.min(total(weights) / (size * total(np.ones(size))))))


def largest_nrgc(low: Floats, high: Floats) -> float:
    """The largest ``N(m) / (G D(m))``, N the weighted sum over sorted means, D their sum, by Dinkelbach's iteration.

    ``N(m) = max`` over rankings r of ``sum_k w_{r(k)} m_k`` (rearrangement). So for a ratio q the largest
    ``N(m) - q G D(m)`` is the largest over rankings of ``sum_k max_{m_k} (w_{r(k)} - q G) m_k``, an assignment problem
    whose m_k are L_k or U_k. The ratio of its solution exceeds q until q is the maximum. For many groups the
    assignment is relaxed (`relaxed_nrgc`): an upper bound, in practice within 1e-3 of the exact one.
    """
    size, weights = low.size, rank_weights(low.size)
    if size == 1:
        return 0.0
    if size > MOST_EXACT:
        return relaxed_nrgc(low, high)
    from scipy.optimize import linear_sum_assignment  # half of the time that reading a fleet file takes

    ratio = 0.0
    for _ in range(60):
        coefficients = weights[None, :] - ratio * size
        gain = np.maximum(coefficients * high[:, None], coefficients * low[:, None])
        _, ranks = linear_sum_assignment(gain, maximize=True)
        better = nrgc(np.where(coefficients[0, ranks] > 0.0, high, low)) or 0.0
        if better <= ratio:
            break
        ratio = better
    return min(ratio * (1.0 + 1e-12), (size - 1.0) / size)


def relaxed_nrgc(low: Floats, high: Floats) -> float:
    """An upper bound of NRGC over the box: a ratio at which even the relaxed gain is not positive, by bisection."""
    size, weights = low.size, rank_weights(low.size)
    below, above = 0.0, (size - 1.0) / size
    for _ in range(40):
        ratio = 0.5 * (below + above)
        possible = _relaxed_gain(low, high, weights - ratio * size) > 0.0
        below, above = (ratio, above) if possible else (below, ratio)
    return above


def _relaxed_gain(low: Floats, high: Floats, coefficients: Floats) -> float:
    """At least the best assignment: ranks with positive coefficients take the largest U, the others the smallest L.

    Both sides choose among all groups, where an assignment must share them; within a side sorting is best.
    """
    top = coefficients > 0.0
    upper = float(coefficients[top] @ np.sort(high)[low.size - int(top.sum()) :])
    return upper + float(coefficients[~top] @ np.sort(low)[: int((~top).sum())])


def weakest_mean(means: Floats, count: int) -> float:
    """Mean of the `count` smallest of the means (G,)."""
    return float(np.sort(means)[:count].mean())


def weakest_interval(
    estimate: float,
    scores: NDArray[Any],
    groups: NDArray[np.integer[Any]],
    n_groups: int,
    *,
    bound: float,
    delta: float,
    count: int = 1,
    method: Method | None = None,
    binary: bool = False,
    mixed: bool = False,
    seed: int | None = 0,
    times: float = 1.0,
) -> Estimate:
    """The mean of the m = `count` smallest group means, with limits that each hold with probability at least 1 - delta.

    One group, m = 1, is WCR. Low: the mean of the m smallest of the groups' one-sided lower bounds at level delta / m.
    Let S be the m groups that truly are the weakest; they are fixed, though unknown. With probability at least
    1 - delta the bounds of all m of them hold, and then the mean over S is at least the mean of their bounds, which is
    at least that of the m smallest bounds. So the correction is for m groups and not for all; for m = 1 there is none,
    which is an intersection-union test (Berger 1982).

    High: the mean of the m smallest of upper bounds that hold for all G groups jointly (delta / G each, one-sided), for
    the mean of the m smallest rises with every mean. Here the correction is needed: any group, not only the weakest,
    may supply a bound that fails.

    The interval [low, high] as a whole holds with probability at least 1 - 2 delta.

    Args:
        estimate: the mean of the m smallest means of the scores.
        mixed: samples of a group are independent with *different* means, as those of an attribute's group are when the
            numbers of samples a class were fixed in advance. Exact limits then take `mixed_level`; betting needs one
            mean, so a method that needs independence alone must be asked for.
    """
    check_level(delta, "delta")
    sample = Sample.of(scores, groups, n_groups, bound=bound, seed=seed, times=times)
    defined = sample.counts > 0
    if not defined.any():
        return Estimate(None, reason=NO_GROUP)
    if not 1 <= count <= int(defined.sum()):
        raise fault("count", f"a number of groups from 1 to {int(defined.sum())}", str(count))
    chosen = method_for(method, binary=binary)
    levels = delta / count, delta / int(defined.sum())
    if mixed and chosen == "clopper-pearson":
        levels = mixed_level(levels[0]), mixed_level(levels[1])
    lower, _ = limits(sample, levels[0], chosen)
    _, upper = limits(sample, levels[1], chosen)
    low = min(estimate, weakest_mean(lower[defined], count) * bound)
    high = max(estimate, weakest_mean(upper[defined], count) * bound)
    return _estimate(estimate, (low, high), bound)


def mixed_level(alpha: float) -> float:
    """Level at which a one-sided Clopper-Pearson limit errs at most `alpha` for unequal Bernoulli variables.

    Let S be a sum of n independent ones with mean m, and B binomial with the same. The lower limit fails when S reaches
    the least k with P(B >= k) <= alpha. If k >= m + 1, P(S >= k) <= P(B >= k) (Hoeffding 1956). A smaller k needs
    m < 1, as P(B >= m) > 1/4 otherwise (Greenberg & Mohri 2014), and k = 1: then P(S >= 1) <= m, which one variable of
    mean m among constants reaches, while P(B >= 1) >= 1 - exp(-m). So ``min(1 - exp(-alpha), 1 / 4)`` will do; alpha
    itself would err with up to ``-log(1 - alpha)``. A two-sided interval, alpha a side, keeps 2 alpha without it.
    """
    return min(-float(np.expm1(-alpha)), 0.25)


def rdi_over(value: Estimate, low: Floats, high: Floats, bound: float) -> Estimate:
    """RDI with its range over the box."""
    return _estimate(value.value, rdi_range(low, high), bound)


def nrgc_over(value: Estimate, low: Floats, high: Floats) -> Estimate:
    """NRGC with its range over the box."""
    return _nrgc_estimate(value, nrgc_range(low, high), (low.size - 1) / low.size)


def fp_over(value: Estimate, low: Floats, high: Floats, bound: float, penalty: float) -> Estimate:
    """FP with its range over the box."""
    least = -penalty * bound * (low.size > 1)
    return _estimate(value.value, fp_range(low, high, penalty), bound, least=least)


def weakest_over(value: Estimate, low: Floats, high: Floats, bound: float, count: int) -> Estimate:
    """The mean of the `count` smallest means with its range over the box: it rises with every mean."""
    return _estimate(value.value, (weakest_mean(low, count), weakest_mean(high, count)), bound)


def widened(low: Floats, high: Floats, bound: float) -> tuple[Floats, Floats]:
    """The box of group means (G,) with [0, bound] in the places of groups without a score, which are NaN.

    What holds for the groups that are there need not hold for all: a missing group may be the worst. A metric's exact
    range over the wider box keeps the guarantee of the box.
    """
    return np.where(np.isnan(low), 0.0, low), np.where(np.isnan(high), bound, high)


def _nrgc_estimate(value: Estimate, ratio: Range | None, most: float) -> Estimate:
    if value.value is None or ratio is None:
        return Estimate(None, reason=value.reason or ALL_ZERO)
    return _estimate(value.value, ratio, most)


def _estimate(value: float | None, limits: Range, most: float, least: float = 0.0) -> Estimate:
    if value is None:
        return Estimate(None, reason=NO_GROUP)
    low, high = min(value, limits[0]), max(value, limits[1])
    vacuous = high > low and low <= least + 1e-12 and high >= most - 1e-12
    return Estimate(value, low, high, "the interval covers the whole range" if vacuous else "", vacuous)


def aggregate_interval(
    scores: NDArray[Any],
    *,
    bound: float,
    delta: float,
    method: Method | None = None,
    binary: bool = False,
    stratified: bool = False,
    seed: int | None = 0,
    times: float = 1.0,
) -> Estimate:
    """Mean of all scores (N,) with a two-sided interval at level delta.

    Args:
        stratified: the numbers of samples a class were fixed in advance, so that scores are independent with
        *different*
            means, and the target is ``sum_k n_k / N * m_k``. Betting, which needs one mean, is then replaced by
            empirical Bernstein (Maurer & Pontil Theorem 11 asks for independence alone, as does Hoeffding). For 0/1
            scores Clopper-Pearson stays: both sides together miss with probability at most delta (`mixed_level`).

    Returns:
        value None with a reason when there are no scores.
    """
    check_level(delta, "delta")
    check_bound(bound)
    values = as_scores(scores, bound)
    if not values.size:
        return Estimate(None, reason="no samples")
    chosen = method_for(method, binary=binary)
    if stratified and chosen == "betting":
        chosen = "empirical-bernstein"
    sample = Sample.of(values, np.zeros(values.size, dtype=np.int64), 1, bound=bound, seed=seed, times=times)
    low, high = limits(sample, delta / 2, chosen)
    return _estimate(float(sample.means[0]) * bound, (float(low[0]) * bound, float(high[0]) * bound), bound)


def not_separated(box: Intervals, worst: int) -> tuple[int, ...]:
    """Indices of the groups, besides `worst`, whose simultaneous intervals overlap that of the group `worst`.

    The data cannot say that these are better than the worst group.

    Raises:
        MeasureError: the group has no samples.
    """
    if not (0 <= worst < box.low.size and box.defined[worst]):
        raise fault("worst", "the index of a group with samples", str(worst))
    near = (box.low <= box.high[worst]) & (box.high >= box.low[worst])  # false for NaN
    return tuple(int(k) for k in np.flatnonzero(near) if k != worst)
