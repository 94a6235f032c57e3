"""The fleet that the server audits for a caller: what the caller may ask, and what the server decides instead."""

from __future__ import annotations

from typing import Any

from jobs.api.settings import Settings
from jobs.dashboard.bundles import fleet_of
from jobs.fleetfile.reading import Fleet, validate_fleet
from jobs.submission.allow import AllowConfig, refusals
from services.errors import NotAllowed, Problem
from tracking.names import file_name


def admitted(
    data: dict[str, Any], settings: Settings, allow: AllowConfig | None = None, *, of_all: bool = True
) -> Fleet:
    """The fleet that the server audits for a caller.

    Args:
        allow: what this caller may name; None: what the settings grant to all.
        of_all: the caller sees all fleets: a verdict of theirs may stand at any version of the registry.

    Raises:
        ConfigError: it is no valid fleet file.
        NotAllowed: it names what the settings do not grant; every such problem together.
    """
    granted = allow or settings.allow
    fleet = validate_fleet({**data, "storage": settings.storage}, source="body")
    most, count = settings.limits.models, len(fleet.config.models)
    many = [Problem("models", f"at most {most}", str(count))] if count > most else []
    if problems := [*many, *_unseen(fleet.config.fleet, settings), *refusals(fleet, granted)]:
        raise NotAllowed(problems)
    decided = _overruled(fleet, settings, granted)
    decided["tracking"]["tag_registry"] &= of_all
    return Fleet(validate_fleet(decided, source="body").config, fleet.measures)


def _unseen(name: str, settings: Settings) -> list[Problem]:
    """Why callers who see some fleets could not be told by its folder whether this one is theirs."""
    people = settings.identity.callers if settings.identity is not None else ()
    some = any(not each.caller("").sees_all for each in (*settings.tokens, *people))
    if not some or fleet_of(file_name(name)) == name:
        return []
    expected = "a name of at most 60 characters, 51 with capital letters, without a dot, dash or underscore at its end"
    return [Problem("fleet", expected, repr(name), "its folder bears another name, which may look like one of others")]


def _overruled(fleet: Fleet, settings: Settings, allow: AllowConfig) -> dict[str, Any]:
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
    data["factories"] = list(allow.factories)
    data["confine"] = list(allow.paths)
    return data
