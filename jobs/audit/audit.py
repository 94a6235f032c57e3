"""The audit: from a fleet file to a bundle on disk.

The flow is that of docs/architecture.md. Every stage asks the cache first; what is there is not done again. The driver
opens the samples, and holds labels, one model's score columns at a time, and sums; never logits.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np

from jobs.audit import plan, tables, temperature, unfinished, versions
from jobs.audit.early.decide import decide_early
from jobs.audit.forecast.cost_words import cost_words
from jobs.audit.forecast.costs import Forecast, forecast
from jobs.audit.forecast.demands import unable_kinds
from jobs.audit.inspection import inspect_models
from jobs.audit.judging.assemble import groupings
from jobs.audit.judging.corruption_checks import corruption_notes, mean_corruption_errors
from jobs.audit.judging.decidable import too_few
from jobs.audit.judging.fleet_checks import fleet_checks, fleet_notes
from jobs.audit.judging.gates import worst
from jobs.audit.judging.model_result import Judge, shown_spec
from jobs.audit.session import RunnerFactory, Session, runner_for
from jobs.audit.why.hardest import keep_hardest
from jobs.comparison.non_inferiority import earlier_audits
from jobs.comparison.promote import ALIASES, aliases_now
from jobs.comparison.record import record_comparison
from jobs.fleetfile.followups import without_queries
from jobs.fleetfile.mlflow_uri import mlflow_sources
from jobs.fleetfile.radii import radius_problems
from jobs.fleetfile.reading import Fleet
from jobs.fleetfile.tree import FleetConfig
from jobs.terminal import stop
from jobs.terminal.progress import Counted, Reporter
from services.errors import ClasswiseError, ConfigError, Interrupted, Problem, SourceError
from services.loading.confined import confined_to
from services.loading.models.source import fingerprint
from services.loading.protocols import Samples
from services.loading.samples.duplicates import lookalikes
from services.loading.samples.source import open_samples
from services.measures.great import Great
from services.measures.measure import Measure
from services.numerics.intervals.clusters import one_of_each
from services.records import (
    AuditResult,
    CalibrationResult,
    ModelResult,
    ModelSpec,
    Outcome,
    SampleFacts,
    digest_of,
)
from services.records.intake import intake_notes
from services.storage import files
from services.telemetry import counters, logs
from services.telemetry.redaction import redacted, redacted_tree
from tracking.bundle.bundle import write_bundle

_log = logging.getLogger("classwise.audit")


@dataclass(frozen=True)
class Finished:
    """A finished audit and the folder of its bundle."""

    result: AuditResult
    folder: str


def run_audit(
    fleet: Fleet, reporter: Reporter, *, runner: RunnerFactory | None = None, publishing: bool = False
) -> Finished:
    """Audit a fleet and write its bundle.

    Args:
        publishing: `jobs.audit.publish.publish` comes next; until it is done, the same audit is gone on with.

    Raises:
        ClasswiseError: nothing long was started (configuration, sources, preflight, resources), or a worker failed for
            good; finished shards are in the cache and the same call goes on from them.
        Interrupted: a stop was asked for.
        DeadlinePassed: `resources.deadline` did.
    """
    counted = Counted(reporter)
    try:
        limit = stop.within(fleet.config.resources.deadline)
        with limit, logs.about(fleet=fleet.config.fleet), _sources(fleet.config):
            finished = _run(fleet, counted, runner or (lambda: runner_for(fleet.config)))
            if not publishing:
                unfinished.end(finished.folder)
            return finished
    except KeyboardInterrupt:
        found = "a request to stop" + (f"; {counted.kept}" if counted.kept else "")
        raise Interrupted(Problem("audit", "to finish", found, "run the same command to resume")) from None


def _run(fleet: Fleet, reporter: Reporter, factory: RunnerFactory) -> Finished:
    config, started = fleet.config, _now()
    files.require_writable(config.storage, "storage")
    samples = _opened(fleet)
    context = _context(config, samples)
    earlier, aliases = earlier_audits(config), aliases_now(config)
    audit_id = _audit_id(started, digest_of(config.model_dump(mode="json"), samples.digest))
    stop_on_fault = config.on_model_fault == "stop"
    with logs.about(audit_id=audit_id), Session(factory, reporter, stop_on_fault=stop_on_fault) as session:
        logs.event(_log, logging.INFO, "audit begins", models=len(config.models), samples=len(samples))
        specs, plans, facts = inspect_models(fleet, context, session)
        digests = {item.spec.name: item.digest for item in plans}
        expected = _forecast(fleet, plans, context, session)
        session.note(cost_words(expected) if expected.costs else ())
        tables.note_use(tables.folders_of(plans, context), context, audit_id)
        tables.fill_logits(plans, context, session)
        alive = [item for item in plans if session.alive(item.spec.name)]
        calibration = temperature.calibrate(config.temperature, alive, fleet.measures, samples, context, session)
        measures = _calibrated(fleet.measures, calibration)
        plans = [plan.plan_model(item.spec, item.digest, measures, context) for item in alive]
        tables.note_use(session.used | tables.folders_of(plans, context), context, audit_id)
        groups = tuple(groupings(samples, config.groups))
        unmeasured: dict[str, dict[str, str]] = {}
        if config.decide == "early":
            decided = decide_early(fleet, plans, samples, groups, context, session)
            plans, context, unmeasured = decided.plans, decided.context, decided.unmeasured
        else:
            tables.fill_scores(plans, context, session)
        tables.fill_pictures(plans, context, session)
        probes = tables.fill_probes(plans, context, session, config.intervals.delta)
        content = digest_of(config.model_dump(mode="json"), samples.digest, digests, versions.installed())
        begun = unfinished.begin(config.storage, config.fleet, audit_id, content)
        if begun.result is not None:
            return Finished(begun.result, begun.folder)
        audit_id, folder = begun.audit_id, begun.folder
        judge = Judge(fleet, samples, context, groups, earlier, folder, probes, unmeasured, session.speeds)
        models = _judge_all(specs, plans, facts, session, judge)
        known = _sample_facts(redacted(config.samples.uri), samples)
        result = AuditResult(
            audit_id=audit_id,
            fleet=config.fleet,
            started=_iso(started),
            finished=_iso(_now()),
            outcome=worst(model.outcome for model in models),
            samples=known,
            models=models,
            calibration=calibration,
            config=redacted_tree(without_queries(config.model_dump(mode="json"))),
            versions={**versions.installed(), **versions.of_measures(measures)},
            checks={**fleet_checks(models), **mean_corruption_errors(models, measures), ALIASES: aliases},
            notes=(
                *_sample_notes(fleet, known),
                *fleet_notes(models, calibration),
                *corruption_notes(models, measures),
            ),
            compared_with=next((b.result.audit_id for b in earlier.values() if b is not None), ""),
        )
        result = record_comparison(result, folder, config, earlier)
        keep_hardest(result, samples, folder, pictures=config.gallery != "none")
        write_bundle(result, folder)
        _log_end(result, folder, (_now() - started).total_seconds())
    return Finished(result, folder)


def _log_end(result: AuditResult, folder: str, seconds: float) -> None:
    counters.METER.count(counters.AUDITS, outcome=result.outcome.value)
    counters.METER.count(counters.AUDIT_SECONDS, seconds)
    forwards = sum(model.forwards for model in result.models)
    details = {"outcome": result.outcome.value, "seconds": round(seconds, 3), "forwards": forwards, "bundle": folder}
    logs.event(_log, logging.INFO, "audit done", **details)


def validate_sources(fleet: Fleet) -> SampleFacts:
    """Open the samples and fingerprint every model and every file of a measure, without running any.

    Raises:
        ClasswiseError: with the problems of all models together.
    """
    config = fleet.config
    files.filesystem(config.storage)
    with _sources(config):
        samples = _opened(fleet)
        if problems := list(_source_problems(fleet)):
            raise SourceError(problems)
    return _sample_facts(redacted(config.samples.uri), samples)


def forecast_audit(
    fleet: Fleet, reporter: Reporter, *, runner: RunnerFactory | None = None
) -> tuple[Forecast, SampleFacts]:
    """What an audit would cost: looks at every model as an audit does, and measures nothing else.

    Raises:
        ClasswiseError: as `run_audit` before anything long is started.
    """
    config = fleet.config
    factory = runner or (lambda: runner_for(config))
    with logs.about(fleet=config.fleet), _sources(config):
        samples = _opened(fleet)
        context = _context(config, samples)
        with Session(factory, reporter, stop_on_fault=config.on_model_fault == "stop") as session:
            _, plans, _ = inspect_models(fleet, context, session)
            costs = _forecast(fleet, plans, context, session)
    return costs, _sample_facts(redacted(config.samples.uri), samples)


def _forecast(fleet: Fleet, plans: Sequence[plan.ModelPlan], context: plan.Context, session: Session) -> Forecast:
    """Of the models that are in order; a temperature that is still to be chosen costs nothing."""
    alive = [item for item in plans if session.alive(item.spec.name)]
    whole = [plan.plan_model(item.spec, item.digest, fleet.measures, context) for item in alive]
    return forecast(fleet, whole, context, session.speeds)


@contextmanager
def _sources(config: FleetConfig) -> Iterator[None]:
    """Where sources may be opened: MLflow's by the fleet's server, files within the folders it is confined to."""
    with mlflow_sources(config), confined_to(config.confine):
        yield


def _opened(fleet: Fleet) -> Samples:
    """The samples; where they are at fault, or radii against them, the other sources are looked at all the same."""
    config = fleet.config
    try:
        samples = open_samples(config.sample_spec(), allowed_factories=config.factories)
    except ClasswiseError as error:
        raise SourceError([*error.problems, *_source_problems(fleet)]) from error
    if problems := list(radius_problems(fleet, samples.shape)):
        raise ConfigError([*problems, *_source_problems(fleet)])
    return samples


def _source_problems(fleet: Fleet) -> Iterator[Problem]:
    """What keeps models, and files that measures name, from being found: of all of them."""
    yield from unable_kinds(fleet)
    looks: list[Callable[[], str]] = [partial(fingerprint, spec) for spec in fleet.config.model_specs()]
    for look in (*looks, *(measure.content for measure in fleet.measures)):
        try:
            look()
        except ClasswiseError as error:
            yield from error.problems


def _context(config: FleetConfig, samples: Samples) -> plan.Context:
    """What the plans of all models have in common."""
    return plan.Context(
        replace(config.sample_spec(), digest=samples.digest),
        samples.digest,
        len(samples),
        files.join(config.storage, "cache"),
        config.resources.shard,
        config.resources.batch,
        config.seed,
        0 if config.gallery == "none" else config.gallery,
        slices=config.slices,
        early=config.decide == "early",
        classes=len(samples.classes),
        once=None if samples.clusters is None else one_of_each(samples.clusters, config.seed),
    )


# --- stages -----------------------------------------------------------------------------------------------------


def _calibrated(measures: Sequence[Measure], calibration: CalibrationResult) -> tuple[Measure, ...]:
    """The measures with the chosen temperature; a measure with its own temperature keeps it."""
    chosen = calibration.temperature
    return tuple(
        measure.model_copy(update={"temperature": chosen})
        if isinstance(measure, Great) and chosen is not None and "temperature" not in measure.model_fields_set
        else measure
        for measure in measures
    )


def _judge_all(
    specs: Sequence[ModelSpec],
    plans: Sequence[plan.ModelPlan],
    facts: dict[str, dict[str, Any]],
    session: Session,
    judge: Judge,
) -> tuple[ModelResult, ...]:
    """One result a model, in the fleet file's order; a model with faults has outcome error."""
    by_name = {item.spec.name: item for item in plans}
    results = []
    for index, spec in enumerate(specs):
        name = spec.name
        if not session.alive(name):
            reasons = tuple(str(problem) for problem in session.faults[name])
            results.append(ModelResult(shown_spec(spec), "", Outcome.ERROR, reasons))
            continue
        result = tables.judged(by_name[name], index, judge, session)
        forwards, seconds = session.forwards.get(name, 0), session.seconds.get(name, 0.0)
        known = {**facts.get(name, {}), **result.facts}
        notes = tuple(dict.fromkeys((*known.get("notes", ()), *result.notes)))
        results.append(replace(result, facts=known, notes=notes, forwards=forwards, seconds=seconds))
    return tuple(results)


# --- small things -----------------------------------------------------------------------------------------------


def _sample_facts(uri: str, samples: Samples) -> SampleFacts:
    counts = np.bincount(samples.labels, minlength=len(samples.classes))
    return SampleFacts(
        uri=uri,
        digest=samples.digest,
        count=len(samples),
        shape=tuple(samples.shape),
        classes=tuple(samples.classes),
        counts=tuple(int(count) for count in counts),
        skipped=dict(samples.skipped),
        content=samples.content,
        intake=replace(samples.intake, alike=_alike(samples)),
    )


def _alike(samples: Samples) -> int | None:
    """How many samples look like another one; None where there are no images, or too many."""
    pairs = lookalikes(samples.images, len(samples)) if 0 not in samples.shape else None
    return None if pairs is None else len(np.unique(pairs[:, 1]))


def _sample_notes(fleet: Fleet, facts: SampleFacts) -> Iterator[str]:
    yield from intake_notes(facts.intake, facts.classes, facts.counts)
    yield from too_few(fleet, facts)


def _now() -> datetime:
    return datetime.now(UTC)


def _iso(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds")


def _audit_id(started: datetime, digest: str) -> str:
    """Sortable by time and unique: two audits that start in one second differ by process."""
    return f"{started:%Y%m%dT%H%M%SZ}-{digest_of(digest, started.isoformat(), os.getpid())[:8]}"
