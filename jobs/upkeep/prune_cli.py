"""The command ``classwise prune``: shows what goes, asks, and removes it."""

from __future__ import annotations

import re
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from jobs.terminal import console
from jobs.terminal.options import Json
from services.errors import ConfigError, Problem, counted

if TYPE_CHECKING:
    from jobs.upkeep.prune import PrunePlan

SIZES = {
    "": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
ONLY_LEFTOVERS = (
    "no rule (--keep-last, --keep-days, --cache-days, --cache-size, --submission-days): only leftovers go, "
    "temporary files, audits without a bundle and queue entries of nothing that are older than a day"
)
SHOWN = 40
"""Lines of what goes; the rest is counted."""


def prune(
    storage: Annotated[str, typer.Argument(metavar="STORAGE", help="Folder or URL that audits were written to.")],
    keep_last: Annotated[int | None, typer.Option(min=1, help="Newest bundles of each fleet to keep.")] = None,
    keep_days: Annotated[float | None, typer.Option(min=0, help="Keep bundles younger than that.")] = None,
    fleet: Annotated[str, typer.Option(help="Only bundles of this fleet.")] = "",
    cache_days: Annotated[float | None, typer.Option(min=0, help="Remove tables unused for so long.")] = None,
    cache_size: Annotated[
        str, typer.Option(metavar="SIZE", help="Then the least recently used, down to 20GB, 500MB ...")
    ] = "",
    submission_days: Annotated[
        float | None, typer.Option(min=1, help="Remove submissions that ended so long ago and have no bundle any more.")
    ] = None,
    even_unsynced: Annotated[
        bool, typer.Option("--even-unsynced", help="Also bundles that are not in MLflow.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List what would be removed; remove nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json: Json = False,
) -> None:
    """Remove old bundles and unused tables. Never the newest audit of a fleet or an accepted one."""
    with console.exits(json):
        from jobs.upkeep.prune import Rules, carry_out, plan_prune
        from services.storage.files import is_missing

        if is_missing(storage):
            raise ConfigError(Problem("STORAGE", "the folder of a storage", storage, "name where audits are"))
        now = time.time()
        size = parsed_size(cache_size) if cache_size else None
        rules = Rules(keep_last, keep_days, fleet, cache_days, size, even_unsynced, submission_days)
        plan = plan_prune(storage, rules, now)
        removing = bool(plan.remove) and not dry_run
        if removing and not yes:
            _require_terminal(plan)
        if not json:
            if rules == Rules(fleet=fleet, even_unsynced=even_unsynced):
                console.say(ONLY_LEFTOVERS)
            _show(plan)
        if removing and not yes:
            removing = typer.confirm(f"Remove {_sized(len(plan.remove), plan.size)} from {storage}?", err=True)
        gone = carry_out(plan, storage, now) if removing else []
        if json:
            kept = [{"path": path, "why": why} for path, why in plan.kept]
            items = [asdict(item) for item in (plan.remove if dry_run else gone)]
            console.print_json(
                {"dry_run": dry_run, "removed": items, "bytes": sum(i["size"] for i in items), "kept": kept}
            )
        elif removing:
            console.say(f"removed {_sized(len(gone), sum(item.size for item in gone))}")


def parsed_size(text: str) -> int:
    """Bytes of ``20GB``, ``1.5 TiB``, ``1000``.

    Raises:
        ConfigError: it is none.
    """
    match = re.fullmatch(r"\s*(\d{1,18}(?:\.\d{1,18})?)\s*([a-z]*)\s*", text[:100].lower(), re.ASCII)
    if match is None or match[2] not in SIZES:
        raise ConfigError(Problem("--cache-size", "a size such as 20GB, 500MB or 1.5TiB", repr(text)))
    return int(float(match[1]) * SIZES[match[2]])


def shown_size(size: float) -> str:
    """Bytes for people."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def _require_terminal(plan: PrunePlan) -> None:
    if not sys.stdin.isatty():
        actual = f"no terminal to ask about {_sized(len(plan.remove), plan.size)}"
        raise ConfigError(Problem("prune", "--yes", actual, "look at --dry-run first, then give --yes"))


def _show(plan: PrunePlan) -> None:
    for item in plan.remove[:SHOWN]:
        console.say(f"{item.kind:<16} {shown_size(item.size):>10}  {item.path}  ({item.why})")
    if len(plan.remove) > SHOWN:
        console.say(f"and {len(plan.remove) - SHOWN} more")
    for path, why in plan.kept:
        console.say(f"{'kept':<16} {'':>10}  {path}  ({why})")
    console.say(f"in all {_sized(len(plan.remove), plan.size)}")


def _sized(count: int, size: int) -> str:
    return f"{counted(count, 'item')}, {shown_size(size)}"
