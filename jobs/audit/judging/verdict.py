"""What each gate of a model is judged on: its number, the groups that this lacks, and the attacks behind it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from jobs.audit.judging.assemble import Grouping, extras_of, over_all_samples, series_result
from jobs.audit.judging.attributes import gate_estimate, gate_missing
from jobs.audit.judging.claims import possible_share
from jobs.audit.judging.evidence import objections, of_refuted_share, weighed, worded
from jobs.audit.judging.gates import judge
from jobs.audit.judging.more_samples import NOTHING, Seen, more_words
from jobs.audit.plan import ModelPlan, Table, Taken
from jobs.comparison.comparable import Measured
from jobs.comparison.compare import Kept
from jobs.comparison.non_inferiority import ACCEPTED, FIRST, change_since
from jobs.fleetfile.gates import GateConfig, gate_text, threshold_of
from jobs.fleetfile.tree import FleetConfig
from services.loading.protocols import Samples
from services.measures.measure import Measure
from services.metrics import METRICS, Unknown
from services.numerics.evidence.adequacy import AttackObservations
from services.numerics.intervals.disparity import widened
from services.records import (
    Estimate,
    FairnessResult,
    GateResult,
    GroupScore,
    Outcome,
    RefutedResult,
    SeriesResult,
)
from tracking.bundle.scores import CLUSTER, Scores

NONE_ACCEPTED = "no audit of this fleet has been accepted yet; once this one is in order, accept it: classwise accept"
"""Undecided and not an error: else no first audit could ever be accepted."""
OVER_ALL = "over all samples, misclassified ones with 0"
MOST_NAMED = 5


@dataclass(frozen=True)
class Case:
    """A model before its gates: what was measured, and the results.

    Attributes:
        attacks: what was seen of each attack on it.
        earlier: the audits that gates compare with, by the name the gate gives.
        taken: the parts of tables that early decisions rest on, by the table's key.
        unmeasured: why a gate was not measured, by its text.
        seconds: of a worker for one more sample, by series; empty where not known.
    """

    item: ModelPlan
    scores: Scores
    series: tuple[SeriesResult, ...]
    refuted: tuple[RefutedResult, ...]
    fairness: tuple[FairnessResult, ...]
    attacks: tuple[AttackObservations, ...]
    groupings: tuple[Grouping, ...]
    samples: Samples
    earlier: dict[str, Kept | None]
    taken: Mapping[str, Taken] = field(default_factory=dict)
    unmeasured: Mapping[str, str] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)


def gate_result(gate: GateConfig, case: Case, config: FleetConfig) -> GateResult:
    """Judge one gate. A group without a number, or an attack that could not move, is never a pass."""
    if reason := case.unmeasured.get(text := gate_text(gate)):
        return GateResult(text, Outcome.UNDECIDED, Estimate(None, reason=reason), reason, threshold_of(gate))
    needs = METRICS[gate.metric].needs
    if needs == "claim":
        return _refuted(gate, case)
    if needs == "decisions":
        return _group_gap(gate, case)
    if gate.not_worse_than is not None:
        judged, unchanged = _not_worse(gate, case, config)
    else:
        judged, unchanged = by_bounds(gate, case, config), False
    if unchanged:
        return judged
    series = next(result.series for result in case.series if result.series.key == gate.measure)
    share, by_class = _refuted_share(gate, case), class_scores(gate, case.series)
    against = tuple(objections(gate, series, case.attacks, share, judged.estimate.low, by_class))
    return worded(weighed(judged, gate, against), gate, series, case.series, held=share is not None)


def class_scores(gate: GateConfig, results: Sequence[SeriesResult]) -> tuple[GroupScore, ...]:
    """The classes of the series that a gate is on; none where it was not scored by class."""
    mine = (result.groups for result in results if (result.series.key, result.grouping) == (gate.measure, "class"))
    return next(mine, ())


def by_bounds(gate: GateConfig, case: Case, config: FleetConfig) -> GateResult:
    """The judgement of the number of a threshold gate itself, whatever it is evidence of."""
    result = _over_all(gate, case, config)
    if METRICS[gate.metric].needs == "samples":
        judged = judge(gate, result.aggregate, against=tuple(_unread(result, case.samples)))
    else:
        judged = judge(gate, _of_groups(gate, result, config), against=tuple(_missing(result)))
    conditional = any(other.series.key == gate.measure and other.series.conditional for other in case.series)
    return replace(judged, reason=f"{judged.reason} ({OVER_ALL})") if conditional else judged


def with_remedy(judged: GateResult, gate: GateConfig, case: Case, config: FleetConfig) -> GateResult:
    """The judgement; where it is undecided and the limits hold at every look, with what would decide it."""
    at_every_look = config.intervals.anytime or config.decide == "early"
    of_classes = gate.grouping == "class" and METRICS[gate.metric].estimate is not None
    asked = at_every_look and of_classes and gate.not_worse_than is None and not judged.objected
    if judged.outcome is not Outcome.UNDECIDED or not asked:
        return judged
    if judged.text in case.unmeasured or by_bounds(gate, case, config).outcome is not Outcome.UNDECIDED:
        return judged
    wanted = _wanted(gate, case, config)
    if wanted is None:
        return judged
    return replace(judged, reason=f"{judged.reason}; {wanted or NOTHING}", wanted=wanted)


def _wanted(gate: GateConfig, case: Case, config: FleetConfig) -> str | None:
    """How many more samples would decide, "" where no number would; None where it cannot be said."""
    result = _over_all(gate, case, config)
    if result.method != "anytime" or result.missing:
        return None
    table, measure = _measured_by(gate.measure, case.item)
    series, scores = result.series, case.scores[gate.measure]
    own = next(each.series for each in case.series if each.series.key == gate.measure)
    if own.conditional:
        series, scores = over_all_samples(own, scores, extras_of(case.scores, measure))
    part, grouping = case.taken.get(table.key), next(each for each in case.groupings if each.name == "class")
    rows = None if part is None else part.rows
    seen = Seen(series, scores, grouping, rows, case.scores.get(CLUSTER), case.seconds.get(gate.measure))
    return more_words(gate, seen, case.samples.intake.available, config, config.resources.price)


# --- groups -------------------------------------------------------------------------------------------------------


def _over_all(gate: GateConfig, case: Case, config: FleetConfig) -> SeriesResult:
    """The profile that a gate judges: of a conditional series that over all samples, a misclassified one with 0.

    Its own profile leaves out the misclassified: a class that is never right would be undefined and in no metric.
    """
    result = next(r for r in case.series if (r.series.key, r.grouping) == (gate.measure, gate.grouping))
    if not result.series.conditional:
        return result
    grouping = next(known for known in case.groupings if known.name == gate.grouping)
    table, measure = _measured_by(gate.measure, case.item)
    extras = extras_of(case.scores, measure)
    series, values = over_all_samples(result.series, case.scores[gate.measure], extras)
    part = case.taken.get(table.key) if gate.grouping == "class" else None
    rows = None if part is None else part.rows
    return series_result(series, values, extras, grouping, config, rows=rows, clusters=case.scores.get(CLUSTER))


def _measured_by(key: str, item: ModelPlan) -> tuple[Table, Measure]:
    tables = ((table, table.measure) for table in item.tables if table.measure is not None)
    return next(pair for pair in tables if key in {series.key for series in pair[1].series()})


def _of_groups(gate: GateConfig, result: SeriesResult, config: FleetConfig) -> Estimate:
    """A metric over groups with the limits that hold whatever the missing groups are."""
    known, unknown = result.metric(gate.metric), METRICS[gate.metric].unknown
    if not result.missing or known.value is None or unknown is None:
        return known
    low, high = (
        np.array([np.nan if limit is None else limit for limit in limits])
        for limits in zip(*((row.score.low, row.score.high) for row in result.groups), strict=True)
    )
    bound = result.series.bound
    return unknown(Unknown(known, *widened(low, high, bound), bound, config.fp_lambda))


def _missing(result: SeriesResult) -> Iterator[str]:
    if result.missing:
        named = _named(result.grouping, result.missing)
        yield f"there are no samples of {named}: add some, or gate a grouping (or declare classes) without"


def _unread(result: SeriesResult, samples: Samples) -> Iterator[str]:
    """A mean over all samples needs no group; but one of which every file was skipped is missing from it."""
    if unread := [name for name in result.missing if result.grouping == "class" and samples.skipped.get(name)]:
        yield f"{_named('class', unread)} of which no file could be read: repair or remove these files"


def _named(grouping: str, names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{grouping} {', '.join(names[:MOST_NAMED])}{more}"


def _group_gap(gate: GateConfig, case: Case) -> GateResult:
    estimate = gate_estimate(case.fairness, gate.grouping, gate.metric)
    lacking = gate_missing(case.fairness, gate.grouping, gate.metric)
    if estimate.value is not None and lacking:
        estimate = replace(estimate, high=1.0)
    remedy = f"{gate.metric} needs samples of {_named(gate.grouping, lacking)}: add some, or merge groups"
    return judge(gate, estimate, against=(remedy,) if lacking else ())


# --- claims -------------------------------------------------------------------------------------------------------


def _refuted(gate: GateConfig, case: Case) -> GateResult:
    share = _refuted_share(gate, case)
    if share is None:
        return judge(gate, Estimate(None, reason="refuted needs a GREAT score and a minimal perturbation"))
    return weighed(judge(gate, possible_share(share)), gate, of_refuted_share(case.attacks))


def _refuted_share(gate: GateConfig, case: Case) -> RefutedResult | None:
    return next((r for r in case.refuted if (r.series, r.grouping) == (gate.measure, gate.grouping)), None)


# --- earlier audits -----------------------------------------------------------------------------------------------


def _not_worse(gate: GateConfig, case: Case, config: FleetConfig) -> tuple[GateResult, bool]:
    """The judgement of a difference, and whether it is for certain none: then nothing speaks against a pass."""
    reference = case.earlier[gate.not_worse_than or ""]
    if reference is None and gate.not_worse_than in (ACCEPTED, FIRST):
        nothing = Estimate(None, reason=NONE_ACCEPTED)
        return GateResult(gate_text(gate), Outcome.UNDECIDED, nothing, NONE_ACCEPTED), False
    change = change_since(gate, _measured(case), case.scores, reference, config)
    gone = f"no sample of {_named('class', change.vanished)} is in both audits"
    against = (gone,) if change.vanished else ()
    judged = judge(gate, change.difference, against=against, unchanged=change.unchanged)
    return judged, bool(change.unchanged) and judged.outcome is Outcome.PASS


def _measured(case: Case) -> Measured:
    item, samples = case.item, case.samples
    measures = [table.measure for table in item.tables if table.measure is not None]
    return Measured(
        audit="in progress",
        content=samples.content,
        classes=tuple(samples.classes),
        selection=samples.digest,
        spec=item.spec,
        weights=item.digest,
        series={series.key: series for measure in measures for series in measure.series()},
    )
