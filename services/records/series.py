"""What a number of an audit is: a series of scores, what it is evidence of, and the columns beside it.

A measure makes the key of its series, and nothing takes it apart again: who needs the attack, the norm or the radius
asks the series.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from services.records.specs import ThreatModel

L2_DISTANCE = "L2 distance"
LINF_DISTANCE = "Linf distance"
"""Unit of scores that are distances in [0, 1] pixel units."""


PREDICTED = "predicted"
"""Column of clean accuracy: the class predicted for each sample, -1 where logits were not finite."""
ATTACKED = "attacked"
"""Column of attacks: the class that each sample went to, its label where nothing broke it, -1 where logits were not
finite. The score of a radius says whether it had gone there within that radius."""


class Evidence(StrEnum):
    """What a number can show about robustness.

    OUTCOME      the quantity itself, sampled: both sides, within its interval (clean accuracy, PR, tolerance).
    ATTACK       robustness is *at most* this: a fail; a pass says no more than that this attack was withstood.
    CERTIFICATE  robustness is *at least* this: a pass, never a fail (smoothing, certified ProbAcc).
    CLAIM        nothing by itself, until attacks were held against it (GREAT).
    """

    OUTCOME = "outcome"
    ATTACK = "attack"
    CERTIFICATE = "certificate"
    CLAIM = "claim"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a score table beside its series.

    Attributes:
        name: as the score table has it.
        kind: "mean" for a number whose mean over samples is reported; "count" for one that is counted in whole units
            (draws, queries), whose mean is reported as well; "code" for one of `names`, whose mean means nothing;
            "latent" for a position along one latent dimension, which the projection sums up itself.
        names: meanings of a code, from the value `first` upwards.
        first: smallest value of a code.
    """

    name: str
    kind: Literal["mean", "count", "code", "latent"] = "mean"
    names: tuple[str, ...] = ()
    first: int = 0

    @property
    def averaged(self) -> bool:
        """Whether its mean over samples says something."""
        return self.kind in ("mean", "count")


@dataclass(frozen=True, slots=True)
class Series:
    """One bounded score a sample; a measure gives one or several (a curve over epsilon gives one a radius).

    Attributes:
        key: stable name, lower case, of the characters ``a-z 0-9 . - _ /``: ``great``, ``pgd20/linf-0.03137``.
        title: for people: "GREAT score (sigmoid, T=1)".
        bound: scores lie in [0, bound].
        binary: scores are 0 or 1, so exact binomial intervals apply.
        unit: "", "L2 distance", "share of draws".
        conditional: the score's mean over *correctly classified* samples is meant (PR); else over all samples.
        evidence: what it can show.
        family: name of the measure it comes from: ``pgd``, ``great``, ``pr``.
        label: the measure with the parameters in its key: ``pgd20``, ``pr``; one for a curve over radii.
        threat: the perturbations it is about: a norm, and the radius of the ball looked at; None where there is none.
        noise: the distribution of random perturbations in that ball, "" for none.
        brackets: name of the share that this series bounds from one side: ``probacc/uniform-0.08``; "" for none.
        version: of the measure; numbers of two versions are not compared. 0 where a record does not say.
        definition: digest of the measure's parameters, without those that only list its series; "" where a record does
            not say.
    """

    key: str
    title: str
    bound: float
    binary: bool = False
    unit: str = ""
    conditional: bool = False
    evidence: Evidence = Evidence.OUTCOME
    family: str = ""
    label: str = ""
    threat: ThreatModel | None = None
    noise: str = ""
    brackets: str = ""
    version: int = 0
    definition: str = ""

    @property
    def can_be_fitted(self) -> bool:
        """Whether something may be fitted to it: a claim or a certificate rises with nothing behind it, a mean over the
        correctly classified samples when hard ones are lost."""
        return self.evidence in (Evidence.OUTCOME, Evidence.ATTACK) and not self.conditional

    @property
    def attack(self) -> bool:
        """Whether it is what a search for adversarials left or found, and not a count of random draws."""
        return self.evidence is Evidence.ATTACK and not self.noise
