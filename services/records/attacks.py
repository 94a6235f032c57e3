"""What an audit saw of an attack, and whether its numbers are evidence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Ascent = Literal["ce", "margin", "dlr"]
"""A loss that an attack climbs: cross-entropy, the margin, the ratio of logit differences."""


@dataclass(frozen=True, slots=True)
class SignResult:
    """A sign of a failing attack that was looked for (docs/statistics.md).

    Attributes:
        sign: its name: "weaker-than-noise".
        against: samples that show it; of a paired sign, those that the attack left and the weaker one broke.
        favour: of a paired sign, samples that only the attack broke; None where that could not matter.
        counted: samples looked at.
        probe: on the probe's samples; else on all samples of the audit.
        p_value: Holm's, over all signs of this attack.
        shown: whether it counts against the attack.
        sentence: for people.
    """

    sign: str
    against: int
    favour: int | None
    counted: int
    probe: bool
    p_value: float
    shown: bool
    sentence: str


@dataclass(frozen=True, slots=True)
class AttackResult:
    """One attack on one model.

    Attributes:
        name: of the attack: "pgd20".
        series: keys of the series that it gave.
        adequacy: "inadequate" when a sign shows, "unknown" when nothing could be checked.
        reasons: sentences that say why it is not adequate, and the remedy.
        signs: all that were looked for.
        probed: samples of the probe.
    """

    name: str
    series: tuple[str, ...]
    adequacy: Literal["adequate", "inadequate", "unknown"]
    reasons: tuple[str, ...] = ()
    signs: tuple[SignResult, ...] = ()
    probed: int = 0
