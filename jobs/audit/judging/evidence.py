"""What a number is evidence of, and so which outcomes a gate on it may have.

An attack shows that robustness is at most what it left, a certificate that it is at least what is certified; a claim
shows nothing by itself. Whoever knows better overrules an objection by its name in the fleet file, and the verdict says
so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from jobs.fleetfile.gates import GateConfig
from services.metrics import METRICS
from services.numerics.evidence.adequacy import Adequacy, AttackObservations, adequacy, undercut
from services.records import Evidence, GateResult, Outcome, RefutedResult, Series
from tracking.bundle.headline import MOST_REFUTED

INADEQUATE, REFUTED, BOUND = "inadequate-attack", "refuted-claim", "bound-as-value"

PASS, FAIL = Outcome.PASS, Outcome.FAIL


@dataclass(frozen=True)
class Objection:
    """Why a number cannot have some outcomes.

    Attributes:
        bars: these, which become undecided.
        text: for people.
        name: by which the fleet file may overrule it; "" for none that it may.
    """

    bars: tuple[Outcome, ...]
    text: str
    name: str = ""


def weighed(judged: GateResult, gate: GateConfig, objections: Iterable[Objection]) -> GateResult:
    """A judgement by bounds after what speaks against it; an overruled objection stands in the reason."""
    barring = [each for each in objections if judged.outcome in each.bars]
    kept = [each.text for each in barring if each.name not in gate.overrule]
    overruled = [each for each in barring if each.name in gate.overrule]
    if kept:
        return replace(judged, outcome=Outcome.UNDECIDED, reason=f"{judged.reason}, but {'; '.join(kept)}")
    if not overruled:
        return judged
    texts = "; ".join(f"{each.name} ({each.text})" for each in overruled)
    names = tuple(dict.fromkeys(each.name for each in overruled))
    return replace(judged, reason=f"{judged.reason}; overruled in the fleet file: {texts}", overruled=names)


def worded(judged: GateResult, gate: GateConfig, series: Series) -> GateResult:
    """A pass says no more than its evidence does: that this attack was withstood, that so much is claimed."""
    if judged.outcome is not PASS or gate.at_least is None:
        return judged
    said = {Evidence.ATTACK: f"withstood {series.key}", Evidence.CLAIM: f"claimed by {series.key}"}.get(series.evidence)
    return replace(judged, reason=f"{said}: {judged.reason}") if said else judged


def objections(
    gate: GateConfig,
    series: Series,
    attacks: Sequence[AttackObservations],
    refuted: RefutedResult | None,
    low: float | None,
) -> Iterator[Objection]:
    """What speaks against outcomes of a gate on this series, of whose number `low` is the lower limit."""
    monotone = METRICS[gate.metric].monotone or gate.not_worse_than is not None
    if series.evidence is Evidence.ATTACK:
        yield from _of_attack(gate, series, attacks, low, monotone=monotone)
    elif series.evidence is Evidence.CERTIFICATE and gate.not_worse_than is None:
        yield _of_certificate(gate, monotone=monotone)
    elif series.evidence is Evidence.CLAIM and gate.not_worse_than is None:
        yield from _of_claim(series, refuted)


def _of_certificate(gate: GateConfig, *, monotone: bool) -> Objection:
    """Lower bounds of scores bound what rises with them from below, and a difference of scores not at all."""
    if monotone:
        barred = FAIL if gate.at_least is not None else PASS
        return Objection((barred,), "a certificate shows how robust a model is at least, and not at most")
    text = f"certificates are lower bounds, and the {gate.metric} of lower bounds is none of the robustness itself"
    return Objection((PASS, FAIL), text, BOUND)


def _of_attack(
    gate: GateConfig, series: Series, attacks: Sequence[AttackObservations], low: float | None, *, monotone: bool
) -> Iterator[Objection]:
    """A weaker attack leaves more: that scores are high rests on the attack, that they are low does not."""
    bars = (PASS, FAIL) if not monotone else (FAIL,) if gate.at_most is not None else (PASS,)
    if not series.attack:
        yield Objection(bars, "this is an upper bound: it shows how robust a model is at most")
        return
    mine = [attack for attack in attacks if series.key in attack.series]
    judged = adequacy(mine)
    if judged.adequacy is not Adequacy.ADEQUATE:
        yield Objection(bars, "; ".join(judged.reasons), INADEQUATE)
        return
    yield from _of_undercut(gate, low, mine, bars)


def _of_undercut(
    gate: GateConfig, low: float | None, attacks: Sequence[AttackObservations], bars: tuple[Outcome, ...]
) -> Iterator[Objection]:
    """What a probe broke is broken: the lower limit must clear the threshold without the share that fell to it."""
    threshold = gate.at_least if gate.at_least is not None else gate.at_most
    worst = undercut(attacks)
    if threshold is None or low is None or worst is None:
        return
    if low - worst.share < threshold <= low:
        share = f"less the {worst.share:.1%} that fell to a probe of the attack"
        yield Objection(bars, f"{share}, {low:.4g} does not clear it: {worst.sentence}", INADEQUATE)


def _of_claim(series: Series, refuted: RefutedResult | None) -> Iterator[Objection]:
    low = None if refuted is None else refuted.overall.low
    if refuted is not None and low is not None and low > MOST_REFUTED:
        share = f"{refuted.refuted} of {refuted.counted} claims, at least {low:.1%}"
        yield Objection((PASS,), f"attacks refuted {series.key} ({share})", REFUTED)


def of_refuted_share(attacks: Sequence[AttackObservations]) -> Iterator[Objection]:
    """The refuted share is a lower bound: a weaker attack refutes less. Only adequate attacks can clear a claim."""
    judged = adequacy(attacks, gradients=True)
    if judged.adequacy is not Adequacy.ADEQUATE:
        yield Objection((PASS,), "; ".join(judged.reasons), INADEQUATE)
