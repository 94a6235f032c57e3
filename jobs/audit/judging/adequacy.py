"""Signs of masked gradients in whatever series an audit of a model has.

An attack is held against random noise and a black box in the same ball, against itself with fewer steps, and against a
ball that holds any image. That AutoAttack breaks more than PGD is normal and no sign.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jobs.audit.plan import ModelPlan
from services.measures.autoattack import AutoAttackSurvival
from services.measures.base import Measure
from services.measures.minimal import Minimal
from services.measures.pgd import Pgd
from services.measures.square import Square
from services.numerics.adequacy import AttackObservations
from services.numerics.masking import Finding, Observations, find_masking
from tracking.bundle.scores import Scores

NOISE = re.compile(r"^pr/(?:uniform|gaussian|laplace)-(?P<radius>\d+\.\d+)$")
"""Series of random noise that stays in the Linf ball of its radius."""
GREY = 0.5
"""A Linf ball of this radius around any image holds the grey image."""

ATTACKS = (Pgd, AutoAttackSurvival, Square, Minimal)

Found = tuple[str, Finding]
"""Series key of the attack under scrutiny, and what was seen."""


def masking_findings(item: ModelPlan, scores: Scores) -> tuple[Found, ...]:
    """All signs for one model; empty when nothing was attacked or nothing shows."""
    measures = [table.measure for table in item.tables if table.measure is not None]
    return tuple((key, finding) for key, seen in _observations(measures, scores) for finding in find_masking(seen))


def observed_attacks(item: ModelPlan, scores: Scores, signs: Sequence[Found]) -> tuple[AttackObservations, ...]:
    """What was seen of each attack on a model: whether its gradients were looked at, and the signs in its series."""
    measures = [table.measure for table in item.tables if isinstance(table.measure, ATTACKS)]
    return tuple(_seen(measure, scores, signs) for measure in measures)


def _seen(measure: Measure, scores: Scores, signs: Sequence[Found]) -> AttackObservations:
    keys = tuple(series.key for series in measure.series())
    zeros, correct = scores.get(f"{keys[0]}:zero_gradient"), scores.get(f"{keys[0]}:correct")
    looked = measure.gradients and zeros is not None and correct is not None and bool((correct > 0).any())
    return AttackObservations(measure.name, keys, looked, tuple(finding for key, finding in signs if key in keys))


def masking_notes(found: Sequence[Found]) -> tuple[str, ...]:
    """A sentence a finding."""
    return tuple(f"{key}: {finding.sentence}" for key, finding in found)


def masking_facts(found: Sequence[Found]) -> dict[str, Any]:
    """The findings as a fact of the model; empty when there are none."""
    rows = [{"series": key, "sign": f.sign.value, "samples": f.samples, "share": f.share} for key, f in found]
    return {"masking": rows} if rows else {}


def _observations(measures: Sequence[Measure], scores: Scores) -> Iterator[tuple[str, Observations]]:
    for measure in measures:
        if isinstance(measure, Pgd | AutoAttackSurvival):
            yield from _of_attack(measure, measures, scores)
        elif isinstance(measure, Minimal):
            first = measure.series()[0].key
            correct = scores[f"{first}:correct"]
            yield first, Observations(correct, np.zeros(len(correct)), scores.get(f"{first}:zero_gradient"))


def _of_attack(
    measure: Pgd | AutoAttackSurvival, measures: Sequence[Measure], scores: Scores
) -> Iterator[tuple[str, Observations]]:
    """One row of observations a radius; the share of zero gradients, which all radii have in common, in the first."""
    listed = measure.series()
    first = listed[0].key
    for series, radius in zip(listed, measure.epsilons, strict=True):
        ball = series.key.rpartition("/")[2]
        yield (
            series.key,
            Observations(
                correct=scores[f"{first}:correct"],
                attack=scores[series.key],
                zero_gradient=scores.get(f"{first}:zero_gradient") if series.key == first else None,
                noise=_smallest([scores[key] for key in scores if _is_noise(key, ball)]),
                black_box=_smallest(_columns(ball, [m for m in measures if isinstance(m, Square)], scores)),
                shorter=_smallest(_columns(ball, [m for m in measures if _shorter(m, measure)], scores)),
                unbounded=scores[series.key] if measure.norm == "Linf" and radius >= GREY else None,
            ),
        )


def _is_noise(key: str, ball: str) -> bool:
    found = NOISE.match(key)
    return found is not None and ball == f"linf-{found['radius']}"


def _columns(ball: str, measures: Sequence[Measure], scores: Scores) -> list[NDArray[Any]]:
    """Survival in the ball of that name under each of the measures that looked there."""
    keys = [series.key for measure in measures for series in measure.series()]
    return [scores[key] for key in keys if key.endswith(f"/{ball}")]


def _shorter(measure: Measure, than: Measure) -> bool:
    """Whether a measure is the same PGD with fewer steps and no more restarts."""
    if not (isinstance(measure, Pgd) and isinstance(than, Pgd)):
        return False
    alike = measure.loss == than.loss and measure.norm == than.norm
    return alike and measure.steps < than.steps and measure.restarts <= than.restarts


def _smallest(columns: Sequence[NDArray[Any]]) -> NDArray[Any] | None:
    """The least survival of each sample; None when nothing was measured."""
    return np.minimum.reduce([column.astype(np.float64) for column in columns]) if columns else None
