"""``deploy/local-stack.sh up|down|status|kill PART``."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import typer
from filelock import FileLock, Timeout

from deploy.stack import parts, processes
from deploy.stack.layout import Layout, existing, made, require_ours, unlinked
from deploy.stack.processes import Part
from services.errors import ClasswiseError, ConfigError, Problem, ServiceError


def main() -> int:
    """Parse, do one thing, and return the exit code."""
    options = _parser().parse_args()
    folder = Path(options.dir).resolve()
    try:
        if options.action == "up":
            require_ours(folder)
            folder.mkdir(parents=True, exist_ok=True)
        else:
            _known(folder)
        with FileLock(folder / "lock", timeout=0):
            return _ACTIONS[options.action](folder, options)
    except Timeout:
        busy = Problem("--dir", "one command at a time on a stack", "another that runs", "wait for it")
        typer.echo(f"local-stack: {busy}", err=True)
    except OSError as error:
        typer.echo(f"local-stack: {folder}: {error}", err=True)
    except ClasswiseError as error:
        for problem in error.problems:
            typer.echo(f"local-stack: {problem}", err=True)
    return 2


def up(folder: Path, options: argparse.Namespace) -> int:
    """Start what does not run, and say where it is."""
    layout = made(folder, workers=options.workers, cpus=options.cpus, audits=options.audits)
    parts.write_client_files(layout)
    waves = parts.waves(layout)
    _stop_orphans(layout, [part for wave in waves for part in wave])
    for wave in waves:
        due = [part for part in wave if processes.running(layout, part.name) is None]
        began = time.monotonic()
        for part in due:
            typer.echo(f"{part.name:<10} starts")
        started = [(part, processes.start(layout, part)) for part in due]
        for part, process in started:
            processes.wait_ready(layout, part, process)
            typer.echo(f"{part.name:<10} serves after {time.monotonic() - began:.0f} s")
    typer.echo("")
    _require_all(layout)
    return status(folder, options)


def down(folder: Path, options: argparse.Namespace) -> int:
    """End everything; what is stored stays."""
    layout = _known(folder)
    for wave in reversed(parts.waves(layout)):
        for part in reversed(wave):
            if processes.stop(layout, part):
                typer.echo(f"{part.name:<10} ended")
    unlinked(layout)
    return 0


def status(folder: Path, options: argparse.Namespace) -> int:
    """Say what runs and where it is; 1 when something does not run."""
    layout = _known(folder)
    whole = True
    shown = {"mlflow": "mlflow", "head": "dashboard", "api": "api"}
    for part in (part for wave in parts.waves(layout) for part in wave):
        pid = processes.running(layout, part.name)
        whole = whole and pid is not None
        address = layout.url(shown[part.name]) if part.name in shown else ""
        typer.echo(f"{part.name:<10} {'process ' + str(pid) if pid else 'does not run':<16} {address}".rstrip())
    typer.echo(f"\nto talk to it: . {layout['env']}\ntokens and passwords: {layout['secrets']}\nlogs: {layout['logs']}")
    return 0 if whole else 1


def kill(folder: Path, options: argparse.Namespace) -> int:
    """End one part as a power cut does; up starts it again."""
    layout = _known(folder)
    names = [part.name for wave in parts.waves(layout) for part in wave]
    if options.part not in names:
        raise ConfigError(Problem("kill", f"one of {', '.join(names)}", repr(options.part)))
    typer.echo(f"{options.part}: " + ("killed" if processes.kill(layout, options.part) else "did not run"))
    return 0


_ACTIONS = {"up": up, "down": down, "status": status, "kill": kill}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("local-stack.sh", description="The whole service on this machine.")
    actions = parser.add_subparsers(dest="action", required=True)
    for name, action in _ACTIONS.items():
        each = actions.add_parser(name, help=(action.__doc__ or "").strip())
        each.add_argument("--dir", default="classwise-stack", help="folder of everything; default: classwise-stack")
        if name == "up":
            each.add_argument("--workers", type=_count, default=2, help="worker nodes of a new stack; default: 2")
            each.add_argument("--cpus", type=_count, default=1, help="cores of each; default: 1")
            each.add_argument("--audits", type=_count, default=2, help="audits that run at the same time; default: 2")
        if name == "kill":
            each.add_argument("part", help="head, worker-1, api ...")
    return parser


def _count(text: str) -> int:
    value = int(text)
    if not 1 <= value <= 64:
        raise argparse.ArgumentTypeError("expected 1 to 64")
    return value


def _known(folder: Path) -> Layout:
    layout = existing(folder)
    if layout is None:
        remedy = "start one with local-stack.sh up, or name its folder with --dir"
        raise ConfigError(Problem("--dir", "the folder of a stack", f"none in {folder}", remedy))
    return layout


def _stop_orphans(layout: Layout, all_parts: list[Part]) -> None:
    """End what is left of parts that ended, and what cannot go on without them: Ray starts no head beside its nodes."""
    gone = {part.name for part in all_parts if processes.running(layout, part.name) is None}
    for part in all_parts:
        if part.name in gone or gone & set(part.needs):
            processes.stop(layout, part)


def _require_all(layout: Layout) -> None:
    for part in (part for wave in parts.waves(layout) for part in wave):
        if processes.running(layout, part.name) is None:
            remedy = f"look at its log, {processes.log_of(layout, part.name)}"
            raise ServiceError(Problem(part.name, "to go on running", "it ended", remedy))


if __name__ == "__main__":
    sys.exit(main())
