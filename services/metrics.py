"""What a series is judged by: one table for fleet files, gates, tables, MLflow, leaderboards and docs.

A metric over the groups of a grouping is a name, a function of the scores by group with its interval, the same when
some groups have no score, a direction and words. A gate may also name a metric of something else than groups: `needs`
says of what.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from services.numerics.disparity import NO_GROUP, Disparity
from services.numerics.intervals.disparity import (
    aggregate_interval,
    fp_over,
    nrgc_over,
    rdi_over,
    weakest_interval,
    weakest_mean,
    weakest_over,
)
from services.numerics.intervals.means import Intervals
from services.records import Estimate

Needs = Literal["groups", "samples", "claim", "decisions", "pairs"]
TENTH = 0.1


@dataclass(frozen=True)
class Profiled:
    """The scores of a series by group.

    Attributes:
        scores, codes: (N,) scores in [0, bound] and the group of each.
        whole: (M,) the scores that the mean over all is of: those, or where samples come in clusters one a cluster.
        means, defined: (G,) group means, and which groups have samples.
        disparity, box: of the means: the metrics without intervals, and the simultaneous intervals.
        mixed: samples of a group have different means: see `weakest_interval`.
        stratified: the numbers of samples a class were fixed in advance: see `aggregate_interval`.
        how: bound, delta, method, binary and seed of all intervals; `pooled` the same for the mean over all samples.
    """

    scores: NDArray[Any]
    codes: NDArray[np.int64]
    whole: NDArray[Any]
    means: NDArray[np.float64]
    defined: NDArray[np.bool_]
    disparity: Disparity
    box: Intervals
    mixed: bool
    stratified: bool
    how: dict[str, Any]
    pooled: dict[str, Any]

    @property
    def limits(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Lower and upper limits of the groups that have samples."""
        return self.box.low[self.defined], self.box.high[self.defined]

    def tenth(self) -> int:
        """How many groups are the weakest tenth of those that have samples, rounded up."""
        return tenth_of(int(self.defined.sum()))


@dataclass(frozen=True)
class Unknown:
    """A metric to be judged although some groups have no score.

    Attributes:
        known: over the groups that have one.
        low, high: (G,) limits of the group means, [0, bound] where a group has none.
        bound, penalty: of the series, and lambda of FP.
    """

    known: Estimate
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    bound: float
    penalty: float


@dataclass(frozen=True)
class Metric:
    """One line of the table.

    Attributes:
        name: in fleet files and keys.
        phrase: for people, without abbreviations; {group} and {groups} are what is grouped.
        short: for the heads of columns.
        meaning: a sentence for the docs.
        better: whether more or less of it is better.
        needs: what it is a metric of: "groups" of a series, all "samples" of a series, a "claim" and attacks on it,
            "decisions" by an attribute, "pairs" of samples in two audits.
        top: largest threshold that can be meant, of a series with that bound; None where there is no limit.
        estimate: with its interval; None for what is found elsewhere.
        unknown: the same when some groups have no score.
        weakest: of so many groups, how many of the weakest it is the mean of; None for other metrics.
        monotone: it rises with every score, so that an upper bound of the scores gives one of it.
        shown_from: groups from which it is shown: with fewer it says nothing that another metric does not.
    """

    name: str
    phrase: str
    short: str
    meaning: str
    better: Literal["higher", "lower"]
    needs: Needs = "groups"
    top: Callable[[float], float | None] = lambda bound: bound
    estimate: Callable[[Profiled], Estimate] | None = None
    unknown: Callable[[Unknown], Estimate] | None = None
    weakest: Callable[[int], int] | None = None
    monotone: bool = False
    shown_from: int = 1


def tenth_of(groups: int) -> int:
    """How many groups are a tenth of so many, rounded up."""
    return max(1, math.ceil(TENTH * groups - 1e-9))


def _weakest(data: Profiled, count: int) -> Estimate:
    if not data.defined.any():
        return Estimate(None, reason=NO_GROUP)
    value = weakest_mean(data.means[data.defined], count)
    groups = len(data.means)
    return weakest_interval(value, data.scores, data.codes, groups, count=count, mixed=data.mixed, **data.how)


def _worst_of_more(part: Unknown) -> Estimate:
    """The upper limit stays, as the smallest of more means is no larger."""
    estimate = weakest_over(part.known, part.low, part.high, part.bound, 1)
    return estimate if part.known.high is None else replace(estimate, high=part.known.high)


def _over_box(data: Profiled, over: Callable[..., Estimate], value: Estimate, *more: float) -> Estimate:
    return over(value, *data.limits, *more) if data.defined.any() else Estimate(None, reason=NO_GROUP)


def _one(bound: float) -> float:
    return 1.0


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric(
            "aggregate",
            "mean over all samples",
            "score",
            "mean over all samples",
            "higher",
            needs="samples",
            estimate=lambda data: aggregate_interval(data.whole, stratified=data.stratified, **data.pooled),
            unknown=lambda part: part.known,
            monotone=True,
        ),
        Metric(
            "rdi",
            "gap between best and worst {group}",
            "RDI",
            "best minus worst group mean",
            "lower",
            estimate=lambda data: _over_box(data, rdi_over, data.disparity.rdi, data.box.bound),
            unknown=lambda part: rdi_over(part.known, part.low, part.high, part.bound),
        ),
        Metric(
            "nrgc",
            "inequality between {groups}",
            "NRGC",
            "Gini coefficient of the group means, 0 is equal",
            "lower",
            top=_one,
            estimate=lambda data: _over_box(data, nrgc_over, data.disparity.nrgc),
            unknown=lambda part: nrgc_over(part.known, part.low, part.high),
        ),
        Metric(
            "wcr",
            "worst {group}",
            "worst",
            "smallest group mean",
            "higher",
            estimate=lambda data: _weakest(data, 1),
            unknown=_worst_of_more,
            weakest=lambda groups: 1,
            monotone=True,
        ),
        Metric(
            "p10",
            "mean of the weakest tenth of the {groups}",
            "p10",
            "mean of the weakest tenth of the group means (rounded up): the minimum of 1,000 classes is noise",
            "higher",
            estimate=lambda data: _weakest(data, data.tenth()),
            unknown=lambda part: weakest_over(part.known, part.low, part.high, part.bound, tenth_of(part.low.size)),
            weakest=tenth_of,
            shown_from=11,
            monotone=True,
        ),
        Metric(
            "fp",
            "mean less a penalty for disparity",
            "FP",
            "unweighted mean of the group means minus lambda times RDI",
            "higher",
            top=lambda bound: None,
            estimate=lambda data: _over_box(data, fp_over, data.disparity.fp, data.box.bound, data.disparity.penalty),
            unknown=lambda part: fp_over(part.known, part.low, part.high, part.bound, part.penalty),
        ),
        Metric(
            "refuted",
            "share of claims that attacks refute",
            "refuted",
            "share of the correctly classified samples whose claim an attack refuted; needs `great`, `minimal` (L2)",
            "lower",
            needs="claim",
            top=_one,
        ),
        Metric(
            "dp",
            "largest gap between {groups} in how often it answers a class",
            "DP",
            "gap in how often a class is answered",
            "lower",
            "decisions",
            _one,
        ),
        Metric(
            "eopp",
            "largest gap between {groups} in how often it misses a class",
            "EOpp",
            "gap in how often a class is missed",
            "lower",
            "decisions",
            _one,
        ),
        Metric(
            "eodd",
            "largest gap between {groups} in hits or false alarms",
            "EOdd",
            "larger of the gaps in hits and in false alarms",
            "lower",
            "decisions",
            _one,
        ),
        Metric(
            "aodd",
            "largest gap between {groups} in hits and false alarms, averaged",
            "AOdd",
            "mean of the gaps in hits and in false alarms",
            "lower",
            "decisions",
            _one,
        ),
        Metric(
            "classes",
            "the class that lost most",
            "classes",
            "the class that lost most since the other audit; goes with `not_worse_than`",
            "higher",
            needs="pairs",
        ),
    )
}
"""By name, in reading order."""

OF_SERIES: tuple[Metric, ...] = tuple(metric for metric in METRICS.values() if metric.estimate is not None)
"""The metrics that every series has over every grouping."""


CHOSEN_BY = ("aggregate", "wcr")
"""What models are chosen by."""


def joint_estimates(data: Profiled) -> dict[str, Estimate]:
    """The metrics that models are chosen by, at the level that the data carry."""
    return {name: made(data) for name in CHOSEN_BY if (made := METRICS[name].estimate) is not None}


def estimates(data: Profiled) -> dict[str, Estimate]:
    """Every metric of a series over a grouping, by name."""
    return {metric.name: metric.estimate(data) for metric in OF_SERIES if metric.estimate is not None}
