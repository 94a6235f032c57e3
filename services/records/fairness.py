"""What an audit finds about attributes: gaps between groups, and how far latent factors move before a label does."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from services.records.estimates import Estimate

Metric = Literal["dp", "eopp", "eodd", "aodd"]
METRICS: tuple[Metric, ...] = ("dp", "eopp", "eodd", "aodd")
"""Demographic parity, equal opportunity, equalised odds and average odds: gaps between groups."""


@dataclass(frozen=True, slots=True)
class TaskGaps:
    """Gaps between the groups of one attribute for one decision.

    Attributes:
        index, task: the class that the decision "it is this class" is about.
        positives: samples of that class.
        gaps: by metric, dp, eopp, eodd and aodd.
    """

    index: int
    task: str
    positives: int
    gaps: dict[str, Estimate]


@dataclass(frozen=True, slots=True)
class FairnessResult:
    """DP, EOpp, EOdd and AOdd of one model by one attribute (Hardt et al. 2016; docs/fairness.md).

    A classifier of K classes makes K decisions, one a class, "it is this class or not".

    Attributes:
        grouping: the attribute's column.
        groups, sizes: its groups, and how many samples each has.
        worst: by metric the largest gap of all decisions, and its interval.
        worst_task: by metric the class of that decision.
        tasks: each decision, or those with the largest EOdd; `n_tasks` says how many there are.
        delta: the intervals of one metric hold for all decisions jointly with probability at least 1 - delta.
        notes: plain sentences.
        missing: by metric the groups that lack a rate that it is made of, each with a decision that it lacks it for.
    """

    grouping: str
    groups: tuple[str, ...]
    sizes: tuple[int, ...]
    worst: dict[str, Estimate]
    worst_task: dict[str, str]
    tasks: tuple[TaskGaps, ...]
    n_tasks: int
    delta: float
    notes: tuple[str, ...] = ()
    missing: dict[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LatentDimension:
    """One latent dimension of a projection, over all samples.

    Attributes:
        index, name: column of the latents and what it stands for.
        tol, dev: in [0, 2], and in latent units; the intervals of each hold for all dimensions jointly.
        lean: signed mean deviation in latent units.
        censored: share of the directions in which the label never flipped.
        down, up: how many samples flip in each of the equal parts of the way to the end of the range, nearest first;
            the others never do.
    """

    index: int
    name: str
    tol: Estimate
    dev: Estimate
    lean: float | None
    censored: float | None
    down: tuple[int, ...]
    up: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ProjectedGroup:
    """Tol in [0, 2], Dev in latent units and Cou of the samples of one group."""

    name: str
    n: int
    tol: Estimate
    dev: Estimate
    cou: Estimate
    censored: float | None


@dataclass(frozen=True, slots=True)
class ProjectionResult:
    """Tol, Dev and Cou of one model under one mapper (APPS, Algorithm 1; docs/fairness.md).

    Attributes:
        series: key of the series it explains.
        label: what distinguishes two mappers: ``projection``, ``projection-LABEL``.
        overall: all samples.
        dimensions: each latent dimension.
        groups: by grouping, in its order; each family of intervals holds for all groups of it jointly.
        delta: of each family.
    """

    series: str
    label: str
    overall: ProjectedGroup
    dimensions: tuple[LatentDimension, ...]
    groups: dict[str, tuple[ProjectedGroup, ...]]
    delta: float
