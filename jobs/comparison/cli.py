"""The commands ``accept``, ``compare``, ``notify`` and ``promote``."""

from __future__ import annotations

import getpass
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from jobs.terminal import console
from jobs.terminal.options import Json

if TYPE_CHECKING:
    from jobs.comparison.compare import Kept
    from jobs.fleetfile.tree import FleetConfig
    from services.records import AuditResult

UNDECIDED = 3
PAIR = "[EARLIER] LATER"
_PLACE = "Folder of a bundle, or an audit's id with --fleet."
Place = Annotated[str, typer.Argument(metavar="AUDIT", help=_PLACE)]
Fleet = Annotated[str, typer.Option(help="The fleet, for audits that are named by their id.")]
Home = Annotated[str, typer.Option(help="The storage, for audits that are named by their id.")]


def accept(
    audit: Place,
    why: Annotated[str, typer.Option(help="The reason, kept in the record.")] = "",
    even_though_failed: Annotated[
        bool, typer.Option("--even-though-failed", help="Accept it although its outcome is fail or undecided.")
    ] = False,
    fleet: Fleet = "",
    storage: Home = "classwise-runs",
    json: Json = False,
) -> None:
    """Make an audit the accepted one. Later audits of its fleet are compared with it."""
    with console.exits(json):
        from dataclasses import asdict

        from jobs.comparison.accepted import accept as make
        from jobs.comparison.accepted import bundle_named

        folder = bundle_named(audit, storage, fleet)
        made = make(folder, by=_user(), why=why, even_though_failed=even_though_failed)
        if json:
            console.print_json(asdict(made))
        else:
            console.say(f"accepted {made.audit_id} ({made.outcome}), by {made.by} at {made.at}")


def compare(
    audits: Annotated[
        list[str] | None, typer.Argument(metavar=PAIR, help=f"{_PLACE} Without EARLIER: the accepted audit.")
    ] = None,
    fleet: Fleet = "",
    storage: Home = "classwise-runs",
    json: Json = False,
) -> None:
    """Compare two audits of a fleet. On the samples of both; writes nothing.

    Exit codes: 0 nothing is worse, 1 something is, 3 nothing could be compared, 2 error.
    """
    with console.exits(json):
        from jobs.comparison.compare import compare as run
        from tracking.bundle.comparison import plain
        from tracking.report.comparison_words import comparison_words

        *earlier, now = _pair(audits or [])
        kept = _kept(now, storage, fleet)
        accepted = _kept(earlier[0], storage, fleet) if earlier else _accepted(kept)
        if accepted.result.audit_id == kept.result.audit_id:
            which = "" if earlier else ": it is the accepted one"
            console.note(f"{kept.result.audit_id} is compared with itself{which}")
        comparison = run(accepted, kept)
        if json:
            console.print_json(plain(comparison))
        else:
            for line in comparison_words(comparison, shown=50, earlier="audit" if earlier else "the accepted audit"):
                console.say(line)
        raise typer.Exit(1 if comparison.worse else 0 if comparison.comparisons else UNDECIDED)


def notify(
    bundle: Annotated[str, typer.Argument(metavar="BUNDLE", help="Folder or URL of a bundle.")],
    fleet_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Take the webhooks from this fleet file, not from the bundle.")
    ] = None,
    everyone: Annotated[bool, typer.Option("--all", help="Also those that were notified before.")] = False,
    json: Json = False,
) -> None:
    """Notify webhooks not reached before. Exits 2 when one still is not."""
    with console.exits(json):
        from dataclasses import asdict

        from jobs.comparison.after import delivery_line
        from jobs.fleetfile.reading import load_fleet
        from jobs.notify.notify import notify as send
        from services.errors import Problem, ServiceError
        from tracking.bundle.bundle import read_bundle

        folder = bundle.rstrip("/")
        result = read_bundle(folder)
        hooks = (load_fleet(fleet_file).config if fleet_file is not None else _config(result)).notify
        done = send(hooks, result, folder, only_failed=not everyone)
        lost = [sent for sent in done if not sent.delivered]
        if json:
            console.print_json([asdict(sent) for sent in done])
            raise typer.Exit(ServiceError.exit_code if lost else 0)
        for line in [delivery_line(sent) for sent in done if sent.delivered] or ["no webhook was notified"]:
            console.say(line)
        if lost:
            raise ServiceError([Problem(sent.hook, "a receiver that takes it", sent.error) for sent in lost])


def promote(
    bundle: Annotated[str, typer.Argument(metavar="BUNDLE", help="Folder or URL of a bundle.")],
    tracking_uri: Annotated[str | None, typer.Option(help="MLflow server; default: that of the audit.")] = None,
) -> None:
    """Move aliases that were not moved. Those of the audit's fleet file, when MLflow could not be reached then."""
    with console.exits(json=False):
        from jobs.comparison.promote import promote as move
        from jobs.fleetfile.mlflow_uri import tracking_uri as uri_of
        from tracking.bundle.bundle import read_bundle

        folder = bundle.rstrip("/")
        result = read_bundle(folder)
        config = _config(result)
        done = move(config, result, folder, uri_of(config.storage, tracking_uri or config.tracking.uri))
        for line in [str(promotion) for promotion in done] or ["the fleet file asks for no promotion"]:
            console.say(line)


def add_to(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command()(accept)
    app.command(cls=_Pair)(compare)
    app.command()(notify)
    app.command()(promote)


class _Pair(TyperCommand):
    """A command on one audit or two: Click puts arguments that may be left out last, and here it is the first."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """What follows the command's name in its usage."""
        return ["[OPTIONS]", PAIR]


def _pair(audits: list[str]) -> list[str]:
    from services.errors import ConfigError, Problem

    if not 1 <= len(audits) <= 2:
        expected = f"one audit, or two: classwise compare {PAIR}"
        remedy = "name LATER to compare it with the accepted audit, EARLIER and LATER to compare any two"
        raise ConfigError(Problem("compare", expected, f"{len(audits) or 'none'}", remedy))
    return audits


def _kept(text: str, base: str, fleet: str) -> Kept:
    from jobs.comparison.accepted import bundle_named
    from jobs.comparison.compare import Kept
    from tracking.bundle.bundle import read_bundle

    folder = bundle_named(text, base, fleet)
    return Kept(read_bundle(folder), folder)


def _accepted(now: Kept) -> Kept:
    """The accepted audit beside that one."""
    from jobs.comparison.accepted import read_accepted
    from services.errors import ConfigError, Problem
    from tracking.names import file_name

    home = now.folder.rpartition("/")[0]
    known = read_accepted(home)
    if known is None:
        remedy = "accept one with classwise accept, or name two audits"
        raise ConfigError(Problem(now.result.fleet, "a fleet with an accepted audit", "none", remedy))
    return _kept(f"{home}/{file_name(known.audit_id)}", "", "")


def _config(result: AuditResult) -> FleetConfig:
    """The fleet file of an audit, as its bundle keeps it."""
    from jobs.fleetfile.reading import validate_fleet

    return validate_fleet(result.config, source="bundle").config


def _user() -> str:
    """Who runs this; a container may have no name for its user."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.getuid()}"
