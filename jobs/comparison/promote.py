"""Aliases of MLflow's registry that follow the audits: `promote: {alias: champion}`.

An alias is moved to the audited version when the fleet file asks for it, the model's own outcome is pass by at least
one gate, and the alias still points where it did when the audit began. The other models of the fleet do not matter: an
old champion that fails must not hold back the version that is to take its place.
"""

from __future__ import annotations

import re
from typing import Any

from jobs.comparison.accepted import unconfirmed
from jobs.fleetfile.mlflow_uri import tracking_uri
from jobs.fleetfile.promotions import Target, targets
from jobs.fleetfile.tree import FleetConfig
from services.errors import TrackingError
from services.records import AuditResult, ModelResult, Outcome
from tracking.mlflow.promotion import (
    Promotion,
    alias_version,
    move_alias,
    read_promotions,
    tag_version,
    write_promotions,
)

ALIASES = "aliases"
"""Key of an audit's checks: where each alias pointed when it began; None when that could not be found out."""
_RESOLVED = re.compile(r"mlflow:models:/([^/@?]+)/(\d+)(?:\?|$)")


def aliases_now(config: FleetConfig) -> dict[str, str | None]:
    """Where the aliases point that may be moved: a version, "" for an alias that is not there, None for unknown."""
    versions: dict[str, str | None] = {}
    for target in targets(config):
        try:
            uri = tracking_uri(config.storage, config.tracking.uri)
            versions[target.key] = alias_version(uri, target.registered, target.alias)
        except TrackingError:
            versions[target.key] = None
    return versions


def promote(config: FleetConfig, result: AuditResult, folder: str, uri: str) -> tuple[Promotion, ...]:
    """Move what is to be moved, and record in the bundle what was and what was not, and why.

    Raises:
        TrackingError: the registry cannot be reached or refuses.
        StorageError: the record cannot be read (nothing was moved) or written.
    """
    models = {model.spec.name: model for model in result.models}
    known: Any = result.checks.get(ALIASES, {})
    recorded = read_promotions(folder)
    done: list[Promotion] = []
    try:
        for target in targets(config):
            if target.model in models:
                why = unconfirmed(result, folder, target.model)
                done.append(_promoted(target, models[target.model], known.get(target.key), recorded, uri, why))
                done[-1] = tag_version(uri, done[-1], result.audit_id) if done[-1].moved else done[-1]
    finally:  # what was moved before the registry failed, or before a stop, is on record, too
        if done:
            write_promotions((*recorded, *done), folder)
    return tuple(done)


def _promoted(
    target: Target, model: ModelResult, before: str | None, recorded: tuple[Promotion, ...], uri: str, why: str
) -> Promotion:
    resolved = _RESOLVED.match(model.spec.uri)
    plan = Promotion(target.model, target.registered, target.alias, resolved[2] if resolved else "", before or "")
    if model.outcome is not Outcome.PASS:
        return plan.left(f"its outcome is {model.outcome}")
    if not model.gates or not plan.version:
        return plan.left("no gate judged it" if plan.version else "its version is not known")
    if why:
        return plan.left(why)
    if before is None:
        return plan.left("where the alias pointed when the audit began is not known")
    return move_alias(uri, plan, recorded)
