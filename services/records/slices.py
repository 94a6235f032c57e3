"""Weak groups that nobody named: found on half of the samples, confirmed on the other half."""

from __future__ import annotations

from dataclasses import dataclass

from services.records.estimates import Estimate


@dataclass(frozen=True, slots=True)
class SliceResult:
    """A group that fails more often than its classes explain.

    Attributes:
        series, title: under which predictions.
        source: a measured attribute, or "embedding".
        low, high: range of the attribute; None at an open end, and for a cluster of the embedding.
        n, wrong: its samples in the confirming half, and how many fail.
        rate: share that keeps its class there; the limits hold for all candidates that were tested together.
        expected: the share that its mix of classes would keep.
        p: adjusted for all candidates that were tested.
        tested, candidates: how many groups were tested, of how many that were looked at.
        ids: of some of its failing samples, those nearest to its middle first; their pictures are in the bundle.
    """

    series: str
    title: str
    source: str
    low: float | None
    high: float | None
    n: int
    wrong: int
    rate: Estimate
    expected: float
    p: float
    tested: int
    candidates: int
    ids: tuple[int, ...] = ()
