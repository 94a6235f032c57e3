"""Whether the attacks behind a number were adequate: what was observed of them, and what follows.

An attack that cannot move says nothing of robustness: survival of it, and the share of claims that it leaves standing,
are upper bounds whose distance from the truth is unknown (Athalye, Carlini & Wagner 2018, arXiv 1802.00420).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from services.numerics.masking import Finding

REMEDY = "measure square, which needs no gradients, or apgd or autoattack, or declare what the model's outputs are"


class Adequacy(StrEnum):
    """What observations say of attacks; `UNKNOWN` where nothing could be checked."""

    ADEQUATE = "adequate"
    INADEQUATE = "inadequate"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class AttackObservations:
    """What an audit saw of one attack on one model.

    Attributes:
        attack: its name.
        series: keys of the series that it gave.
        gradients: it followed gradients, and their zeros were counted on at least one sample.
        findings: signs that the attack failed where a sound one would not.
    """

    attack: str
    series: tuple[str, ...]
    gradients: bool
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Judgement:
    """An adequacy and why it is not better: sentences with the remedy; none for `ADEQUATE`."""

    adequacy: Adequacy
    reasons: tuple[str, ...] = ()


def adequacy(observed: Sequence[AttackObservations]) -> Judgement:
    """Judge the attacks behind one number together.

    Inadequate when any of them shows a sign. Unknown when none does but no gradients were looked at: then no check
    could have seen one. Adequate otherwise.
    """
    signs = tuple(f"{attack.attack}: {finding.sentence}" for attack in observed for finding in attack.findings)
    if signs:
        return Judgement(Adequacy.INADEQUATE, (*signs, REMEDY))
    if not observed:
        return Judgement(Adequacy.UNKNOWN, ("no attack was measured",))
    if not any(attack.gradients for attack in observed):
        unchecked = f"no check of {', '.join(attack.attack for attack in observed)} looked at gradients"
        return Judgement(Adequacy.UNKNOWN, (unchecked, "measure pgd or minimal, whose zero gradients are counted"))
    return Judgement(Adequacy.ADEQUATE)
