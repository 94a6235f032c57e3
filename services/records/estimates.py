"""Numbers and how sure they are, alone and by group: the parts that results are made of.

Undefined is `None` with a reason beside it; NaN and infinity never enter a record.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number and how sure it is.

    Attributes:
        value: the estimate; None when undefined.
        low, high: confidence limits at the audit's level; None when there is no interval on that side.
        reason: why the value is undefined, or why the interval says nothing; "" otherwise.
        vacuous: the interval is as wide as the range, so it excludes nothing.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    reason: str = ""
    vacuous: bool = False


@dataclass(frozen=True, slots=True)
class GroupScore:
    """One row of a per-group table.

    Attributes:
        index: position in the grouping's order; for classes the label.
        name: as the source spells it.
        n: samples that count (for a conditional series: the correctly classified ones).
        n_all: samples in the group.
        score: the group's mean score and its simultaneous interval.
        extras: other per-group numbers (accuracy, saturated share, censored share), each maybe None.
    """

    index: int
    name: str
    n: int
    n_all: int
    score: Estimate
    extras: dict[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FalsifiedResult:
    """The share of one model's GREAT scores that an attack refuted, over one grouping (docs/measures.md).

    A score g(x) claims that no adversarial lies nearer than g(x) in L2; an adversarial found nearer refutes it. The
    share is over correctly classified samples, and a lower bound: a better attack may refute more.

    Attributes:
        series: key of the GREAT series.
        grouping: "class" or the name of a column.
        overall: the share, with a Clopper-Pearson interval at level 1 - delta.
        groups: the share in each group, with intervals that hold together at level 1 - delta; `n` is the number of
            correctly classified samples; extras: falsified and untested samples, the median claim and distance.
        falsified, counted: refuted and correctly classified samples.
        untested: samples for which nothing was found within a search limit that the claim exceeds.
        delta: of the intervals.
        notes: plain sentences.
    """

    series: str
    grouping: str
    overall: Estimate
    groups: tuple[GroupScore, ...]
    falsified: int
    counted: int
    untested: int
    delta: float
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GapResult:
    """Generalisation error of one series: its aggregate on a training sample minus that on the test samples.

    Attributes:
        lens: metric prefix of the series in MLflow: ``great``, ``pgd20/linf-0.03137``.
        gap: the difference; its interval holds with probability at least 1 - delta.
        train, test: the aggregates, each with an interval at level delta / 2.
        train_n, test_n: samples that count on each side.
        delta: of the gap.
    """

    lens: str
    gap: Estimate
    train: Estimate
    test: Estimate
    train_n: int
    test_n: int
    delta: float
