"""Which series heads tables, pictures and lists: that of the gates which decided, else the strongest evidence.

The order of evidence is certificates and outcomes under perturbation, adequate attacks, clean accuracy, claims. A claim
that attacks refuted and an attack that was inadequate come last: no reader should begin with them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from services.records import AttackResult, Estimate, Evidence, GateResult, ModelResult, Outcome, RefutedResult
from tracking.names import series_key

OF_GRADIENTS = ("zero-gradient", "unpredictive-gradient")
"""Signs that are looked for in attacks that follow gradients."""
MOST_REFUTED = 0.05
"""A claim of which a larger share is refuted, by the lower limit of that share, heads nothing and clears no gate."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A series of one model as far as its place depends on it.

    Attributes:
        lens: its name, with the grouping.
        grouping, evidence, family, binary: of the series and its result.
        sound: not a refuted claim, nor one that no adequate attack tested, and not a number of an inadequate attack.
    """

    lens: str
    grouping: str
    evidence: Evidence
    family: str
    binary: bool
    sound: bool


def reading_order(entries: Iterable[Entry], gates: Iterable[Sequence[GateResult]]) -> list[str]:
    """Lenses of all models' entries, the headline first.

    Args:
        gates: of each model; the series of those that decided comes first unless it is unsound.
    """
    first: dict[str, Entry] = {}
    unsound = set()
    for each in entries:
        first.setdefault(each.lens, each)
        if not each.sound:
            unsound.add(each.lens)
    decided = [lens for lens in _deciding(gates) if lens in first and lens not in unsound][:1]
    return sorted(first, key=lambda lens: (lens not in decided, *_rank(first[lens], sound=lens not in unsound)))


def inadequate(model: ModelResult, key: str) -> bool:
    """Whether the series is of an attack that was inadequate on the model, so that its numbers are no evidence."""
    return any(key in attack.series and attack.adequacy == "inadequate" for attack in model.attacks)


def untested(attacks: Sequence[AttackResult]) -> bool:
    """Whether every attack on a model that could have refuted a claim was inadequate: that none did says nothing.

    No random search gets as near as what follows gradients; it counts where there is nothing else.
    """
    following = [attack for attack in attacks if any(sign.sign in OF_GRADIENTS for sign in attack.signs)]
    return bool(attacks) and all(attack.adequacy == "inadequate" for attack in following or attacks)


def tested_claims(refuted: Sequence[RefutedResult], attacks: Sequence[AttackResult]) -> list[RefutedResult]:
    """The claims that attacks put to a test: that inadequate ones refuted nothing of a claim is no share of 0."""
    return [claim for claim in refuted if claim.refuted or not untested(attacks)]


def is_refuted(share: Estimate | None) -> bool:
    """Whether attacks refuted more of a claim than it may have wrong: by the lower limit, else by the share itself."""
    if share is None or share.value is None:
        return False
    return (share.value if share.low is None else share.low) > MOST_REFUTED


def deciding_gates(gates: Sequence[GateResult]) -> list[GateResult]:
    """The gates of a model that have its worst outcome."""
    for outcome in (Outcome.ERROR, Outcome.FAIL, Outcome.UNDECIDED):
        if worst := [gate for gate in gates if gate.outcome is outcome]:
            return worst
    return list(gates)


def _deciding(gates: Iterable[Sequence[GateResult]]) -> list[str]:
    """Lenses of the gates that decided, those of failed models first, then the most frequent first."""
    counts: dict[Outcome, Counter[str]] = {}
    for of_model in gates:
        for gate in deciding_gates(of_model):
            if gate.threshold is not None:
                lens = series_key(gate.threshold.measure, gate.threshold.grouping)
                counts.setdefault(gate.outcome, Counter())[lens] += 1
    order = (Outcome.FAIL, Outcome.UNDECIDED, Outcome.PASS, Outcome.ERROR)
    return [lens for outcome in order if outcome in counts for lens, _ in counts[outcome].most_common()]


def _rank(of: Entry, *, sound: bool) -> tuple[bool, bool, int, bool]:
    strength = _CLEAN if of.family == "clean" else _STRENGTH[of.evidence]
    return of.grouping != "class", not sound, strength, not of.binary


_STRENGTH = {Evidence.CERTIFICATE: 0, Evidence.OUTCOME: 1, Evidence.ATTACK: 2, Evidence.CLAIM: 4}
_CLEAN = 3
