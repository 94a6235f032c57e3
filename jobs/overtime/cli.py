"""The commands ``accept`` and ``compare``."""

from __future__ import annotations

import getpass
import os
from typing import TYPE_CHECKING, Annotated

import typer

from jobs import console
from jobs.options import Json

if TYPE_CHECKING:
    from jobs.overtime.compare import Kept

UNDECIDED = 3
_PLACE = "Folder of a bundle, or an audit's id with --fleet."
Place = Annotated[str, typer.Argument(metavar="AUDIT", help=_PLACE)]
Fleet = Annotated[str, typer.Option(help="The fleet, for audits that are named by their id.")]
Home = Annotated[str, typer.Option(help="The storage, for audits that are named by their id.")]


def accept(
    audit: Place,
    why: Annotated[str, typer.Option(help="Kept with it.")] = "",
    even_though_failed: Annotated[
        bool, typer.Option("--even-though-failed", help="Accept it though its outcome is fail or undecided.")
    ] = False,
    fleet: Fleet = "",
    storage: Home = "classwise-runs",
    json: Json = False,
) -> None:
    """Make an audit the accepted baseline of its fleet: what later audits are compared with."""
    with console.exits(json):
        from dataclasses import asdict

        from jobs.overtime.accepted import accept as make
        from jobs.overtime.accepted import bundle_named

        folder = bundle_named(audit, storage, fleet)
        made = make(folder, by=_user(), why=why, even_though_failed=even_though_failed)
        if json:
            console.print_json(asdict(made))
        else:
            console.say(f"accepted {made.audit_id} ({made.outcome}), by {made.by} at {made.at}")


def compare(
    then: Annotated[str, typer.Argument(metavar="[THEN]", help=f"{_PLACE} Left out: the accepted audit.")],
    now: Annotated[str, typer.Argument(metavar="NOW", help=_PLACE)] = "",
    fleet: Fleet = "",
    storage: Home = "classwise-runs",
    json: Json = False,
) -> None:
    """Compare two audits of a fleet on the samples of both; writes nothing.

    Exit codes: 0 nothing is worse, 1 something is, 3 nothing could be compared, 2 error.
    """
    with console.exits(json):
        from jobs.overtime.compare import compare as run
        from tracking.comparison import plain
        from tracking.comparison_words import comparison_words

        kept = _kept(now or then, storage, fleet)
        found = run(_kept(then, storage, fleet) if now else _accepted(kept), kept)
        if json:
            console.print_json(plain(found))
        else:
            for line in comparison_words(found, shown=50):
                console.say(line)
        raise typer.Exit(1 if found.worse else 0 if found.comparisons else UNDECIDED)


def add_to(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command()(accept)
    app.command()(compare)


def _kept(text: str, base: str, fleet: str) -> Kept:
    from jobs.overtime.accepted import bundle_named
    from jobs.overtime.compare import Kept
    from tracking.bundle import read_bundle

    folder = bundle_named(text, base, fleet)
    return Kept(read_bundle(folder), folder)


def _accepted(now: Kept) -> Kept:
    """The accepted audit beside that one."""
    from jobs.overtime.accepted import read_accepted
    from services.errors import ConfigError, Problem
    from tracking.names import file_name

    home = now.folder.rpartition("/")[0]
    known = read_accepted(home)
    if known is None:
        remedy = "accept one with classwise accept, or name two audits"
        raise ConfigError(Problem(now.result.fleet, "a fleet with an accepted audit", "none", remedy))
    return _kept(f"{home}/{file_name(known.audit_id)}", "", "")


def _user() -> str:
    """Who runs this; a container may have no name for its user."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.getuid()}"
