"""Before anything long is started: each model identified, its budget compared with the audit, and looked at."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from jobs.audit import plan
from jobs.audit.forecast.demands import budgets, over_budget, unable
from jobs.audit.identity import fixed_version, with_published
from jobs.audit.session import Session
from jobs.audit.speeds import SPEED, Speed
from jobs.fleetfile.reading import Fleet
from jobs.fleetfile.tree import FleetConfig
from services.errors import ClasswiseError, ConfigError, PreflightError, Problem, SourceError
from services.loading.models.source import fingerprint
from services.measures.measure import Measure
from services.records import ModelSpec
from services.storage import files, plainjson


def inspect_models(
    fleet: Fleet, context: plan.Context, session: Session
) -> tuple[list[ModelSpec], list[plan.ModelPlan], dict[str, dict[str, Any]]]:
    """Specifications as they are loaded, plans without measures, and facts of preflight of the models in order."""
    specs, digests = _identify(fleet.config, session)
    plans = [plan.plan_model(spec, digests[spec.name], (), context) for spec in specs if session.alive(spec.name)]
    for name, most, budget in budgets(plans, fleet, context):
        session.note([f"{name}: at most {most:,} of the {budget:,} images of its budget"])
        if most > budget:
            session.fault(name, [over_budget(name, most, budget)])
    session.check(ConfigError)
    alive = [item for item in plans if session.alive(item.spec.name)]
    return specs, plans, _preflight(alive, fleet.measures, context, session)


def _identify(config: FleetConfig, session: Session) -> tuple[list[ModelSpec], dict[str, str]]:
    """Resolve aliases once, fill in published figures, and fingerprint."""
    resolved, digests = [], {}
    for spec in config.model_specs():
        try:
            known = with_published(fixed_version(spec), config.samples.uri)
            digests[spec.name] = fingerprint(known)
            resolved.append(known)
        except ClasswiseError as error:
            session.fault(spec.name, error.problems)
            resolved.append(spec)
    session.check(SourceError)
    return resolved, digests


def _preflight(
    plans: Sequence[plan.ModelPlan], measures: Sequence[Measure], context: plan.Context, session: Session
) -> dict[str, dict[str, Any]]:
    """Facts by model name; a model that passed before with the same content is not run again."""
    facts: dict[str, dict[str, Any]] = {}
    paths = {item.spec.name: plan.preflight_path(item.spec, item.digest, context) for item in plans}
    for item in plans:
        if (known := _kept_facts(paths[item.spec.name])) is not None:
            session.speeds[item.spec.name] = Speed.of(known.pop(SPEED, None))
            facts[item.spec.name] = known
    tasks = [plan.preflight_task(item, context) for item in plans if item.spec.name not in facts]
    for receipt in session.run("preflight", tasks):
        name = receipt.task.model.name
        problems = [Problem(*problem) for problem in receipt.facts.pop("problems")]
        if problems:
            session.fault(name, problems)
        else:
            files.write_bytes(paths[name], json.dumps(receipt.facts, allow_nan=False).encode())
            session.speeds[name] = Speed.of(receipt.facts.pop(SPEED, None))
            facts[name] = receipt.facts
    for name, fact in facts.items():
        if problems := [problem for measure in measures for problem in unable(name, fact, measure)]:
            session.fault(name, problems)
    session.check(PreflightError)
    return facts


def _kept_facts(path: str) -> dict[str, Any] | None:
    """Facts of an earlier preflight; a damaged file counts as none, for the probe costs one batch."""
    if not files.exists(path):
        return None
    try:
        known = plainjson.parsed(files.read_bytes(path))
    except ValueError:
        return None
    return known if isinstance(known, dict) else None
