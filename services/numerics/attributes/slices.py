"""Weak groups that nobody named: found on one half of the samples, confirmed on the other.

Candidates are quarters of measured attributes and clusters of an embedding. On the half that searches, those that fail
more often than their mix of classes explains are chosen; on the half that confirms, only these are tested, exactly and
given the classes. What is confirmed therefore is no effect of the search.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from services.numerics.arguments import Floats, Ints, check_level, fault
from services.numerics.intervals.means import clopper_pearson
from services.numerics.paired import holm

MOST_TESTED = 10
"""Candidates that are tested on the other half."""
FEWEST = 12
"""Samples of a candidate in the half that searches."""
EXCESS = 1.0
"""Standard deviations above what its classes explain from which a candidate is tested."""
DIMENSIONS = 16
"""Principal components in which clusters are looked for."""
MOST_CLUSTERS = 25


@dataclass(frozen=True)
class Slice:
    """A group that fails more often than its classes explain, by the half that did not find it.

    Attributes:
        source: the attribute, or "embedding".
        low, high: of the attribute, the range; None at an end that is open, and for a cluster.
        n, wrong: samples of it in the confirming half, and how many fail.
        rate: share that keeps its class, wrong / n taken from 1, with limits `rate_low` and `rate_high` that hold for
            all candidates tested together.
        expected: the share that its mix of classes would keep.
        p: adjusted for all candidates tested (Holm).
        rows: of its failing samples in the confirming half, those nearest to its middle first.
    """

    source: str
    low: float | None
    high: float | None
    n: int
    wrong: int
    rate: float
    rate_low: float
    rate_high: float
    expected: float
    p: float
    rows: Ints


@dataclass(frozen=True)
class SliceSearch:
    """What was confirmed, the smallest p first, and how many candidates there were and were tested."""

    slices: tuple[Slice, ...]
    candidates: int
    tested: int


@dataclass(frozen=True)
class _Candidate:
    source: str
    low: float | None
    high: float | None
    members: NDArray[np.bool_]
    middle: Floats
    """(N,) distance of each sample from the middle of the candidate."""


def find_slices(
    right: NDArray[np.bool_],
    labels: Ints,
    attributes: Mapping[str, Floats],
    embedding: Floats | None,
    *,
    delta: float,
    seed: int,
) -> SliceSearch:
    """Search and confirm.

    Guarantee: where failing does not depend on the candidates given the class, one or more slices are named with
    probability at most delta, whatever was looked at in the half that searches: the test is exact given the numbers of
    each class that fail (a sum of independent hypergeometric counts), and Holm's step-down holds under any dependence.

    Args:
        right: (N,) whether a sample keeps its class.
        attributes: numbers (N,) measured of each image.
        embedding: (N, D), or None.

    Raises:
        MeasureError: other shapes.
    """
    check_level(delta, "delta")
    if labels.shape != right.shape or any(values.shape != right.shape for values in attributes.values()):
        raise fault("attributes", f"one value for each of {len(right)} samples", "others")
    draw = np.random.default_rng(np.random.SeedSequence([seed, 17]))
    searching = _half(labels, draw)
    candidates = [*_quarters(attributes, searching), *_clusters(embedding, searching, draw)]
    excess = [_excess(candidate.members & searching, right, labels, searching) for candidate in candidates]
    order = np.argsort([-value for value in excess], kind="stable")
    chosen = [candidates[k] for k in order.tolist() if excess[k] >= EXCESS][:MOST_TESTED]
    if not chosen:
        return SliceSearch((), len(candidates), 0)
    tested = [_tested(candidate, right, labels, ~searching, delta / len(chosen)) for candidate in chosen]
    adjusted = holm(tuple(each.p for each in tested))
    pairs = zip(tested, adjusted, strict=True)
    named = [replace(each, p=p) for each, p in pairs if p is not None and p <= delta]
    return SliceSearch(tuple(sorted(named, key=lambda each: (each.p, -each.n))), len(candidates), len(chosen))


def _half(labels: Ints, draw: np.random.Generator) -> NDArray[np.bool_]:
    """(N,) half of each class, drawn."""
    order = np.lexsort((draw.random(len(labels)), labels))
    starts = np.searchsorted(labels[order], labels[order], side="left")
    half = np.zeros(len(labels), dtype=bool)
    half[order] = (np.arange(len(labels)) - starts) % 2 == 0
    return half


def _quarters(attributes: Mapping[str, Floats], searching: NDArray[np.bool_]) -> list[_Candidate]:
    """The four quarters of each attribute, cut by the half that searches."""
    quarters = []
    for name, values in attributes.items():
        known = values[searching & np.isfinite(values)]
        if len(np.unique(known)) < 4:
            continue
        cuts = np.unique(np.quantile(known, (0.25, 0.5, 0.75)))
        for low, high in zip((None, *cuts), (*cuts, None), strict=True):
            inside = np.isfinite(values)
            inside &= (values >= low) if low is not None else True
            inside &= (values < high) if high is not None else True
            if inside.any():
                middle = np.abs(values - np.median(values[inside]))
                low_end, high_end = (None if end is None else float(end) for end in (low, high))
                quarters.append(_Candidate(name, low_end, high_end, inside, middle))
    return quarters


def _clusters(embedding: Floats | None, searching: NDArray[np.bool_], draw: np.random.Generator) -> list[_Candidate]:
    """Clusters by k-means in the first principal components, both of the half that searches."""
    if embedding is None or searching.sum() < 4 * FEWEST:
        return []
    values = np.nan_to_num(np.asarray(embedding, dtype=np.float64))
    centred = values - values[searching].mean(axis=0)
    _, sizes, axes = np.linalg.svd(centred[searching], full_matrices=False)
    kept = min(DIMENSIONS, int((sizes > 1e-9 * max(sizes[0], 1e-300)).sum()))
    if not kept:
        return []
    points = centred @ axes[:kept].T
    count = int(np.clip(searching.sum() // (4 * FEWEST), 2, MOST_CLUSTERS))
    from scipy.cluster.vq import kmeans2  # a fifth of a second of every audit's start

    centres, _ = kmeans2(points[searching], count, minit="++", rng=draw)
    centres = centres[np.isfinite(centres).all(axis=1)]
    distance = np.sqrt(((points[:, None, :] - centres) ** 2).sum(axis=2))
    nearest = distance.argmin(axis=1)
    return [_Candidate("embedding", None, None, nearest == k, distance[:, k]) for k in range(len(centres))]


def _excess(members: NDArray[np.bool_], right: NDArray[np.bool_], labels: Ints, half: NDArray[np.bool_]) -> float:
    """Failures above what the mix of classes explains, in standard deviations; -inf of too few samples."""
    if members.sum() < FEWEST:
        return -np.inf
    size, wrong, inside = _counts(members, right, labels, half)
    share = wrong / np.maximum(size, 1)
    mean = float((inside * share).sum())
    spread = float((inside * share * (1 - share) * (size - inside) / np.maximum(size - 1, 1)).sum())
    return float(((~right[members]).sum() - mean) / np.sqrt(spread)) if spread > 0 else -np.inf


def _counts(
    members: NDArray[np.bool_], right: NDArray[np.bool_], labels: Ints, half: NDArray[np.bool_]
) -> tuple[Ints, Ints, Ints]:
    """(K,) samples of each class in a half, those that fail, and those of the candidate."""
    many = int(labels.max()) + 1
    sides = (labels[half], labels[half & ~right], labels[half & members])
    size, wrong, inside = (np.bincount(side, minlength=many) for side in sides)
    return size, wrong, inside


def _tested(
    candidate: _Candidate, right: NDArray[np.bool_], labels: Ints, half: NDArray[np.bool_], level: float
) -> Slice:
    members = candidate.members & half
    n, failing = int(members.sum()), np.flatnonzero(members & ~right)
    size, wrong, inside = _counts(candidate.members, right, labels, half)
    p = stratified_tail(len(failing), size, wrong, inside)
    expected = 1 - float((inside * wrong / np.maximum(size, 1)).sum()) / n if n else 0.0
    low, high = clopper_pearson(np.array([n - len(failing)]), np.array([n]), level / 2) if n else ((0.0,), (1.0,))
    rows = failing[np.argsort(candidate.middle[failing], kind="stable")]
    rate = (n - len(failing)) / n if n else 0.0
    return Slice(
        candidate.source,
        candidate.low,
        candidate.high,
        n,
        len(failing),
        rate,
        float(low[0]),
        float(high[0]),
        expected,
        p,
        rows,
    )


def stratified_tail(observed: int, size: Ints, wrong: Ints, inside: Ints) -> float:
    """P(X >= observed), X a sum of hypergeometric counts: of `size` samples `wrong` fail, `inside` are drawn."""
    total = np.ones(1)
    for n, k, m in zip(size.tolist(), wrong.tolist(), inside.tolist(), strict=True):
        if k and m:
            total = np.convolve(total, _hypergeometric(n, k, m))
    return float(min(1.0, total[observed:].sum())) if observed > 0 else 1.0


def _hypergeometric(n: int, k: int, m: int) -> Floats:
    """(min(k, m) + 1,) P(X = x) for x of 0 to min(k, m): how many of k marked ones are among m of n."""
    x = np.arange(min(k, m) + 1)
    possible = n - k - m + x >= 0
    x = np.where(possible, x, max(0, m + k - n))

    def log_choose(of: Any, take: Any) -> Any:
        return gammaln(of + 1.0) - gammaln(take + 1.0) - gammaln(of - take + 1.0)

    logs = log_choose(k, x) + log_choose(n - k, m - x) - log_choose(n, m)
    return np.where(possible, np.exp(logs), 0.0)
