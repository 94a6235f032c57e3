"""The result of one model: its scores joined and kept, profiled by every grouping, judged by every gate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from jobs.audit.judging.assemble import Grouping, series_results
from jobs.audit.judging.attributes import PREDICTED, fairness_results, projection_results
from jobs.audit.judging.claims import refuted_results, with_untested
from jobs.audit.judging.confusions import cells, confusion_results, matrices
from jobs.audit.judging.gates import worst
from jobs.audit.judging.observations import attack_notes, attack_results, observed_attacks
from jobs.audit.judging.verdict import Case, gate_result, with_remedy
from jobs.audit.plan import Context, ModelPlan, is_whole, picture_path
from jobs.audit.probes import ProbeSeen
from jobs.audit.scores import read_scores
from jobs.audit.speeds import Speed
from jobs.audit.why.gallery import keep_gallery
from jobs.audit.why.slices import keep_slices, slice_results
from jobs.comparison.compare import Kept
from jobs.fleetfile.reading import Fleet
from services.loading.preflight.judgement import order_notes
from services.loading.protocols import Samples
from services.numerics.calibration_error import BINS, calibration_error
from services.records import (
    Estimate,
    GateResult,
    ModelResult,
    ModelSpec,
    Outcome,
    RefutedResult,
    SeriesResult,
)
from services.storage import files
from services.telemetry.redaction import redacted
from tracking.bundle.headline import tested_claims
from tracking.bundle.reasons.confusions import write_confusions
from tracking.bundle.scores import Scores, beside, write_scores
from tracking.figures.attributes import traversal_path

BRIER = "brier"
"""The series beside which confidences stand."""


@dataclass(frozen=True)
class Judge:
    """What all models of an audit are judged with.

    Attributes:
        unmeasured: of each model, why gates were not measured, by their texts.
        speeds: of each model, as preflight measured it.
    """

    fleet: Fleet
    samples: Samples
    context: Context
    groupings: tuple[Grouping, ...]
    earlier: dict[str, Kept | None]
    folder: str
    probes: dict[str, ProbeSeen] = field(default_factory=dict)
    unmeasured: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    speeds: Mapping[str, Speed] = field(default_factory=dict)


def model_result(item: ModelPlan, index: int, judge_with: Judge) -> ModelResult:
    """Read a model's tables, keep its scores in the bundle, and judge it."""
    scores = read_scores(item, judge_with.samples, judge_with.context)
    write_scores(judge_with.folder, index, item.spec, scores)
    config, shape, taken = judge_with.fleet.config, judge_with.samples.shape, judge_with.context.taken
    classes = judge_with.samples.classes
    whole = replace(item, tables=tuple(table for table in item.tables if is_whole(table, judge_with.context)))
    measures = [table.measure for table in whole.tables if table.measure is not None]
    rows, groups = judge_with.context.once, judge_with.groupings
    units = scores if rows is None else {name: column[rows] for name, column in scores.items()}
    of_units = groups if rows is None else tuple(grouping.at(rows) for grouping in groups)
    confused = matrices(measures, units, len(classes), config.intervals.delta)
    confusions = confusion_results(confused)
    write_confusions(judge_with.folder, index, item.spec, cells(confused, classes))
    observed = observed_attacks(item, units, judge_with.probes, config.intervals.delta, taken, classes)
    attacks = attack_results(observed, item, judge_with.probes)
    refuted = with_untested(refuted_results(whole, units, of_units, shape, config.intervals.delta), attacks)
    tested = tested_claims(refuted, attacks)
    series = tuple(
        with_refuted(result, _find(tested, result.series.key, result.grouping))
        for result in series_results(item, scores, groups, config, taken)
    )
    fairness = fairness_results(units, of_units, classes, config.intervals.delta)
    case = Case(
        item,
        scores,
        series,
        refuted,
        fairness,
        observed,
        groups,
        judge_with.samples,
        judge_with.earlier,
        taken,
        judge_with.unmeasured.get(item.spec.name, {}),
        _seconds(item, judge_with.speeds),
    )
    gates = tuple(with_remedy(gate_result(gate, case, config), gate, case, config) for gate in config.gates)
    notes = [note for result in series if result.grouping == "class" for note in result.notes]
    notes += [note for result in refuted if result.grouping == "class" for note in result.notes]
    notes += [note for result in fairness for note in result.notes]
    calibration = _calibration(units, config.intervals.delta, config.seed)
    if calibration is not None and calibration.value is not None:
        limits = f"{calibration.low or 0.0:.3f} to {calibration.high or 0.0:.3f}"
        notes.append(f"expected calibration error {calibration.value:.3f} ({limits}), over {BINS} bins of confidence.")
    if PREDICTED in units:
        notes += order_notes(units["label"], units[PREDICTED], classes)
    result = ModelResult(
        spec=shown_spec(item.spec),
        digest=item.digest,
        outcome=worst(gate.outcome for gate in gates),
        reasons=tuple(_reasons(gates)),
        gates=gates,
        series=series,
        notes=tuple(dict.fromkeys((*notes, *attack_notes(attacks)))),
        attacks=attacks,
        confusions=confusions,
        refuted=refuted,
        fairness=fairness,
        slices=slice_results(
            item, scores, judge_with.samples, judge_with.context, config.intervals.delta / len(config.models)
        ),
        projection=projection_results(item, units, of_units, config),
        facts={} if calibration is None else {"calibration_error": asdict(calibration)},
    )
    _keep_pictures(item, index, result, judge_with)
    keep_slices(result.slices, index, item.spec, judge_with.samples, judge_with.context, judge_with.folder)
    keep_gallery(item, index, judge_with.samples, judge_with.context, judge_with.folder)
    return result


def _calibration(units: Scores, delta: float, seed: int) -> Estimate | None:
    """The expected calibration error where the measure `brier` says how confident the model was."""
    confidence = units.get(beside(BRIER, "confidence"))
    if confidence is None:
        return None
    return calibration_error(confidence, units[beside(BRIER, "correct")], delta=delta, seed=seed)


def _seconds(item: ModelPlan, speeds: Mapping[str, Speed]) -> dict[str, float]:
    """Of a worker for one more sample, by series; nothing where the speed is not known."""
    speed = speeds.get(item.spec.name, Speed())
    measures = [table.measure for table in item.tables if table.measure is not None] if speed.forward else []
    return {
        series.key: speed.seconds(None if measure.needs == "logits" else measure)
        for measure in measures
        for series in measure.series()
    }


def shown_spec(spec: ModelSpec) -> ModelSpec:
    """The specification as bundles and servers show it, without secrets."""
    return replace(spec, uri=redacted(spec.uri))


def _keep_pictures(item: ModelPlan, index: int, result: ModelResult, judge_with: Judge) -> None:
    """Copy what measures drew of the model from the cache into the bundle."""
    drawn = [table for table in item.tables if table.measure is not None and table.measure.pictures]
    for table, projection in zip(drawn, result.projection, strict=True):
        data = files.read_bytes(picture_path(table, judge_with.context))
        files.write_bytes(traversal_path(judge_with.folder, index, result, projection), data)


def with_refuted(result: SeriesResult, refuted: RefutedResult | None) -> SeriesResult:
    """The series with the refuted share as an extra, overall and by group, so that it is shown beside the score."""
    if refuted is None:
        return result
    groups = tuple(
        replace(group, extras={**group.extras, "refuted": share.score.value})
        for group, share in zip(result.groups, refuted.groups, strict=True)
    )
    return replace(result, groups=groups, extras={**result.extras, "refuted": refuted.overall.value})


def _find(refuted: Sequence[RefutedResult], key: str, grouping: str) -> RefutedResult | None:
    return next((result for result in refuted if (result.series, result.grouping) == (key, grouping)), None)


def _reasons(gates: tuple[GateResult, ...]) -> list[str]:
    """The sentences behind the verdict: of the gates that decided it."""
    if not gates:
        return ["no gates were set: measured, not judged"]
    deciding = worst(gate.outcome for gate in gates)
    if deciding is Outcome.PASS:
        whole = [_all_passed(len(gates)) if len(gates) > 1 else f"{gates[0].text}: {gates[0].reason}"]
        return [*whole, *(f"{gate.text}: {gate.reason}" for gate in gates if gate.overruled and len(gates) > 1)]
    return [f"{gate.text}: {gate.reason}" for gate in gates if gate.outcome is not Outcome.PASS]


def _all_passed(gates: int) -> str:
    return "both gates passed" if gates == 2 else f"all {gates} gates passed"
