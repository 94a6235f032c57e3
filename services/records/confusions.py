"""Which classes a model takes for which: the largest shares, with their intervals."""

from __future__ import annotations

from dataclasses import dataclass

from services.records.estimates import Estimate

NO_CLASS = -1
"""The prediction of logits that are not finite."""


@dataclass(frozen=True, slots=True)
class ConfusedPair:
    """How much of a class goes to another.

    Attributes:
        label, predicted: indices of the classes; `NO_CLASS` for logits that are not finite.
        count: samples of the class that went there.
        n: samples of the class.
        share: count / n. The intervals of all pairs of classes hold together.
        clean: the share that goes there without an attack; None for the clean predictions themselves, and where they
            are not known.
    """

    label: int
    predicted: int
    count: int
    n: int
    share: Estimate
    clean: float | None = None


@dataclass(frozen=True, slots=True)
class ConfusionResult:
    """The confusion matrix of one series, in short: the bundle's `confusions/` has all of it.

    Attributes:
        series: key of the series: clean accuracy or an attack.
        title: for people.
        attack: whether it is about adversarials, and not about clean predictions.
        under: for sentences: "under PGD-20 (Linf 8/255)", "without an attack".
        pairs: of the weakest classes, the classes that most of their samples go to; the weakest class first.
        wrong: samples that went to another class.
        order: of all classes, such that classes that are taken for each other are neighbours; () where they are many.
        delta: the intervals of all pairs hold together with probability at least 1 - delta.
    """

    series: str
    title: str
    attack: bool
    under: str
    pairs: tuple[ConfusedPair, ...]
    wrong: int
    order: tuple[int, ...] = ()
    delta: float = 0.05
