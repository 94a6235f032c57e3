"""The command ``classwise doctor``."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jobs.schedules.place import DEFAULT, schedules_uri
from jobs.terminal import console
from jobs.terminal.options import Json
from services.errors import TrackingError
from tracking.mlflow.reach import sqlite_path

if TYPE_CHECKING:
    from jobs.upkeep.findings import CheckContext, Finding

Fleet = Annotated[
    Path | None,
    typer.Argument(metavar="FLEET_FILE", help="Fleet file: look at its storage, cluster and tracking server."),
]


def doctor(
    fleet_file: Fleet = None,
    storage: Annotated[str | None, typer.Option(help="Look at this storage instead of the file's.")] = None,
    address: Annotated[
        str | None, typer.Option(metavar="URL", help="Ray cluster, or its dashboard; default: as for audits.")
    ] = None,
    json: Json = False,
) -> None:
    """Look whether audits can run here. Versions, resources, storage, Ray, MLflow; exits 2 when something is broken."""
    with console.exits(json):
        from jobs.upkeep.doctor import all_checks, examine, worst_level

        findings = examine(all_checks(), context(fleet_file, storage, address))
        level = worst_level(findings)
        if json:
            console.print_json({"level": level, "checks": [asdict(finding) for finding in findings]})
        else:
            for finding in findings:
                console.say(line(finding))
            more = f"; classwise validate {fleet_file} looks at its models and samples" if fleet_file else ""
            console.say("audits cannot run here: fix this first" if level == "fail" else f"audits can run here{more}")
        raise typer.Exit(2 if level == "fail" else 0)


def sources(json: Json = False) -> None:
    """List the sources of models and samples. With what each needs, and whether that is installed and imports."""
    with console.exits(json):
        from jobs.upkeep.sources import installed_sources

        sources = installed_sources()
        if json:
            console.print_json([asdict(source) for source in sources])
            return
        for source in sources:
            console.say(f"{source.kind:<8} {source.scheme:<13} {source.about}")
            if source.state != "ok":
                console.say(f"{'':<8} {'':<13} needs {source.install}: {source.state}")


def context(fleet_file: Path | None, storage: str | None, address: str | None) -> CheckContext:
    """What the checks look at: the fleet file's, the environment's, else the defaults."""
    from jobs.fleetfile.mlflow_uri import tracking_uri
    from jobs.upkeep.findings import CheckContext

    config = None
    if fleet_file is not None:
        from jobs.fleetfile.reading import load_fleet

        config = load_fleet(fleet_file).config
    place = storage or (config.storage if config else "classwise-runs")
    try:
        tracking = tracking_uri(place, config.tracking.uri if config else None)
    except TrackingError:
        tracking = ""
    named = (config.resources.address if config else None) or os.environ.get("RAY_ADDRESS", "")
    kept = schedules_uri()
    kept = kept if kept != DEFAULT or Path(sqlite_path(DEFAULT)).exists() else ""
    local = config is not None and config.resources.runner == "local"
    return CheckContext(config, os.environ, place, tracking, address or ("" if local else named), kept)


def line(finding: Finding) -> str:
    """A finding for people."""
    remedy = f"\n{'':<22}{finding.remedy}" if finding.remedy else ""
    return f"{finding.level:<5} {finding.check:<15} {finding.found}{remedy}"
