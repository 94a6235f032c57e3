"""The commands for submitted audits: submit, status, logs, stop, result, list."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jobs.audit import output
from jobs.terminal import console
from jobs.terminal.options import FleetStorage, Json, pairs
from services.errors import ConfigError, Interrupted, Problem

if TYPE_CHECKING:
    from jobs.fleetfile.reading import Fleet
    from jobs.submission.client import AuditClient, AuditStatus

_ADDRESS = "Ray's dashboard, http://HEAD:8265, or local; default: RAY_API_SERVER_ADDRESS, else local."
_STORAGE = "Where submissions lie: needed for local, and for audits that the cluster forgot."
_CA = "Trust these certificates of the cluster's (a file or folder), for https."

Address = Annotated[str | None, typer.Option(metavar="URL", help=_ADDRESS)]
StorageOption = Annotated[str, typer.Option(metavar="URL", help=_STORAGE)]
Authority = Annotated[str | None, typer.Option("--ca", metavar="FILE", help=_CA)]
Insecure = Annotated[bool, typer.Option("--insecure", help="Do not check the cluster's TLS certificate.")]
Audit = Annotated[str, typer.Argument(metavar="ID", help="Id of a submitted audit: FLEET-DIGEST.")]
Wait = Annotated[bool, typer.Option("--wait", help="Wait for the end; Ctrl-C stops waiting, not the audit.")]


def submit(
    fleet_file: Annotated[Path, typer.Argument(metavar="FLEET_FILE", help="Fleet file (YAML).")],
    address: Address = None,
    key: Annotated[str, typer.Option(help="Distinguishes audits of one fleet file: a date, a commit.")] = "",
    storage: FleetStorage = None,
    env: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Sets a variable in the audit's environment.")
    ] = None,
    python: Annotated[str, typer.Option(help="The interpreter on the cluster's head node.")] = "python",
    ca: Authority = None,
    insecure: Insecure = False,
    wait: Wait = False,
    json: Json = False,
) -> None:
    """Submit an audit to a Ray cluster. The same fleet file and key is one audit."""
    with console.exits(json):
        from jobs.fleetfile.reading import load_fleet, overridden

        fleet = placed(overridden(load_fleet(fleet_file), storage=storage), address)
        environment = dict(pairs(env or [], "--env", "NAME=VALUE"))
        client = client_for(address, fleet.config.storage, ca, insecure, python=python, environment=environment)
        status = client.submit(fleet, key)
        _finish(_waited(client, status.id) if wait else status, json)


def status(
    audit: Audit,
    address: Address = None,
    storage: StorageOption = "",
    ca: Authority = None,
    insecure: Insecure = False,
    json: Json = False,
) -> None:
    """Say how a submitted audit stands. Exits with its outcome's code, 4 when it crashed, 0 while it runs."""
    with console.exits(json):
        _finish(client_for(address, storage, ca, insecure).status(audit), json)


def logs(
    audit: Audit,
    address: Address = None,
    storage: StorageOption = "",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the audit ends.")] = False,
    ca: Authority = None,
    insecure: Insecure = False,
) -> None:
    """Print what a submitted audit prints. Ctrl-C stops the printing, not the audit."""
    with console.exits(json=False), _watching(audit):
        client = client_for(address, storage, ca, insecure)
        if not follow:
            console.say(client.logs(audit).rstrip("\n"))
            return
        rest = ""
        for part in client.follow(audit):
            lines, end, rest = (rest + part).rpartition("\n")
            if end:
                console.say(lines)
        if rest:
            console.say(rest)


def stop(
    audit: Audit,
    address: Address = None,
    storage: StorageOption = "",
    ca: Authority = None,
    insecure: Insecure = False,
    json: Json = False,
) -> None:
    """Stop a submitted audit. Its finished shards are kept, and submitting it again goes on from them."""
    with console.exits(json):
        stopped = client_for(address, storage, ca, insecure).cancel(audit)
        _say(stopped, json)


def result(
    audit: Audit,
    address: Address = None,
    storage: StorageOption = "",
    ca: Authority = None,
    insecure: Insecure = False,
    wait: Wait = False,
    json: Json = False,
) -> None:
    """Print a submitted audit's verdict. Exits with its outcome's code, 4 when it crashed."""
    with console.exits(json):
        from jobs.audit.publish import read_published

        client = client_for(address, storage, ca, insecure)
        if wait:
            _waited(client, audit)
        output.finish(read_published(client.finished(audit).bundle), json)


def list_(
    address: Address = None,
    storage: StorageOption = "",
    fleet: Annotated[str, typer.Option(help="Only audits of this fleet.")] = "",
    ca: Authority = None,
    insecure: Insecure = False,
    json: Json = False,
) -> None:
    """List submitted audits, the latest first."""
    with console.exits(json):
        statuses = client_for(address, storage, ca, insecure).list(fleet)
        if json:
            console.print_json([asdict(status) for status in statuses])
            return
        for status in statuses:
            console.say(_line(status))


COMMANDS: dict[str, Callable[..., None]] = {
    "submit": submit,
    "status": status,
    "logs": logs,
    "stop": stop,
    "result": result,
    "list": list_,
}


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    for name, command in COMMANDS.items():
        app.command(name)(command)


def client_for(address: str | None, storage: str, ca: str | None, insecure: bool, **more: Any) -> AuditClient:
    """The client that these options mean."""
    from jobs.submission.client import AuditClient, backend_for
    from jobs.submission.ray_jobs import token_of

    if ca and insecure:
        raise ConfigError(Problem("--insecure", "one of --ca and --insecure", "both"))
    environment = more.pop("environment", None)
    verify: bool | str = ca or not insecure
    target = where(address)
    backend = backend_for(target, storage=storage, token=token_of(os.environ), verify=verify, **more)
    return AuditClient(backend, storage=storage or _home(target), environment=environment)


def placed(fleet: Fleet, address: str | None) -> Fleet:
    """The fleet; its relative storage made a folder below the current one, with a note, when this machine audits it."""
    from jobs.fleetfile.reading import overridden

    base = fleet.config.storage
    if where(address) != "local" or "://" in base or Path(base).is_absolute():
        return fleet
    folder = str(Path(base).expanduser().absolute())
    console.note(f"storage {base} is the folder {folder}")
    return overridden(fleet, storage=folder)


def where(address: str | None) -> str:
    """Who runs audits: the option, else Ray's variable, else this machine."""
    return address or os.environ.get("RAY_API_SERVER_ADDRESS") or "local"


def _home(target: str) -> str:
    return "classwise-runs" if target == "local" else ""


def _waited(client: AuditClient, audit: str) -> AuditStatus:
    with _watching(audit):
        return client.wait(audit, on_change=lambda status: console.note(_line(status)))


@contextmanager
def _watching(audit: str) -> Iterator[None]:
    """Ctrl-C ends the watching, and says that it ended nothing else."""
    try:
        yield
    except KeyboardInterrupt:
        remedy = f"the audit goes on; classwise stop {audit} ends it"
        raise Interrupted(Problem(audit, "to be watched to its end", "a request to stop watching", remedy)) from None


def _finish(status: AuditStatus, json: bool) -> None:
    _say(status, json)
    raise typer.Exit(status.exit_code)


def _say(status: AuditStatus, json: bool) -> None:
    if json:
        console.print_json(asdict(status))
        return
    console.say(_line(status))
    for name, value in {"bundle": status.bundle, "MLflow": status.run_url or status.run_id}.items():
        if value:
            console.say(f"{name:<8} {value}")
    for problem in status.problems:
        console.say(f"  - {problem}")
    if status.message:
        console.say(f"  - {status.message}")


def _line(status: AuditStatus) -> str:
    shown = f"{status.state}, {status.outcome}" if status.outcome is not None else str(status.state)
    return "  ".join(part for part in (status.id, f"{shown:<20}", status.started, status.key) if part).rstrip()
