"""DP, EOpp, EOdd and AOdd of one sensitive attribute by fairlearn, with group sizes and valid intervals beside them.

fairlearn gives a rate without a denominator the value 0, and so can call a group without samples perfectly fair. Here
such groups are taken out of that rate before it is asked, and what is then left of fewer than two groups is undefined.
The odds of groups that lack one of two rates, which fairlearn cannot take apart, are those of `services.numerics`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.errors import MeasureError, Problem
from services.numerics.attributes.groupfair import METRICS, GroupCounts, Metric, gaps, group_counts
from services.records import Estimate


@dataclass(frozen=True)
class GroupFairness:
    """The metrics of one task and one sensitive attribute.

    Attributes:
        metrics: by name, `dp`, `eopp`, `eodd`, `aodd`; undefined ones carry their reason, and a gap over some of the
            groups names those left out.
        names: the G groups.
        counts: samples, positives and decisions of each group, (G,).
        delta: of each interval.
    """

    metrics: dict[Metric, Estimate]
    names: tuple[str, ...]
    counts: GroupCounts
    delta: float


def group_fairness(
    truth: NDArray[Any],
    decisions: NDArray[Any],
    groups: NDArray[Any],
    *,
    names: tuple[str, ...] | None = None,
    delta: float = 0.05,
) -> GroupFairness:
    """Judge decisions (N,) of 0 and 1 against truth (N,), by groups (N,) of names.

    Args:
        names: the groups there should be, so that one without samples is reported; by default those that occur.

    Raises:
        MeasureError: values other than 0 and 1, lengths that differ, or a group that `names` does not list.
    """
    listed = names or tuple(np.unique(np.asarray(groups).astype(str)).tolist())
    codes = _codes(np.asarray(groups).astype(str), listed)
    counts = group_counts(truth, decisions, codes, len(listed))
    fairness = gaps(counts, delta=delta)
    metrics: dict[Metric, Estimate] = {}
    for metric in METRICS:
        estimate, kept = fairness[metric].estimate(listed), ~fairness[metric].missing[codes]
        if estimate.value is not None and (metric in ("dp", "eopp") or kept.all()):
            value = _by_fairlearn(metric, np.asarray(truth)[kept], np.asarray(decisions)[kept], codes[kept])
            estimate = replace(estimate, value=value)
        metrics[metric] = estimate
    return GroupFairness(metrics, listed, counts, delta)


def _codes(groups: NDArray[Any], names: tuple[str, ...]) -> NDArray[np.int64]:
    result, inverse = np.unique(groups, return_inverse=True)
    if unknown := [name for name in result.tolist() if name not in names]:
        expected = f"one of the groups {', '.join(names)}"
        raise MeasureError(Problem("groups", expected, ", ".join(unknown[:5]), "list every group in names"))
    return np.array([names.index(name) for name in result.tolist()], dtype=np.int64)[inverse]


def _by_fairlearn(metric: Metric, truth: NDArray[Any], decisions: NDArray[Any], codes: NDArray[np.int64]) -> float:
    from fairlearn import metrics as fairlearn

    options: dict[Metric, tuple[Any, dict[str, str]]] = {
        "dp": (fairlearn.demographic_parity_difference, {}),
        "eopp": (fairlearn.equal_opportunity_difference, {}),
        "eodd": (fairlearn.equalized_odds_difference, {"agg": "worst_case"}),
        "aodd": (fairlearn.equalized_odds_difference, {"agg": "mean"}),
    }
    function, more = options[metric]
    return float(function(truth.astype(int), decisions.astype(int), sensitive_features=codes, **more))
