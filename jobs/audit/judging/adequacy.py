"""Signs of masked gradients in whatever series an audit of a model has.

An attack is held against random noise and a black box in the same ball, against itself with fewer steps, and against a
ball that holds any image. That AutoAttack breaks more than PGD is normal and no sign.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jobs.audit.plan import ModelPlan
from services.measures.base import Measure
from services.numerics.adequacy import AttackObservations
from services.numerics.masking import Finding, Observations, find_masking
from services.records import Evidence, Series, ThreatModel
from tracking.bundle.scores import Scores, beside

SAME_RADIUS = 5e-6
"""Radii that agree in five decimals are those of one ball."""
GREY = 0.5
"""A Linf ball of this radius around any image holds the grey image."""

SeriesFinding = tuple[str, Finding]
"""Series key of the attack under scrutiny, and what was seen."""


def masking_findings(item: ModelPlan, scores: Scores) -> tuple[SeriesFinding, ...]:
    """All signs for one model; empty when nothing was attacked or nothing shows."""
    measures = [table.measure for table in item.tables if table.measure is not None]
    return tuple((key, finding) for key, each in _observations(measures, scores) for finding in find_masking(each))


def observed_attacks(item: ModelPlan, scores: Scores, signs: Sequence[SeriesFinding]) -> tuple[AttackObservations, ...]:
    """What was seen of each attack on a model: whether its gradients were looked at, and the signs in its series."""
    measures = [table.measure for table in item.tables if table.measure is not None]
    return tuple(_observed(measure, scores, signs) for measure in measures if measure.series()[0].attack)


def _observed(measure: Measure, scores: Scores, signs: Sequence[SeriesFinding]) -> AttackObservations:
    keys = tuple(series.key for series in measure.series())
    zeros, correct = scores.get(beside(keys[0], "zero_gradient")), scores.get(beside(keys[0], "correct"))
    looked = measure.gradients and zeros is not None and correct is not None and bool((correct > 0).any())
    return AttackObservations(measure.name, keys, looked, tuple(finding for key, finding in signs if key in keys))


def masking_notes(findings: Sequence[SeriesFinding]) -> tuple[str, ...]:
    """A sentence a finding."""
    return tuple(f"{key}: {finding.sentence}" for key, finding in findings)


def masking_facts(findings: Sequence[SeriesFinding]) -> dict[str, Any]:
    """The findings as a fact of the model; empty when there are none."""
    rows = [{"series": key, "sign": f.sign.value, "samples": f.samples, "share": f.share} for key, f in findings]
    return {"masking": rows} if rows else {}


def _observations(measures: Sequence[Measure], scores: Scores) -> Iterator[tuple[str, Observations]]:
    for measure in measures:
        first = measure.series()[0]
        if not (first.attack and measure.gradients):
            continue
        if first.binary:
            yield from _of_attack(measure, measures, scores)
        else:
            correct = scores[beside(first.key, "correct")]
            zeros = scores.get(beside(first.key, "zero_gradient"))
            yield first.key, Observations(correct, np.zeros(len(correct)), zeros)


def _of_attack(measure: Measure, measures: Sequence[Measure], scores: Scores) -> Iterator[tuple[str, Observations]]:
    """One row of observations a radius; the share of zero gradients, which all radii have in common, in the first."""
    listed = measure.series()
    first = listed[0].key
    for series in listed:
        yield (
            series.key,
            Observations(
                correct=scores[beside(first, "correct")],
                attack=scores[series.key],
                zero_gradient=scores.get(beside(first, "zero_gradient")) if series.key == first else None,
                noise=_least(series, [m for m in measures if _is_noise(m.series()[0])], scores),
                black_box=_least(series, [m for m in measures if m.series()[0].attack and not m.gradients], scores),
                shorter=_least(series, [m for m in measures if _shorter(m, measure)], scores),
                unbounded=scores[series.key] if _holds_grey(series.threat) else None,
            ),
        )


def _is_noise(series: Series) -> bool:
    """Whether it is the share of random draws in a ball that keep the label."""
    return bool(series.noise) and series.evidence is Evidence.OUTCOME and series.bound == 1.0


def _holds_grey(threat: ThreatModel | None) -> bool:
    return threat is not None and threat.norm == "Linf" and threat.epsilon >= GREY


def _least(attacked: Series, measures: Sequence[Measure], scores: Scores) -> NDArray[Any] | None:
    """The least that a sample has under any of the measures that looked in the ball of the series; None without one."""
    listed = (series for measure in measures for series in measure.series())
    return _smallest([scores[series.key] for series in listed if _same_ball(series.threat, attacked.threat)])


def _same_ball(first: ThreatModel | None, second: ThreatModel | None) -> bool:
    if first is None or second is None or first.norm != second.norm:
        return False
    return math.isclose(first.epsilon, second.epsilon, abs_tol=SAME_RADIUS)


def _shorter(measure: Measure, than: Measure) -> bool:
    """Whether a measure is the same attack with fewer steps and no more restarts."""
    if type(measure) is not type(than) or "steps" not in type(measure).model_fields:
        return False
    mine, others = ({**each.model_dump(exclude=set(each.listing) | {"step_size"})} for each in (measure, than))
    fewer = mine.pop("steps") < others.pop("steps")
    return fewer and mine.pop("restarts", 1) <= others.pop("restarts", 1) and mine == others


def _smallest(columns: Sequence[NDArray[Any]]) -> NDArray[Any] | None:
    """The least survival of each sample; None when nothing was measured."""
    return np.minimum.reduce([column.astype(np.float64) for column in columns]) if columns else None
