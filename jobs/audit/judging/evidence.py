"""What a number is evidence of, and so which outcomes a gate on it may have.

An attack shows that robustness is at most what it left, a certificate that it is at least what is certified; a claim
shows nothing by itself. Whoever knows better overrules an objection by its name in the fleet file, and the verdict says
so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from jobs.audit.judging.gates import left_open
from jobs.audit.judging.observations import same_ball
from jobs.fleetfile.gates import GateConfig
from services.errors import counted
from services.metrics import METRICS
from services.numerics.evidence.adequacy import (
    REMEDY,
    Adequacy,
    AttackObservations,
    Judgement,
    adequacy,
    class_undercut,
    undercut,
)
from services.records import Evidence, GateResult, GroupScore, Outcome, RefutedResult, Series, SeriesResult
from tracking.bundle.headline import MOST_REFUTED

INADEQUATE, REFUTED, BOUND = "inadequate-attack", "refuted-claim", "bound-as-value"

MOST_NAMED = 5
MOST_ATTACKS = 2
UNHELD = "no attack of this audit tests the claim; the measure minimal does"
NO_MORE = "more of them would decide nothing"

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
    """A judgement by bounds after what speaks against it; an overruled objection stands in the reason.

    Where the samples leave it open, what would bar the outcome that more of them lead to is said as well.
    """
    barring = [each for each in objections if would_be(judged, gate) in each.bars]
    kept = [each.text for each in barring if each.name not in gate.overrule]
    overruled = [each for each in barring if each.name in gate.overrule]
    if kept and judged.outcome is Outcome.UNDECIDED:
        return _open_for_good(judged, "; ".join(kept))
    if kept:
        return left_open(judged, "; ".join(kept))
    if not overruled or judged.outcome is Outcome.UNDECIDED:
        return judged
    texts = "; ".join(f"{each.name} ({each.text})" for each in overruled)
    names = tuple(dict.fromkeys(each.name for each in overruled))
    return replace(judged, reason=f"{judged.reason}; overruled in the fleet file: {texts}", overruled=names)


def _open_for_good(judged: GateResult, why: str) -> GateResult:
    """An undecided judgement that more samples would not decide."""
    if judged.objected:
        return replace(judged, reason=f"{judged.reason}; {why}", objected=f"{judged.objected}; {why}")
    return replace(judged, reason=f"{judged.reason}, and {NO_MORE}: {why}", objected=why)


def would_be(judged: GateResult, gate: GateConfig) -> Outcome:
    """The outcome; where the samples leave it open, that to which more of them lead if the number stays."""
    value, least = judged.estimate.value, gate.at_least if gate.at_most is None else gate.at_most
    if judged.outcome is not Outcome.UNDECIDED or value is None:
        return judged.outcome
    above = value >= (-gate.margin if least is None else least)
    return PASS if above == (gate.at_most is None) else FAIL


def worded(
    judged: GateResult, gate: GateConfig, series: Series, results: Sequence[SeriesResult] = (), *, held: bool = True
) -> GateResult:
    """A pass says no more than its evidence does: that this attack was withstood, that so much is claimed.

    Args:
        results: of the model; an attack among them that left less than was asked, in the same ball, is named.
        held: a claim was held against attacks.
    """
    if judged.outcome is not PASS or gate.at_least is None:
        return judged
    said = {Evidence.ATTACK: f"withstood {series.key}", Evidence.CLAIM: f"claimed by {series.key}"}.get(series.evidence)
    beside = _stronger(gate, series, results) if series.evidence is Evidence.ATTACK else ""
    if series.evidence is Evidence.CLAIM and not held:
        beside = f"; {UNHELD}"
    return replace(judged, reason=f"{said}: {judged.reason}{beside}") if said else judged


def _stronger(gate: GateConfig, series: Series, results: Sequence[SeriesResult]) -> str:
    """What the strongest other attack left in the ball of a series, where that is less than a gate asks."""
    left = [
        (value, other.series.key)
        for other in results
        if other.series.attack and other.series.binary and other.grouping == gate.grouping
        if other.series.key != series.key and same_ball(other.series.threat, series.threat)
        if (value := other.metric(gate.metric).value) is not None and METRICS[gate.metric].monotone
    ]
    value, key = min(left, default=(1.0, ""))
    return f"; in the same ball {key} leaves {value:.3g}" if key and value < (gate.at_least or 0.0) else ""


def objections(
    gate: GateConfig,
    series: Series,
    attacks: Sequence[AttackObservations],
    refuted: RefutedResult | None,
    low: float | None,
    groups: Sequence[GroupScore] = (),
) -> Iterator[Objection]:
    """What speaks against outcomes of a gate on this series, of whose number `low` is the lower limit.

    Args:
        groups: of the series by class, for a gate on classes.
    """
    monotone = METRICS[gate.metric].monotone or gate.not_worse_than is not None
    if series.evidence is Evidence.ATTACK:
        yield from _of_attack(gate, series, attacks, low, groups, monotone=monotone)
    elif series.evidence is Evidence.CERTIFICATE and gate.not_worse_than is None:
        yield _of_certificate(gate, monotone=monotone)
    elif series.evidence is Evidence.CLAIM:
        yield from _of_claim(series, refuted, attacks)


def _of_certificate(gate: GateConfig, *, monotone: bool) -> Objection:
    """Lower bounds of scores bound what rises with them from below, and a difference of scores not at all."""
    if monotone:
        barred = FAIL if gate.at_least is not None else PASS
        return Objection((barred,), "a certificate shows how robust a model is at least, and not at most")
    text = f"certificates are lower bounds, and the {gate.metric} of lower bounds is none of the robustness itself"
    return Objection((PASS, FAIL), text, BOUND)


def _of_attack(
    gate: GateConfig,
    series: Series,
    attacks: Sequence[AttackObservations],
    low: float | None,
    groups: Sequence[GroupScore],
    *,
    monotone: bool,
) -> Iterator[Objection]:
    """A weaker attack leaves more: that scores are high rests on the attack, that they are low does not."""
    bars = (PASS, FAIL) if not monotone else (FAIL,) if gate.at_most is not None else (PASS,)
    if not series.attack:
        yield Objection(bars, "this is an upper bound: it shows how robust a model is at most")
        return
    mine = [attack for attack in attacks if series.key in attack.series]
    judged = adequacy(mine)
    if judged.adequacy is not Adequacy.ADEQUATE:
        yield Objection(bars, _spoken(judged, mine), INADEQUATE)
        return
    threshold = gate.at_least if gate.at_least is not None else gate.at_most
    if threshold is None or low is None:
        return
    for each in undercuts(gate, mine, groups):
        if low - each.share < threshold <= low:
            yield Objection(bars, f"{each.text} it is {low - each.share:.4g}, which does not", INADEQUATE)


@dataclass(frozen=True)
class Undercut:
    """How much of a gate's lower limit rests on samples that a weaker attack broke, and on which: "without the ..."."""

    share: float
    text: str


def undercuts(
    gate: GateConfig, attacks: Sequence[AttackObservations], groups: Sequence[GroupScore]
) -> Iterator[Undercut]:
    """What a probe broke is broken: the lower limit must clear the threshold without the share that fell to it.

    A gate on the weakest class, or on the weakest tenth, must also clear it without what fell in single classes: by as
    much as the mean of the weakest limits is lower when each is less the share that fell in its class.
    """
    if (worst := undercut(attacks)) is not None:
        yield Undercut(worst.share, f"without the {worst.share:.1%} that fell to a probe of the attack ({worst.words})")
    fallen, weakest = class_undercut(attacks), METRICS[gate.metric].weakest
    if gate.grouping != "class" or weakest is None or not fallen:
        return
    lows = {row.index: row.score.low for row in groups if row.score.low is not None}
    count = weakest(len(lows))
    less = {label: limit - fallen.get(label, 0.0) for label, limit in lows.items()}
    share = (sum(sorted(lows.values())[:count]) - sum(sorted(less.values())[:count])) / count
    if share > 0:
        names = [
            row.name for row in groups if row.index in sorted(less, key=less.__getitem__)[:count] if row.index in fallen
        ]
        yield Undercut(share, f"without what fell to a probe of the attack in {', '.join(names[:MOST_NAMED])}")


def _spoken(judged: Judgement, attacks: Sequence[AttackObservations]) -> str:
    """Why attacks are not adequate: of each that shows signs the first, for a line in a terminal."""
    shown = [(attack.attack, findings) for attack in attacks if (findings := attack.findings)]
    if not shown:
        return "; ".join(judged.reasons)
    named = [f"{name}: {findings[0].count.words}{_more(len(findings) - 1)}" for name, findings in shown]
    return "; ".join([*named, REMEDY])


def _more(signs: int) -> str:
    return f" (and {counted(signs, 'more sign')})" if signs else ""


def _of_claim(
    series: Series, refuted: RefutedResult | None, attacks: Sequence[AttackObservations]
) -> Iterator[Objection]:
    low = None if refuted is None else refuted.overall.low
    if refuted is not None and low is not None and low > MOST_REFUTED:
        share = f"{refuted.refuted} of {refuted.counted} claims, at least {low:.1%}"
        yield Objection((PASS,), f"attacks refuted {series.key} ({share})", REFUTED)
    following = [attack for attack in attacks if attack.gradients] or attacks  # no random search moves far enough
    if refuted is not None and attacks and all(attack.findings for attack in following):
        text = f"no attack that could have refuted {series.key} was adequate: {_spoken(adequacy(attacks), attacks)}"
        yield Objection((PASS,), text, INADEQUATE)


def of_refuted_share(attacks: Sequence[AttackObservations]) -> Iterator[Objection]:
    """The refuted share is a lower bound: a weaker attack refutes less. Only adequate attacks can clear a claim."""
    judged = adequacy(attacks, gradients=True)
    if judged.adequacy is not Adequacy.ADEQUATE:
        yield Objection((PASS,), _spoken(judged, attacks), INADEQUATE)
