"""Whether the attacks behind a number were adequate: from counts to a judgement.

An attack that cannot move says nothing of robustness: survival of it, and the share of claims that it leaves standing,
are upper bounds whose distance from the truth is unknown. The signs are those of Athalye, Carlini & Wagner 2018 (arXiv
1802.00420, section 3.1), of Croce & Hein 2020 (arXiv 2003.01690) for Square within AutoAttack, and of Carlini et al.
2019 (arXiv 1902.06705, section 5).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from services.errors import MeasureError, Problem
from services.numerics.paired import holm
from services.numerics.tails import at_least, gained_beyond, gained_by_chance

REMEDY = "measure square, which needs no gradients, or apgd or autoattack, or declare what the model's outputs are"
DELTA = 0.05
PAIRED_LEVEL = 0.8
"""Share of delta for the paired signs: the others, where they are real, show on nearly every sample."""
LEVELS = {(False, False): 0.1, (True, False): PAIRED_LEVEL, (False, True): 0.05, (True, True): 0.05}
"""Shares of delta by whether signs are paired and whether they are of a part; they add up to 1."""
MATERIAL = 0.05
"""A paired sign needs so large a net share of the samples as well: over thousands of samples every pair of attacks
differs for certain, and a difference of a few points is what stronger attacks are for."""
MATERIAL_PART = 0.1
"""The same of a class, in which attacks differ more than over all."""
PART_RATE = 0.25
"""Of unpredictive gradients in a class or a part of the input, which may be harder than the whole."""
MOST_PARTS = 5
"""Of one sign so many classes and parts are named, the surest; where the sign shows over all, none."""
FEWEST = 8
"""A class of which fewer samples were looked at is charged for a fallen one as though there were so many."""


class Adequacy(StrEnum):
    """What observations say of attacks; `UNKNOWN` where nothing could be checked."""

    ADEQUATE = "adequate"
    INADEQUATE = "inadequate"
    UNKNOWN = "unknown"


class Sign(StrEnum):
    """What an attack that works does not show."""

    ZERO_GRADIENT = "zero-gradient"
    NON_FINITE = "non-finite-gradient"
    SATURATED = "saturated-output"
    UNPREDICTIVE = "unpredictive-gradient"
    HIDDEN = "hidden-pixels"
    UNBOUNDED = "survives-unbounded"
    SQUARE_GAIN = "square-gain"
    CENSORED = "all-censored"
    NOISE = "weaker-than-noise"
    SHORTER = "weaker-than-shorter"
    OTHER_LOSS = "weaker-than-other-loss"
    BLACK_BOX = "weaker-than-black-box"
    TRANSFER = "weaker-than-transfer"


RATES = {
    Sign.ZERO_GRADIENT: 0.01,
    Sign.NON_FINITE: 0.01,
    Sign.SATURATED: 0.01,
    Sign.UNPREDICTIVE: 0.2,
    Sign.HIDDEN: 0.1,
    Sign.UNBOUNDED: 0.01,
    Sign.SQUARE_GAIN: 0.002,
    Sign.CENSORED: 0.9,
}
"""Shares of the samples that a sound attack may show; 0.2 % is what AutoAttack's authors allow Square to gain. The
other signs are paired."""

_WORDS = {
    Sign.ZERO_GRADIENT: "at least half of the input gradients were exactly zero, so a gradient attack could not move",
    Sign.NON_FINITE: "the input gradient was NaN or infinite",
    Sign.SATURATED: "the gradient is so small that the whole ball changes no output in float32",
    Sign.UNPREDICTIVE: "a step along the gradient lowered the margin no more than one in a random direction",
    Sign.HIDDEN: "to move only pixels in which the gradient is exactly zero changed the answer",
    Sign.UNBOUNDED: "the attack failed in a ball that holds the grey image",
    Sign.SQUARE_GAIN: "only Square, which reads scores alone, broke what AutoAttack's gradient attacks left",
    Sign.CENSORED: "no adversarial was found within the search limit",
    Sign.NOISE: "the attack failed where random noise in the same ball succeeded",
    Sign.SHORTER: "the attack failed where the same attack with fewer steps succeeded",
    Sign.OTHER_LOSS: "the attack failed where the same steps under another loss succeeded",
    Sign.BLACK_BOX: "the attack failed where a black-box attack in the same ball succeeded",
    Sign.TRANSFER: "the attack failed where adversarials made on other models of the fleet succeeded",
}


@dataclass(frozen=True, slots=True)
class SignCount:
    """How often a sign was seen.

    Attributes:
        sign: which.
        against: samples that show it; of a paired sign, those that the attack left and the weaker one broke.
        counted: samples looked at.
        favour: of a paired sign, samples that the attack broke and the weaker one left; None where not all of
            these were counted, because it is no sign whatever the rest are.
        probe: on the probe's samples, and not on all of the audit.
        part: of the input ("channel 1") or of the samples ("class 3"); "" for all of both.
        label: of the class, where `part` is one.
    """

    sign: Sign
    against: int
    counted: int
    favour: int | None = 0
    probe: bool = False
    part: str = ""
    label: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.against <= self.counted - (self.favour or 0) or (self.favour or 0) < 0:
            counts = f"{self.against} against and {self.favour} for the attack of {self.counted} samples"
            raise MeasureError(Problem(f"{self.sign}", "counts that add up", counts))

    @property
    def paired(self) -> bool:
        return self.sign not in RATES

    @property
    def p_value(self) -> float:
        """Of the hypothesis that the attack is sound: exact McNemar, one-sided, for a paired sign; else binomial.

        Of two attacks that cost the same either may be the better by `tolerated`, and that is the hypothesis then.
        """
        if not self.paired:
            return float(at_least(self.against, self.counted, self.rate)) if self.against else 1.0
        if self.favour is None:
            return 1.0
        if self.alike:
            return gained_beyond(self.against, self.favour, self.counted, self.tolerated)
        return gained_by_chance(self.against, self.favour)

    @property
    def alike(self) -> bool:
        """Whether the other attack costs as much: another loss in as many steps, as a measure of the audit."""
        return self.sign is Sign.OTHER_LOSS and not self.probe

    @property
    def tolerated(self) -> float:
        """The net share of samples that a paired sign has to exceed."""
        return MATERIAL_PART if self.part else MATERIAL

    @property
    def rate(self) -> float:
        """The share of samples that a sound attack may show, of a sign that is not paired."""
        return PART_RATE if self.part and self.sign is Sign.UNPREDICTIVE else RATES[self.sign]

    @property
    def material(self) -> bool:
        """Whether it matters for the number, and not only for the test."""
        return not self.paired or self.against - (self.favour or 0) > self.tolerated * self.counted

    @property
    def share(self) -> float:
        """Samples that show it, of those looked at."""
        return self.against / self.counted

    @property
    def sentence(self) -> str:
        """For people."""
        return f"{self.words[0].upper()}{self.words[1:]}."

    @property
    def words(self) -> str:
        """As part of a sentence."""
        where = " of a probe" if self.probe else ""
        other = f", and the other way round for {self.favour}" if self.paired and self.favour else ""
        of_part = f"in {self.part}, for" if self.part else "for"
        counts = f"{of_part} {self.against} of {self.counted} correctly classified samples{where} ({self.share:.1%})"
        return f"{counts} {_WORDS[self.sign]}{other}"


@dataclass(frozen=True, slots=True)
class Finding:
    """A sign that chance does not explain.

    Attributes:
        count: what was seen.
        p_value: Holm's, over the signs of its kind that were looked for, and scaled to delta.
    """

    count: SignCount
    p_value: float


@dataclass(frozen=True, slots=True)
class AttackObservations:
    """What an audit saw of one attack on one model.

    Attributes:
        attack: its name.
        series: keys of the series that it gave.
        gradients: it followed gradients, and these were looked at on at least one sample.
        counts: of every sign that was looked for.
        delta: error probability of all signs of the attack together.
    """

    attack: str
    series: tuple[str, ...]
    gradients: bool
    counts: tuple[SignCount, ...] = ()
    delta: float = DELTA

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The signs seen."""
        return signs(self.counts, self.delta)


@dataclass(frozen=True, slots=True)
class Judgement:
    """An adequacy and why it is not better: each sign, and the remedy; none for `ADEQUATE`."""

    adequacy: Adequacy
    reasons: tuple[str, ...] = ()


def undercut(seen: Sequence[AttackObservations]) -> SignCount | None:
    """The paired sign of any attack under which the largest share fell of what the attack left; None where none fell.

    Each of these samples is broken, whether or not the sign is one: survival is too high by about that share.
    """
    return max((count for count in _fallen(seen) if not count.part), key=lambda count: count.share, default=None)


def class_undercut(seen: Sequence[AttackObservations]) -> dict[int, float]:
    """By label of the classes in which a weaker attack broke what the attack left: the largest share that fell.

    Of a class of which fewer than `FEWEST` samples were looked at, the share of `FEWEST`.
    """
    shares: dict[int, float] = {}
    for count in _fallen(seen):
        if count.label is not None:
            share = count.against / max(count.counted, FEWEST)
            shares[count.label] = max(share, shares.get(count.label, 0.0))
    return shares


def _fallen(seen: Sequence[AttackObservations]) -> Iterator[SignCount]:
    return (count for attack in seen for count in attack.counts if count.paired and count.against)


def signs(counts: Sequence[SignCount], delta: float = DELTA) -> tuple[Finding, ...]:
    """The signs that are seen: `PAIRED_LEVEL` of delta is for the paired ones, the rest for the others (`LEVELS`).

    Guarantee: an attack that is sound in every respect shows any sign with probability at most `delta`: of a paired
    sign, where it is as likely that only the attack breaks a sample as that only the weaker one does (by `MATERIAL`
    less likely, where the other is no weaker: `gained_beyond`); of the others, where samples show it independently at
    their rate. That is so however many classes and parts are looked at.
    """
    shown = [Finding(count, p_value) for count, p_value in adjusted(counts) if p_value <= delta and count.material]
    whole = [finding for finding in shown if not finding.count.part]
    everywhere, named = {finding.count.sign for finding in whole}, dict[Sign, list[Finding]]()
    for finding in sorted(shown, key=lambda each: each.p_value):
        of_sign = named.setdefault(finding.count.sign, [])
        if finding.count.part and finding.count.sign not in everywhere and len(of_sign) < MOST_PARTS:
            of_sign.append(finding)
    return (*whole, *(finding for of_sign in named.values() for finding in of_sign))


def adjusted(counts: Sequence[SignCount]) -> Iterator[tuple[SignCount, float]]:
    """Every sign that was looked for with its p-value after Holm's step-down in its kind (Holm 1979), at most 1."""
    for kind, level in LEVELS.items():
        mine = [count for count in counts if count.counted and (count.paired, bool(count.part)) == kind]
        for count, p_value in zip(mine, holm(tuple(count.p_value / level for count in mine)), strict=True):
            yield count, 1.0 if p_value is None else p_value


def most_favour(against: int, counted: int, delta: float = DELTA) -> int:
    """The most samples that the attack alone may break where the weaker one alone breaks `against` of `counted`.

    With more it is no sign, however many are looked for beside it; -1 where it is none in any case.
    """
    most = -1
    for favour in range(counted - against + 1):
        count = SignCount(Sign.NOISE, against, counted, favour)
        if not count.material or count.p_value > PAIRED_LEVEL * delta:
            break
        most = favour
    return most


def adequacy(seen: Sequence[AttackObservations], *, gradients: bool = False) -> Judgement:
    """Judge the attacks behind one number together.

    Inadequate when any of them shows a sign. Unknown when none does but nothing was looked at: then no check could have
    seen one. Adequate otherwise.

    Args:
        gradients: the number rests on all of them, so the gradients of at least one must have been looked at.
    """
    reasons = tuple(_reasons(seen))
    if reasons:
        return Judgement(Adequacy.INADEQUATE, (*reasons, REMEDY))
    if not seen:
        return Judgement(Adequacy.UNKNOWN, ("no attack was measured",))
    if gradients and not any(attack.gradients for attack in seen):
        unseen = f"no check of {', '.join(attack.attack for attack in seen)} looked at gradients"
        return Judgement(Adequacy.UNKNOWN, (unseen, "measure pgd or minimal, whose gradients are checked"))
    if not any(count.counted for attack in seen for count in attack.counts):
        names = ", ".join(attack.attack for attack in seen)
        return Judgement(Adequacy.UNKNOWN, (f"nothing was checked of {names}",))
    return Judgement(Adequacy.ADEQUATE)


def _reasons(seen: Sequence[AttackObservations]) -> Iterator[str]:
    for attack in seen:
        for finding in attack.findings:
            yield f"{attack.attack}: {finding.count.words}"
