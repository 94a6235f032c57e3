"""Worse or better than before when the samples are others: two independent sets of scores, and no pairs.

Scores of 0 or the bound: Fisher's exact test. Others: "the mean has not fallen" says for each m that the mean was at
most m before or is at least m now. With `mixture`'s evidence E against each of the two, ``min(E_before(m),
E_after(m))`` has the expectation 1 at most, and so has the mean over a fixed grid of m: an e-value, and 1 / e is a
p-value (Markov). More scores of the same model on further fresh samples are simply added: the evidence of many audits
accumulates, and `streams` gives each look its level.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.numerics.arguments import Floats, check_level
from services.numerics.change import Changes
from services.numerics.intervals import mixture
from services.numerics.intervals.clusters import cluster_means
from services.numerics.intervals.means import Sample, limits

POINTS = 200
GRID: Floats = np.sin(np.pi * np.arange(1, POINTS) / (2 * POINTS)) ** 2
"""Denser where means have less variance."""


def unpaired_changes(
    before: NDArray[Any],
    after: NDArray[Any],
    groups: tuple[NDArray[np.integer[Any]], NDArray[np.integer[Any]]],
    n_groups: int,
    *,
    bound: float,
    alpha: float,
    binary: bool = False,
    clusters: tuple[NDArray[np.integer[Any]], NDArray[np.integer[Any]]] | None = None,
) -> Changes:
    """Compare scores (n,) and (m,) in [0, bound] of independent samples, by group.

    Args:
        groups: of the samples before and after.
        alpha: of each limit of a difference; `anytime` limits of both sides at half of it.
        binary: scores are 0 or bound.
        clusters: which samples belong together, on either side: their means are no longer 0 or bound.

    Raises:
        MeasureError: scores or groups out of range.
    """
    check_level(alpha, "alpha")
    sides = [before, after]
    codes = [np.asarray(each) for each in groups]
    if clusters is not None:
        pairs = [cluster_means(*each) for each in zip(sides, codes, clusters, strict=True)]
        sides, codes = [values for values, _ in pairs], [group for _, group in pairs]
    old, new = (
        Sample.of(values, group, n_groups, bound=bound, seed=None) for values, group in zip(sides, codes, strict=True)
    )
    both = (old.counts > 0) & (new.counts > 0)
    (low_old, high_old), (low_new, high_new) = (limits(each, alpha / 2, "anytime") for each in (old, new))
    exact = binary and clusters is None
    worse, better = _fisher(old, new) if exact else _by_evidence(old, new, np.flatnonzero(both).tolist())

    def there(values: Floats) -> Floats:
        return np.where(both, values, np.nan)

    return Changes(
        counts=np.where(both, new.counts, 0),
        before=there(old.means * bound),
        after=there(new.means * bound),
        difference=there((new.means - old.means) * bound),
        low=there((low_new - high_old) * bound),
        high=there((high_new - low_old) * bound),
        worse=there(worse),
        better=there(better),
        test="Fisher's exact test" if exact else "unpaired betting",
    )


def _fisher(old: Sample, new: Sample) -> tuple[Floats, Floats]:
    """Given all ones of both, those that are in the later set are hypergeometric when the means are equal."""
    was, now = (np.rint(each.means * each.counts).astype(np.int64) for each in (old, new))
    from scipy.stats import hypergeom  # half a second of every audit's start

    law = hypergeom(old.counts + new.counts, was + now, new.counts)
    return np.asarray(law.cdf(now)), np.asarray(law.sf(now - 1))


def _by_evidence(old: Sample, new: Sample, groups: list[int]) -> tuple[Floats, Floats]:
    worse, better = np.ones(old.counts.size), np.ones(old.counts.size)
    for k in groups:
        was, now = (each.values[each.starts[k] : each.starts[k] + each.counts[k]] for each in (old, new))
        worse[k], better[k] = p_value(was, now), p_value(now, was)
    return worse, better


def p_value(higher: Floats, lower: Floats) -> float:
    """Of "the mean of the first is at most that of the second"; scores (n,), (m,) in [0, 1].

    Points of the grid outside the two means add next to nothing; leaving them out makes the p-value larger.
    """
    chosen = GRID[(lower.mean() < GRID) & (higher.mean() > GRID)]
    if not chosen.size:
        return 1.0
    above, below = _evidence(higher, chosen), _evidence(1.0 - lower, 1.0 - chosen)
    log_e = np.logaddexp.reduce(np.minimum(above, below)) - np.log(GRID.size)
    return float(min(1.0, np.exp(-log_e)))


def _evidence(values: Floats, null: Floats) -> Floats:
    """(M,) log evidence against "the mean is at most `null`" (M,)."""
    if np.isin(values, (0.0, 1.0)).all():
        return mixture.log_evidence_of_counts(values.sum(), values.size, null)
    rows = np.broadcast_to(values, (null.size, values.size))
    return mixture.log_evidence(rows, np.ones_like(rows, dtype=bool), null)
