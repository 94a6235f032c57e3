"""The fleet that the server audits for a caller: what the caller may ask, and what the server decides instead."""

from __future__ import annotations

from typing import Any

from jobs.api.settings import Settings
from jobs.fleetfile.reading import Fleet, validate_fleet
from jobs.submission.allow import refusals
from services.errors import NotAllowed, Problem


def admitted(data: dict[str, Any], settings: Settings) -> Fleet:
    """The fleet that the server audits for a caller.

    Raises:
        ConfigError: it is no valid fleet file.
        NotAllowed: it names what the settings do not grant; every such problem together.
    """
    fleet = validate_fleet({**data, "storage": settings.storage}, source="body")
    most, count = settings.limits.models, len(fleet.config.models)
    many = [Problem("models", f"at most {most}", str(count))] if count > most else []
    if problems := [*many, *refusals(fleet, settings.allow)]:
        raise NotAllowed(problems)
    return Fleet(validate_fleet(_overruled(fleet, settings), source="body").config, fleet.measures)


def _overruled(fleet: Fleet, settings: Settings) -> dict[str, Any]:
    """The caller's fleet with the server's decisions, and their resources within the server's limits."""
    data: dict[str, Any] = fleet.config.model_dump(mode="json", exclude_defaults=True)
    wanted, most = fleet.config.resources, settings.resources
    workers = most.workers if wanted.workers == "auto" else min(wanted.workers, most.workers)
    data["resources"] = {
        "runner": most.runner,
        "workers": workers,
        "cpus": min(wanted.cpus, most.cpus),
        "gpus": min(wanted.gpus, most.gpus),
        "batch": min(wanted.batch, most.batch),
        "shard": wanted.shard,
        "deadline": min((each for each in (wanted.deadline, most.deadline) if each is not None), default=None),
    }
    data["tracking"] = settings.tracking.model_dump(mode="json")
    data["storage"] = settings.storage
    data["factories"] = list(settings.allow.factories)
    data["confine"] = list(settings.allow.paths)
    return data
