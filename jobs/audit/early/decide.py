"""An audit that decides early: what is measured of each model, how far, and why the rest is not.

Measures of logits are measured on all samples, at one forward pass each. Then come the measures that gates need, the
cheapest first, in rounds (`rounds`); a model that failed a gate is left alone unless the fleet file says `complete`. At
last come the measures that no gate needs, unless the file says `only: gates`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from jobs.audit import plan, tables
from jobs.audit.early.needs import Need, needs_of, prerequisites
from jobs.audit.early.order import Order
from jobs.audit.early.rounds import Fleetwide, Front, case_of, run_rounds
from jobs.audit.judging.assemble import Grouping, series_results
from jobs.audit.judging.evidence import objections, undercuts, weighed
from jobs.audit.judging.observations import observed_attacks
from jobs.audit.judging.verdict import Case, by_bounds, class_scores
from jobs.audit.probes import ProbeSeen
from jobs.audit.scores import read_scores
from jobs.audit.session import Session
from jobs.fleetfile.gates import GateConfig, gate_text
from jobs.fleetfile.reading import Fleet
from services.loading.protocols import Samples
from services.measures.measure import Measure
from services.metrics import METRICS
from services.numerics.evidence.adequacy import Adequacy, adequacy
from services.records import GateResult, Outcome, Series


@dataclass(frozen=True)
class Decided:
    """What was measured.

    Attributes:
        plans: each model with the tables that were measured.
        context: with what was taken of the tables that are not complete.
        unmeasured: of each model, why gates were not measured, by their texts.
    """

    plans: list[plan.ModelPlan]
    context: plan.Context
    unmeasured: dict[str, dict[str, str]]


@dataclass
class _Progress:
    """One model: the tables measured, what was taken of them, and the gate that stopped it."""

    item: plan.ModelPlan
    tables: list[plan.Table] = field(default_factory=list)
    taken: dict[str, plan.Taken] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)


def decide_early(
    fleet: Fleet,
    plans: Sequence[plan.ModelPlan],
    samples: Samples,
    groups: tuple[Grouping, ...],
    context: plan.Context,
    session: Session,
) -> Decided:
    """Measure what the gates need; the scores are in the cache afterwards."""
    config = fleet.config
    classes = next(group for group in groups if group.name == "class")
    order = Order.of(samples.labels, len(samples.classes), config.seed)
    common = Fleetwide(config, samples, context, classes, order, session)
    models = [_Progress(item) for item in plans]
    _logits_first(models, fleet, groups, common)
    measures = tuple(table.measure for item in plans[:1] for table in item.tables if table.measure is not None)
    needs = needs_of(fleet, measures)
    for need in (each for each in needs if each.needed):
        going = _going(models, config.early.complete, session)
        if need.early:
            _in_rounds(need, going, fleet, common)
        if need.complete:
            _whole(need.measure, _going(going, config.early.complete, session), common)
    for need in (each for each in needs if not each.needed and config.early.only == "all"):
        _whole(need.measure, _going(models, config.early.complete, session), common)
    return _decided(models, fleet, context)


def _going(models: Sequence[_Progress], complete: bool, session: Session) -> list[_Progress]:
    alive = [model for model in models if session.alive(model.item.spec.name)]
    return [model for model in alive if complete or not model.failed]


def _part(model: _Progress, measures: Sequence[Measure]) -> plan.ModelPlan:
    return replace(model.item, tables=tuple(table for table in model.item.tables if table.measure in measures))


def _logits_first(models: Sequence[_Progress], fleet: Fleet, groups: tuple[Grouping, ...], common: Fleetwide) -> None:
    """Measures of logits on all samples, and the gates on them."""
    for model in models:
        model.tables = [table for table in model.item.tables if table.measure and table.measure.needs == "logits"]
    parts = {id(model): replace(model.item, tables=tuple(model.tables)) for model in models}
    tables.fill_scores(list(parts.values()), common.context, common.session)
    for model in models:
        if common.session.alive(model.item.spec.name):
            model.failed += _failed_on(parts[id(model)], fleet, groups, common)


def _failed_on(item: plan.ModelPlan, fleet: Fleet, groups: tuple[Grouping, ...], common: Fleetwide) -> list[str]:
    """Texts of the gates on measures of logits that the model fails, whatever else is measured."""
    mine = {series.key: series for table in item.tables if table.measure for series in table.measure.series()}
    gates = [gate for gate in fleet.config.gates if gate.measure in mine and _on_scores(gate)]
    if not gates:
        return []
    scores = read_scores(item, common.samples, common.context)
    results = tuple(series_results(item, scores, groups, fleet.config))
    case = Case(item, scores, results, (), (), (), groups, common.samples, {})
    judged = ((gate, by_bounds(gate, case, fleet.config)) for gate in gates)
    return [result.text for gate, result in judged if is_failed(gate, result, mine[gate.measure])]


def _on_scores(gate: GateConfig) -> bool:
    return METRICS[gate.metric].estimate is not None and gate.not_worse_than is None


def is_failed(gate: GateConfig, judged: GateResult, series: Series) -> bool:
    """Whether a gate fails for good: where the failure rests on no attack whose adequacy is open."""
    return weighed(judged, gate, objections(gate, series, (), None, judged.estimate.low)).outcome is Outcome.FAIL


def _in_rounds(need: Need, going: Sequence[_Progress], fleet: Fleet, common: Fleetwide) -> None:
    series, gates = fleet.series(), {gate_text(gate): gate for gate in need.early}

    def failed(front: Front) -> list[str]:
        return [
            text
            for text, result in front.results.items()
            if is_failed(gates[text], result, series[gates[text].measure])
        ]

    fronts = {id(model): Front.of(model.item, need.measure, need.early, common) for model in going}

    def enough(front: Front) -> bool:
        return bool(failed(front)) and not fleet.config.early.complete

    todo = list(fronts.values())
    while todo:
        run_rounds(todo, common, enough)
        todo = _undercut(list(fronts.values()), lambda front: bool(failed(front)), common)
    for model in going:
        front = fronts[id(model)]
        if front.seen is not None and common.session.alive(model.item.spec.name):
            model.tables.append(front.table)
            model.taken[front.table.key] = plan.Taken(common.order.prefix(front.counts))
            model.failed += failed(front)


def _undercut(fronts: Sequence[Front], failed: Callable[[Front], bool], common: Fleetwide) -> list[Front]:
    """The models of which a probe broke so many samples that passes do not clear their thresholds without these.

    More samples may clear them. The probes are those that the audit ends with, unless more samples follow.
    """
    seen = [front for front in fronts if front.seen is not None and common.session.alive(front.item.spec.name)]
    if not any(each.outcome is Outcome.PASS for front in seen for each in front.results.values()):
        return []
    if not seen[0].measure.series()[0].attack:
        return []
    parts = {id(front): replace(front.item, tables=(front.table,)) for front in seen}
    taken = {front.table.key: front.taken(common, failed=failed(front)) for front in seen}
    context, delta = replace(common.context, taken=taken), common.config.intervals.delta
    probed = tables.fill_probes(list(parts.values()), context, common.session, delta)
    return [
        front for front in seen if front.short_of(_shares(front, parts[id(front)], probed, context, common), common)
    ]


def _shares(
    front: Front, item: plan.ModelPlan, probed: dict[str, ProbeSeen], context: plan.Context, common: Fleetwide
) -> dict[str, float]:
    """By gate, how much its lower limit rests on samples that an attack had left and the probe broke.

    None of an inadequate attack: on its numbers nothing passes, however many samples there are.
    """
    if not common.session.alive(item.spec.name):
        return {}
    scores = read_scores(item, common.samples, context)
    observed = observed_attacks(item, scores, probed, common.config.intervals.delta, context.taken)
    if adequacy(observed).adequacy is Adequacy.INADEQUATE:
        return {}
    results = case_of(item, front.table, context.taken[front.table.key].rows, common).series
    undercutting = ((gate, undercuts(gate, observed, class_scores(gate, results))) for gate in front.gates)
    return {gate_text(gate): max((each.share for each in shares), default=0.0) for gate, shares in undercutting}


def _whole(measure: Measure, going: Sequence[_Progress], common: Fleetwide) -> None:
    """A measure on all samples. Where rounds looked at it before, its limits stay those of every look."""
    tables.fill_scores([_part(model, [measure]) for model in going], common.context, common.session)
    for model in going:
        (table,) = _part(model, [measure]).tables
        if table.key in model.taken:
            model.taken[table.key] = plan.Taken(common.order.prefix(common.order.sizes))
        else:
            model.tables.append(table)


def _decided(models: Sequence[_Progress], fleet: Fleet, context: plan.Context) -> Decided:
    taken: dict[str, plan.Taken] = {}
    for model in models:
        for key, part in model.taken.items():
            taken[key] = plan.Taken.of(part.rows, context.count, failed=bool(model.failed))
    whole = replace(context, taken=taken)
    plans = [replace(model.item, tables=_in_order(model)) for model in models]
    lacking = {model.item.spec.name: _unmeasured(model, fleet, whole) for model in models}
    return Decided(plans, whole, lacking)


def _in_order(model: _Progress) -> tuple[plan.Table, ...]:
    measured = {table.key for table in model.tables}
    return tuple(table for table in model.item.tables if table.key in measured)


def _unmeasured(model: _Progress, fleet: Fleet, context: plan.Context) -> dict[str, str]:
    """Why gates have no number: what they rest on was not measured, for the model had failed another."""
    first = model.failed[0] if model.failed else ""
    reason = f"not measured, for the model fails {first}" if first else "not measured"
    measured = [table for table in model.tables if table.measure is not None]
    whole = [table.measure for table in measured if plan.is_whole(table, context)]
    keys = {series.key for table in measured if table.measure for series in table.measure.series()}
    lacking = {}
    for gate in fleet.config.gates:
        text = gate_text(gate)
        behind = [measure for measure in prerequisites(gate, fleet) if measure not in whole]
        if text not in model.failed and (gate.measure not in keys or behind):
            lacking[text] = reason
    return lacking
