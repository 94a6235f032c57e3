"""What the command line prints, and what it exits with."""

from __future__ import annotations

import json as jsonlib
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

import typer

from services.errors import ClasswiseError
from services.records import SampleFacts

if TYPE_CHECKING:
    from jobs.fleetfile import Fleet
    from jobs.progress import Quiet, Terminal
    from jobs.publish import Published


def say(text: str) -> None:
    """Print a line on standard output."""
    typer.echo(text)


def print_json(value: Any) -> None:
    """Print JSON, without NaN, keys in their order."""
    typer.echo(jsonlib.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


@contextmanager
def exits(json: bool) -> Iterator[None]:
    """Turn errors into exit codes; a user's mistake prints its problems and no traceback.

    SIGTERM, which a scheduler or Ray sends, ends an audit as Ctrl-C does: cleanly, with finished shards kept.
    """
    previous = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    except ClasswiseError as error:
        _print_error(error, json)
        raise typer.Exit(error.exit_code) from None
    except KeyboardInterrupt:
        typer.echo("stopped", err=True)
        raise typer.Exit(130) from None
    finally:
        signal.signal(signal.SIGTERM, previous)


@contextmanager
def reporter(quiet: bool) -> Iterator[Terminal | Quiet]:
    """Progress on standard error: a live bar on a terminal, lines on a pipe, or nothing."""
    from rich.console import Console

    from jobs.progress import Quiet, Terminal

    if quiet:
        yield Quiet()
        return
    with Terminal(Console(stderr=True)) as terminal:
        yield terminal


def finish(published: Published, json: bool) -> None:
    """Print the verdict and exit with the outcome's code."""
    result = published.result
    if json:
        from jobs.publish import as_json

        print_json(as_json(published))
    else:
        _print_result(published)
    raise typer.Exit(result.outcome.exit_code)


def valid(fleet: Fleet, check: Callable[[Fleet], SampleFacts], json: bool) -> None:
    """Check the sources and say what the fleet is."""
    facts = check(fleet)
    series = sorted(fleet.series())
    if json:
        shape = list(facts.shape)
        models = [model.name for model in fleet.config.models]
        print_json({"valid": True, "models": models, "samples": facts.count, "shape": shape, "series": series})
        return
    models_text = f"{len(fleet.config.models)} models, {facts.count} samples of {len(facts.classes)} classes"
    say(f"valid: fleet {fleet.config.fleet}, {models_text}, series {', '.join(series)}")


def _print_result(published: Published) -> None:
    from rich.console import Console

    from tracking.table import verdict_text

    out = Console()
    out.print(verdict_text(published.result))
    for line in published.where_to_look:
        out.print(line, highlight=False, markup=False, soft_wrap=True)


def _print_error(error: ClasswiseError, json: bool) -> None:
    kind = type(error).__name__
    if json:
        problems = [
            {"where": p.where, "expected": p.expected, "found": p.found, "remedy": p.remedy} for p in error.problems
        ]
        print_json({"outcome": "error", "error": kind, "problems": problems})
        return
    many = f"{len(error.problems)} problems" if len(error.problems) > 1 else "1 problem"
    typer.echo(f"classwise: {many} ({kind})", err=True)
    for problem in error.problems:
        typer.echo(f"  - {problem}", err=True)


def _interrupt(signum: int, frame: FrameType | None) -> None:
    sys.stderr.flush()
    raise KeyboardInterrupt
