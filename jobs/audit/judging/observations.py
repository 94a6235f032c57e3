"""What an audit saw of each attack on a model: in whatever series it has, and in the attack's probe.

An attack is held against random noise and a black box in the same ball, against itself with fewer steps and with
another loss, and against a ball that holds any image. That AutoAttack breaks more than PGD is normal and no sign.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jobs.audit.plan import ModelPlan, Table, Taken
from jobs.audit.probes import ProbeSeen, attacked
from services.measures.measure import Measure
from services.numerics.evidence.adequacy import DELTA, AttackObservations, Sign, SignCount, adequacy, adjusted
from services.numerics.evidence.signs import by_class, paired_count, rate_count
from services.records import AttackResult, Evidence, Series, SignResult, ThreatModel
from tracking.bundle.scores import Scores, beside

SAME_RADIUS = 5e-6
"""Radii that agree in five decimals are those of one ball."""
GREY = 0.5
"""A Linf ball of this radius around any image holds the grey image."""
GRADIENTS = {Sign.ZERO_GRADIENT, Sign.UNPREDICTIVE}


COVERED = 0.5
"""Share of an attack's samples that another measure must have in an audit that decides early, to be held against it."""


def observed_attacks(
    item: ModelPlan,
    scores: Scores,
    probes: Mapping[str, ProbeSeen],
    delta: float = DELTA,
    taken: Mapping[str, Taken] | None = None,
    names: Sequence[str] = (),
) -> tuple[AttackObservations, ...]:
    """What was seen of each attack on a model: the counts of all signs, of the series that it has and of its probe.

    Args:
        taken: the part of each table that an early decision rests on, by the table's key.
        names: of the classes, for sentences.
    """
    return tuple(
        _observed(measure, *_beside(table, item, scores, taken or {}), probes.get(table.key), delta, names)
        for table, measure in attacked(item)
    )


def _beside(table: Table, item: ModelPlan, scores: Scores, taken: Mapping[str, Taken]) -> tuple[list[Measure], Scores]:
    """The measures that an attack is held against, and the scores of the samples that all of these have."""
    if not taken:
        return [other.measure for other in item.tables if other.measure is not None], scores
    everything = np.arange(len(scores["id"]))
    common, kept = taken[table.key].rows if table.key in taken else everything, list[Measure]()
    least = COVERED * len(common)
    for other in item.tables:
        rows = np.intersect1d(common, taken[other.key].rows if other.key in taken else everything)
        if other.measure is not None and len(rows) >= least:
            common, kept = rows, [*kept, other.measure]
    return kept, {name: column[common] for name, column in scores.items()}


def attack_results(
    attacks: Sequence[AttackObservations], item: ModelPlan, probes: Mapping[str, ProbeSeen]
) -> tuple[AttackResult, ...]:
    """The record of each attack, in the order of `observed_attacks`."""
    tables = attacked(item)
    return tuple(_result(each, probes.get(table.key)) for each, (table, _) in zip(attacks, tables, strict=True))


def attack_notes(results: Sequence[AttackResult]) -> tuple[str, ...]:
    """A sentence for each attack whose numbers are no evidence, and why."""
    return tuple(
        f"{result.name} was inadequate on this model, so its numbers are no evidence of robustness. "
        + " ".join(sign.sentence for sign in result.signs if sign.shown)
        for result in results
        if result.adequacy == "inadequate"
    )


def _result(attack: AttackObservations, probe: ProbeSeen | None) -> AttackResult:
    shown = {finding.count for finding in attack.findings}
    judged = adequacy([attack])
    return AttackResult(
        attack.attack,
        attack.series,
        judged.adequacy.value,
        judged.reasons,
        tuple(
            SignResult(
                count.sign.value,
                count.against,
                count.favour if count.paired else None,
                count.counted,
                count.probe,
                p_value,
                count in shown,
                count.sentence,
            )
            for count, p_value in adjusted(attack.counts)
            if count in shown or not count.part
        ),
        probe.samples if probe is not None else 0,
    )


def _observed(
    measure: Measure,
    measures: Sequence[Measure],
    scores: Scores,
    probe: ProbeSeen | None,
    delta: float,
    names: Sequence[str],
) -> AttackObservations:
    listed = measure.series()
    whole = tuple(_whole(measure, measures, scores))
    free = {count.sign for count in whole} & {Sign.ZERO_GRADIENT}  # on all samples: once is enough
    probed = probe.counts if probe is not None else ()
    counts = tuple(_named(count, names) for count in (*whole, *(each for each in probed if each.sign not in free)))
    looked = any(count.sign in GRADIENTS and count.counted for count in counts)
    return AttackObservations(
        listed[0].label, tuple(series.key for series in listed), bool(measure.ascents) and looked, counts, delta
    )


def _named(count: SignCount, names: Sequence[str]) -> SignCount:
    return count if count.label is None or not names else replace(count, part=f"class {names[count.label]}")


# --- signs in the series of the audit -------------------------------------------------------------------------------


def _whole(measure: Measure, measures: Sequence[Measure], scores: Scores) -> Iterator[SignCount]:
    """The signs that cost nothing, on all samples."""
    first = measure.series()[0]
    correct = scores[beside(first.key, "correct")]
    if measure.ascents and (zeros := scores.get(beside(first.key, "zero_gradient"))) is not None:
        yield rate_count(Sign.ZERO_GRADIENT, correct, zeros >= 0.5)
        yield from by_class(Sign.ZERO_GRADIENT, scores["label"], correct, zeros >= 0.5)
    if not first.binary:
        yield rate_count(Sign.CENSORED, correct, scores[beside(first.key, "censored")])
        return
    if measure.name == "autoattack" and (codes := scores.get(beside(first.key, "broken_by"))) is not None:
        column = measure.column("broken_by")
        yield rate_count(Sign.SQUARE_GAIN, correct, codes == column.names.index("square") + column.first)
    for series in measure.series():
        yield from _within(series, measure, measures, scores, correct)


def _within(
    series: Series, measure: Measure, measures: Sequence[Measure], scores: Scores, correct: NDArray[Any]
) -> Iterator[SignCount]:
    """The signs of one ball."""
    black_boxes = [other for other in measures if other.series()[0].attack and not other.ascents]
    weaker = {
        Sign.NOISE: [other for other in measures if _is_noise(other.series()[0])],
        Sign.BLACK_BOX: black_boxes if measure.ascents else [],
        Sign.SHORTER: [other for other in measures if _shorter(other, measure)],
        Sign.OTHER_LOSS: [other for other in measures if _other_loss(other, measure)],
    }
    for sign, others in weaker.items():
        if (survival := _least(series, others, scores)) is not None:
            yield paired_count(sign, correct, scores[series.key], survival)
            yield from by_class(sign, scores["label"], correct, scores[series.key], survival)
    if _holds_grey(series.threat):
        yield rate_count(Sign.UNBOUNDED, correct, scores[series.key])


def _is_noise(series: Series) -> bool:
    """Whether it is the share of random draws in a ball that keep the label."""
    return bool(series.noise) and series.evidence is Evidence.OUTCOME and series.bound == 1.0


def _holds_grey(threat: ThreatModel | None) -> bool:
    return threat is not None and threat.norm == "Linf" and threat.epsilon >= GREY


def _least(attacked: Series, measures: Sequence[Measure], scores: Scores) -> NDArray[Any] | None:
    """The least that a sample has under any of the measures that looked in the ball of the series; None without one."""
    listed = (series for measure in measures for series in measure.series())
    return _smallest([scores[series.key] for series in listed if same_ball(series.threat, attacked.threat)])


def same_ball(one: ThreatModel | None, other: ThreatModel | None) -> bool:
    """Whether two series are about perturbations of one norm and radius."""
    if one is None or other is None or one.norm != other.norm:
        return False
    return math.isclose(one.epsilon, other.epsilon, abs_tol=SAME_RADIUS)


def _shorter(measure: Measure, than: Measure) -> bool:
    """Whether a measure is the same attack with fewer steps and no more restarts."""
    if type(measure) is not type(than) or "steps" not in type(measure).model_fields:
        return False
    mine, others = ({**each.model_dump(exclude=set(each.listing) | {"step_size"})} for each in (measure, than))
    fewer = mine.pop("steps") < others.pop("steps")
    return fewer and mine.pop("restarts", 1) <= others.pop("restarts", 1) and mine == others


def _other_loss(measure: Measure, than: Measure) -> bool:
    """Whether a measure descends as the other does, in as many steps from as many starts at most, on another loss."""
    mine, others = (each.model_dump(exclude={*each.listing, "name", "loss"}) for each in (measure, than))
    if not (measure.ascents and than.ascents) or {*mine} != {*others} or set(measure.ascents) & set(than.ascents):
        return False
    most = ("steps", "restarts")
    fewer = all(mine.pop(name, 1) <= others.pop(name, 1) for name in most)
    return fewer and mine == others


def _smallest(columns: Sequence[NDArray[Any]]) -> NDArray[Any] | None:
    """The least survival of each sample; None when nothing was measured."""
    return np.minimum.reduce([column.astype(np.float64) for column in columns]) if columns else None
