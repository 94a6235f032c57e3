"""Is the GREAT score of a model true? Its claims held against the nearest adversarial examples the audit knows.

Every measure that attacks adds to that knowledge: `minimal` gives distances, and a sample that an attack broke within
radius e has an adversarial at L2 distance e at most (Linf: ``e * sqrt(d)``, d the pixels of the
image times channels).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from jobs.audit.judging.assemble import Grouping
from jobs.audit.plan import ModelPlan
from services.measures.measure import Measure
from services.numerics.arguments import Bools, Floats
from services.numerics.evidence.refutation import Refutation, refute
from services.numerics.intervals.means import clopper_pearson
from services.records import (
    L2_DISTANCE,
    LINF_DISTANCE,
    AttackResult,
    Estimate,
    Evidence,
    GroupScore,
    RefutedResult,
    Series,
)
from tracking.bundle.headline import untested
from tracking.bundle.scores import Scores, beside

ROUNDING = 1e-5
"""Relative allowance for a ball's radius: AutoAttack's package projects in float32 and keeps to it only so far."""
FALSE = 0.5
"""Share of refuted claims above which a note calls the score false."""
EMPTY = 0.1
"""A median claim below this share of the median distance found says next to nothing."""


@dataclass(frozen=True)
class Distances:
    """What the audit knows of n samples of one model.

    Attributes:
        nearest: (n,) L2 distance of the nearest adversarial known; infinite where none is.
        limit: how far `minimal` searched.
        correct: (n,) correctly classified, as `minimal` saw it.
    """

    nearest: Floats
    limit: float
    correct: Bools


def refuted_results(
    item: ModelPlan, scores: Scores, groups: Sequence[Grouping], shape: tuple[int, ...], delta: float
) -> tuple[RefutedResult, ...]:
    """The refuted share of each GREAT series of a model by each grouping; empty without `minimal`.

    Args:
        item: the model's plan, which says what was measured.
        scores: its per-sample scores, (n,) a column.
        groups: the groupings.
        shape: (C, H, W) of the images as the attacks saw them.
        delta: of the intervals.
    """
    measures = [table.measure for table in item.tables if table.measure is not None]
    known = known_distances(measures, scores, math.prod(shape))
    if known is None:
        return ()
    claims = [series.key for series in _all_series(measures) if series.evidence is Evidence.CLAIM]
    return tuple(_result(key, known, scores, grouping, delta) for key in claims for grouping in groups)


def possible_share(result: RefutedResult) -> Estimate:
    """The refuted share with an upper limit that counts every untested claim as one that may be refuted."""
    share = result.overall
    if share.value is None or not result.untested:
        return share
    most = np.array(result.refuted + result.untested)
    _, high = clopper_pearson(most, np.array(result.counted), result.delta / 2)
    return replace(share, high=float(high))


def with_untested(results: Sequence[RefutedResult], attacks: Sequence[AttackResult]) -> tuple[RefutedResult, ...]:
    """The results; where no attack that could have refuted the claims was adequate, that is their note."""
    if not untested(attacks):
        return tuple(results)
    return tuple(
        replace(
            result,
            notes=(
                *(result.notes if result.refuted else ()),
                f"{result.series}: no attack that could have refuted a claim was adequate on this model, so that "
                f"{'few are' if result.refuted else 'none is'} refuted says nothing.",
            ),
        )
        for result in results
    )


def known_distances(measures: Sequence[Measure], scores: Scores, pixels: int) -> Distances | None:
    """The smallest distance that any measure knows of each sample; None without `minimal`."""
    distances = next((series for series in _all_series(measures) if series.attack and series.unit == L2_DISTANCE), None)
    if distances is None:
        return None
    key, limit = distances.key, distances.bound
    nearest = np.where(scores[beside(key, "censored")] > 0, np.inf, scores[key])
    for each in _all_series(measures):
        if each.attack and each.unit == LINF_DISTANCE:
            broken = (scores[beside(each.key, "censored")] == 0) & (scores[beside(each.key, "correct")] > 0)
            nearest = np.where(broken, np.minimum(nearest, scores[each.key] * math.sqrt(pixels)), nearest)
    for ball, radius in _radii(measures, pixels):
        nearest = np.where(scores[ball] > 0, nearest, np.minimum(nearest, radius * (1 + ROUNDING)))
    return Distances(nearest, limit, scores[beside(key, "correct")] > 0)


def _all_series(measures: Sequence[Measure]) -> Iterator[Series]:
    return (series for measure in measures for series in measure.series())


def _radii(measures: Sequence[Measure], pixels: int) -> Iterator[tuple[str, float]]:
    """Series key and L2 radius of every ball in which an attack looked."""
    for series in _all_series(measures):
        if series.attack and series.binary and series.threat is not None:
            stretch = 1.0 if series.threat.norm == "L2" else math.sqrt(pixels)
            yield series.key, series.threat.epsilon * stretch


def _result(key: str, known: Distances, scores: Scores, grouping: Grouping, delta: float) -> RefutedResult:
    """Samples count that are correctly classified in both measures: a pass in another batch may round otherwise."""
    claims, unknown = scores[key].astype(np.float64), np.isinf(known.nearest)
    correct = known.correct & (scores[beside(key, "correct")] > 0)
    refutation = refute(
        claims,
        np.where(unknown, known.limit, known.nearest),
        correct,
        unknown,
        grouping.codes,
        classes=len(grouping.names),
        delta=delta,
    )
    overall = _medians(claims[correct], known.nearest[correct])
    return RefutedResult(
        series=key,
        grouping=grouping.name,
        overall=refutation.overall,
        groups=tuple(_rows(refutation, claims, known.nearest, correct, grouping)),
        refuted=sum(refutation.refuted),
        counted=sum(refutation.counted),
        untested=sum(refutation.untested),
        delta=delta,
        notes=tuple(_notes(key, refutation, *overall, known.limit)),
    )


def _rows(
    refutation: Refutation, claims: Floats, nearest: Floats, correct: Bools, grouping: Grouping
) -> Iterator[GroupScore]:
    n_all = np.bincount(grouping.codes, minlength=len(grouping.names))
    for k, name in enumerate(grouping.names):
        mine = correct & (grouping.codes == k)
        claim, distance = _medians(claims[mine], nearest[mine])
        extras = {
            "refuted": float(refutation.refuted[k]),
            "untested": float(refutation.untested[k]),
            "median_claim": claim,
            "median_distance": distance,
        }
        yield GroupScore(k, name, refutation.counted[k], int(n_all[k]), refutation.classes[k], extras)


def _medians(claims: Floats, nearest: Floats) -> tuple[float | None, float | None]:
    """Median claim and median distance; None where there are no samples, or for half of them nothing was found."""
    if not claims.size:
        return None, None
    middle = float(np.quantile(nearest, 0.5, method="higher"))
    return float(np.median(claims)), middle if math.isfinite(middle) else None


def _notes(key: str, outcome: Refutation, claim: float | None, distance: float | None, limit: float) -> Iterator[str]:
    """Whether the claims are false, empty, or neither, in one sentence; and what was not tested."""
    share, counted, untested = outcome.overall.value, sum(outcome.counted), sum(outcome.untested)
    if share is None or claim is None:
        return
    beside = f"the median claim is {claim:.3g}"
    beside += f", the median adversarial distance found {distance:.3g}" if distance is not None else ""
    counts = f"for {sum(outcome.refuted)} of {counted} correctly classified samples ({share:.1%})"
    if share > FALSE:
        yield f"{key} is false as a certificate: {counts} an adversarial lies nearer than the score claims; {beside}."
    elif share > 0:
        yield f"{key}: {counts} an adversarial lies nearer than the score claims; {beside}."
    else:
        yield f"{key}: no attack refuted a claim on {counted} correctly classified samples; {beside}."
    if share <= FALSE and claim < EMPTY * (distance if distance is not None else limit):
        yield f"{key} is nearly empty as a certificate: it is seldom refuted because it claims next to nothing."
    if untested:
        yield f"{key}: {untested} claims exceed the search limit {limit:g} and were not tested; raise search_limit."
