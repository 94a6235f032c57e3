"""The commands ``classwise schedule ...``."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from zoneinfo import ZoneInfo

import typer

from jobs.schedules.place import schedules_uri
from jobs.submission.cli import Address, Authority, Insecure, client_for, placed, where
from jobs.terminal import console, log_setting
from jobs.terminal.options import FleetStorage, Json

if TYPE_CHECKING:
    from jobs.schedules.schedule import Firing, Overlap, Schedule
    from jobs.schedules.store import Store
    from jobs.submission.client import AuditClient

app = typer.Typer(
    name="schedule",
    help="Audit fleets by the clock. Cron expressions with a time zone, kept in SQLite or PostgreSQL.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_DB = "sqlite:///FILE or postgresql+psycopg://...; default: CLASSWISE_SCHEDULES, else classwise-runs/schedules.db."
_CRON = "minute hour day month weekday; a sixth field before them is the second."
Database = Annotated[str | None, typer.Option("--db", metavar="URI", help=_DB)]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of a schedule.")]


@app.command()
def add(
    fleet_file: Annotated[
        Path, typer.Argument(metavar="FLEET_FILE", help="Fleet file (YAML); its content is kept, as it is now.")
    ],
    cron: Annotated[str, typer.Option(help=_CRON)],
    name: Annotated[str, typer.Option(help="Default: the fleet's name.")] = "",
    zone: Annotated[str, typer.Option(help="Time zone, such as Europe/Berlin.")] = "UTC",
    overlap: Annotated[str, typer.Option(help="While an audit of the fleet runs: skip or queue.")] = "skip",
    storage: FleetStorage = None,
    db: Database = None,
) -> None:
    """Add a schedule."""
    with console.exits(json=False):
        from jobs.fleetfile.reading import load_fleet, overridden
        from jobs.schedules.scheduler import new_schedule, now_utc

        fleet = placed(overridden(load_fleet(fleet_file), storage=storage), None)
        named = name or fleet.config.fleet
        schedule = new_schedule(named, fleet, cron, zone=zone, overlap=_overlap(overlap), now=now_utc())
        _store(db).add(schedule)
        console.say(_line(schedule))


@app.command()
def update(
    name: Name,
    fleet_file: Annotated[
        Path | None, typer.Option("--fleet-file", metavar="FILE", help="Take the fleet from this file, as it is now.")
    ] = None,
    cron: Annotated[str | None, typer.Option(help=_CRON)] = None,
    zone: Annotated[str | None, typer.Option(help="Time zone, such as Europe/Berlin.")] = None,
    overlap: Annotated[str | None, typer.Option(help="While an audit of the fleet runs: skip or queue.")] = None,
    storage: FleetStorage = None,
    db: Database = None,
) -> None:
    """Change what is named. The rest, its firings and whether it is paused stay."""
    with console.exits(json=False):
        from jobs.fleetfile.reading import load_fleet, overridden, validate_fleet
        from jobs.schedules.scheduler import new_schedule, now_utc

        store = _store(db)
        known = store.schedule(name)
        fleet = load_fleet(fleet_file) if fleet_file else validate_fleet(known.content, source=name)
        if fleet_file or storage:
            fleet = placed(overridden(fleet, storage=storage), None)
        changed = new_schedule(
            name,
            fleet,
            cron or known.cron,
            zone=zone or known.zone,
            overlap=_overlap(overlap) if overlap else known.overlap,
            now=now_utc(),
        )
        store.update(replace(changed, paused=True, next_at=None) if known.paused else changed)
        console.say(_line(store.schedule(name)))


@app.command()
def forget(
    days: Annotated[float, typer.Option(min=1, help="Firings that ended longer ago than that.")],
    db: Database = None,
) -> None:
    """Remove old firings. The latest of each schedule stays; audits are `classwise prune`'s."""
    with console.exits(json=False):
        from jobs.schedules.scheduler import now_utc

        gone = _store(db).forget(now_utc() - timedelta(days=days))
        console.say(f"{gone} {'firing' if gone == 1 else 'firings'} removed")


@app.command(name="list")
def list_(db: Database = None, json: Json = False) -> None:
    """List the schedules with their next firings."""
    with console.exits(json):
        schedules = _store(db).schedules()
        if json:
            console.print_json([{**_plain(schedule), "fault": _fault(schedule)} for schedule in schedules])
            return
        for schedule in schedules:
            console.say(_line(schedule))


@app.command()
def history(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Only this schedule.")] = "",
    limit: Annotated[int, typer.Option(min=1, help="How many, the latest first.")] = 20,
    db: Database = None,
    json: Json = False,
) -> None:
    """List firings with their outcomes, the latest last."""
    with console.exits(json):
        firings = _store(db).firings(schedule=name, limit=limit)
        if json:
            console.print_json([_plain(firing) for firing in firings])
            return
        for firing in firings:
            console.say(_firing_line(firing))


@app.command()
def pause(name: Name, db: Database = None) -> None:
    """Let a schedule rest. What comes due meanwhile is not made up for."""
    with console.exits(json=False):
        _store(db).set_paused(name, True, None)
        console.say(f"{name}: paused")


@app.command()
def resume(name: Name, db: Database = None) -> None:
    """Let a paused schedule go on, from now."""
    with console.exits(json=False):
        from jobs.schedules.cron import Cron
        from jobs.schedules.scheduler import now_utc

        store = _store(db)
        known = store.schedule(name)
        store.set_paused(name, False, Cron(known.cron, known.zone).after(now_utc()))
        console.say(_line(store.schedule(name)))


@app.command()
def remove(name: Name, db: Database = None) -> None:
    """Remove a schedule. Its firings stay on record, and an audit that runs goes on."""
    with console.exits(json=False):
        _store(db).remove(name)
        console.say(f"{name}: removed")


@app.command(name="run-now")
def run_now(name: Name, db: Database = None) -> None:
    """Let a schedule fire now. The scheduler starts it, by the schedule's rule of overlap."""
    with console.exits(json=False):
        from jobs.schedules.scheduler import now_utc

        store = _store(db)
        store.fire(store.schedule(name), now_utc())
        console.say(f"{name}: due now; classwise schedule run starts it")


@app.command()
def run(
    address: Address = None,
    db: Database = None,
    poll: Annotated[float, typer.Option(min=0.1, help="Seconds between two queries of the database.")] = 2.0,
    ca: Authority = None,
    insecure: Insecure = False,
) -> None:
    """Run the scheduler until it is stopped. Audits that run go on, and the next scheduler follows them."""
    with console.exits(json=False):
        from jobs.schedules.scheduler import Scheduler

        @cache
        def clients(storage: str) -> AuditClient:
            return client_for(where(address), storage, ca, insecure)

        log_setting.start_server_logging()
        log = logging.getLogger("classwise.scheduler")
        scheduler = Scheduler(_store(db), clients, note=lambda text: log.info("%s", text))
        with suppress(KeyboardInterrupt):  # how a scheduler is stopped
            scheduler.run(poll=poll)


@app.command()
def health(
    seconds: Annotated[float, typer.Option(min=1, help="Seconds for which a heartbeat counts.")] = 300.0,
    anywhere: Annotated[bool, typer.Option("--anywhere", help="Also those of other hosts.")] = False,
    db: Database = None,
) -> None:
    """Probe the scheduler of this host. Exits 0 when it is at work, else 2; for Kubernetes and systemd."""
    with console.exits(json=False):
        from jobs.schedules.scheduler import now_utc, require_alive

        at = require_alive(_store(db), now_utc(), seconds=seconds, anywhere=anywhere)
        console.say(f"at work at {at:%Y-%m-%dT%H:%M:%SZ}")


def _overlap(text: str) -> Overlap:
    from jobs.schedules.schedule import Overlap
    from services.errors import ConfigError, Problem

    if text not in set(Overlap):
        raise ConfigError(Problem("--overlap", "skip or queue", repr(text)))
    return Overlap(text)


def _store(db: str | None) -> Store:
    from jobs.schedules.store import Store

    return Store(schedules_uri(db))


def _line(schedule: Schedule) -> str:
    shown = f"FAULT: {fault}" if (fault := _fault(schedule)) else _next(schedule)
    return f"{schedule.name:<24} {schedule.fleet:<20} {schedule.cron} {schedule.zone}, {schedule.overlap}, {shown}"


def _next(schedule: Schedule) -> str:
    local = schedule.next_at.astimezone(ZoneInfo(schedule.zone)) if schedule.next_at is not None else None
    return "paused" if schedule.paused else f"next {local:%Y-%m-%d %H:%M:%S %Z}" if local else "never again"


def _fault(schedule: Schedule) -> str:
    """The recorded fault, or one that shows here before a scheduler has seen it."""
    from jobs.schedules.cron import Cron
    from services.errors import ConfigError, one_line

    try:
        Cron(schedule.cron, schedule.zone)
    except ConfigError as error:
        return schedule.fault or one_line(error, 500)
    return schedule.fault


def _firing_line(firing: Firing) -> str:
    state = f"{firing.state}, {firing.outcome}" if firing.outcome is not None else str(firing.state)
    parts = [f"{firing.due_at:%Y-%m-%dT%H:%M:%SZ}", f"{firing.schedule:<24}", f"{state:<18}", firing.submission]
    ending = [text for text in (firing.bundle, firing.message.partition("\n")[0]) if text]
    return "  ".join([*parts, *ending]).rstrip()


def _plain(record: Schedule | Firing) -> dict[str, Any]:
    return {
        key: value.isoformat() if isinstance(value, datetime) else value
        for key, value in asdict(record).items()
        if key != "content"
    }
