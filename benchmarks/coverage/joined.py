"""Limits of one side, and all metrics of a box together: what benchmarks and tests judge the parts of an audit by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from services.numerics.arguments import Floats
from services.numerics.disparity import NO_GROUP, Disparity
from services.numerics.intervals.disparity import fp_over, nrgc_over, rdi_over
from services.numerics.intervals.means import Intervals, Method, Sample, limits, method_for
from services.numerics.intervals.sequential import lower_sequence, upper_sequence
from services.records import Estimate


@dataclass(frozen=True)
class MetricIntervals:
    """RDI, NRGC, WCR and FP with their intervals, as `Estimate`s; see the functions below for each guarantee."""

    rdi: Estimate
    nrgc: Estimate
    wcr: Estimate
    fp: Estimate


def metric_intervals(metrics: Disparity, box: Intervals, wcr: Estimate) -> MetricIntervals:
    """Join the metrics with their ranges over the simultaneous box; `wcr` comes from `weakest_interval`.

    RDI, NRGC and FP hold jointly with probability at least 1 - delta, as all follow from one box. An estimate always
    lies within its interval. An interval as wide as the metric's range is marked vacuous.
    """
    if not box.defined.any():
        none = Estimate(None, reason=NO_GROUP)
        return MetricIntervals(none, none, none, none)
    low, high = box.low[box.defined], box.high[box.defined]
    return MetricIntervals(
        rdi=rdi_over(metrics.rdi, low, high, box.bound),
        nrgc=nrgc_over(metrics.nrgc, low, high),
        wcr=wcr,
        fp=fp_over(metrics.fp, low, high, box.bound, metrics.penalty),
    )


def one_sided(
    scores: NDArray[Any],
    groups: NDArray[np.integer[Any]],
    n_groups: int,
    *,
    bound: float,
    alpha: float,
    method: Method | None = None,
    binary: bool = False,
    seed: int | None = 0,
    anytime: bool = False,
) -> Intervals:
    """Lower and upper limits, each with confidence 1 - alpha *for one group and one side alone*; see `simultaneous`.

    What an intersection-union test needs (`weakest_interval`).
    """
    sample = Sample.of(scores, groups, n_groups, bound=bound, seed=seed)
    defined = sample.counts > 0
    chosen = method_for(method, binary=binary)
    low, high = (np.where(defined, side * bound, np.nan) for side in limits(sample, alpha, chosen, anytime=anytime))
    return Intervals(low, high, defined, defined & (low <= 0.0) & (high >= bound), chosen, alpha, bound)


def confidence_sequence(draws: ArrayLike, failures: ArrayLike, alpha: float) -> tuple[Floats, Floats]:
    """Two-sided confidence sequence (L_n, U_n): P(L_n <= p <= U_n for all n) >= 1 - alpha."""
    return lower_sequence(draws, failures, alpha / 2), upper_sequence(draws, failures, alpha / 2)
