"""What the command line prints, and what it exits with."""

from __future__ import annotations

import io
import json as jsonlib
import logging
import os
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from jobs.terminal import stop
from jobs.terminal.plain import plain
from services.errors import ClasswiseError, Interrupted, Problem, StorageError, counted, one_line
from services.telemetry import logs
from services.telemetry.redaction import redacted

if TYPE_CHECKING:
    from rich.console import RenderableType

    from jobs.terminal.progress import Logged, Quiet, Terminal


_log = logging.getLogger("classwise.command")


class _Broken(io.TextIOBase):
    """Stands for a standard output that failed: it fails again, and leaves the interpreter nothing to flush."""

    def write(self, text: str) -> int:
        raise OSError("it failed before")


def say(text: str) -> None:
    """Print a line on standard output, `plain`.

    Raises:
        StorageError: it is closed or full. Left to itself that would exit 1, which says that a gate failed.
    """
    _say(plain(text))


def _say(text: str) -> None:
    try:
        typer.echo(text)
    except OSError as error:
        sys.stdout = _Broken()
        raise StorageError(Problem("standard output", "a stream that can be written", str(error))) from None


def note(text: str) -> None:
    """Print a line on standard error, beside the result; a log line where those are JSON."""
    if logs.is_json():
        _log.info("%s", text)
    else:
        typer.echo(plain(text), err=True)


def print_json(value: Any) -> None:
    """Print JSON, without NaN, keys in their order."""
    say(jsonlib.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


@contextmanager
def exits(json: bool) -> Iterator[None]:
    """Turn errors into exit codes; a user's mistake prints its problems and no traceback.

    Ctrl-C and SIGTERM end a job cleanly, with finished work kept, whatever error a library makes of them.
    """
    with stop.catching_stops():
        try:
            yield
        except (typer.Exit, typer.Abort):
            raise
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            failure = as_user_error(error)
            _print_error(failure, json)
            raise typer.Exit(failure.exit_code) from None


@contextmanager
def reporter(quiet: bool) -> Iterator[Terminal | Quiet | Logged]:
    """Progress on standard error: a live bar on a terminal, lines on a pipe, nothing, or JSON log lines."""
    from rich.console import Console

    from jobs.terminal.progress import Logged, Quiet, Terminal

    with apart():
        if logs.is_json():
            yield Logged()
            return
        if quiet:
            yield Quiet()
            return
        with Terminal(Console(stderr=True)) as terminal:
            yield terminal


@contextmanager
def apart() -> Iterator[None]:
    """Standard output is kept for the result: what a network or a library prints meanwhile goes to standard error.

    Python's own stream and the file descriptor beneath it, which C code writes to.
    """
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def show(parts: Iterable[RenderableType], lines: Iterable[str] = ()) -> None:
    """Print what rich renders, as wide as the terminal, and then plain lines of any length."""
    from rich.console import Console
    from rich.segment import Segment, Segments

    page = io.StringIO()
    out = Console(file=page, force_terminal=sys.stdout.isatty(), width=Console().width)
    for part in parts:
        out.print(Segments([Segment(plain(each.text), each.style, each.control) for each in out.render(part)]), end="")
    for line in lines:
        out.print(plain(line), highlight=False, markup=False, soft_wrap=True)
    _say(page.getvalue().rstrip("\n"))


def _print_error(error: ClasswiseError, json: bool) -> None:
    kind = type(error).__name__
    if json and _printed_as_json(error):
        return
    if logs.is_json():
        problems = [asdict(problem) for problem in error.problems]
        logs.event(_log, logging.ERROR, kind, exit_code=error.exit_code, problems=problems)
        return
    typer.echo(f"classwise: {counted(len(error.problems), 'problem')} ({kind})", err=True)
    for problem in error.problems:
        typer.echo(plain(f"  - {problem}"), err=True)


def _printed_as_json(error: ClasswiseError) -> bool:
    problems = [asdict(problem) for problem in error.problems]
    try:
        print_json({"outcome": "error", "error": type(error).__name__, "problems": problems})
    except StorageError:
        return False
    return True


def as_user_error(error: BaseException) -> ClasswiseError:
    """The message of an error for the user; after a request to stop that is the request, not its consequences."""
    if isinstance(error, Interrupted):
        return error
    if stop.requested() or isinstance(error, KeyboardInterrupt):
        return Interrupted(Problem("classwise", "to finish", "a request to stop", "run it again"))
    return error if isinstance(error, ClasswiseError) else _defect(error)


def _defect(error: BaseException) -> ClasswiseError:
    """An unexpected error: its trace goes to standard error. Left to itself it would exit 1: a gate failed."""
    if logs.is_json():
        _log.error("unforeseen", exc_info=error)
    else:
        typer.echo(plain(redacted("".join(traceback.format_exception(error)).rstrip("\n"))), err=True)
    actual = f"{type(error).__name__}: {one_line(error, 500)}"
    if isinstance(error, MemoryError):
        remedy = "audit fewer or smaller samples, or give the machine more"
        return ClasswiseError(Problem("memory", "an audit that fits in the memory of this machine", actual, remedy))
    return ClasswiseError(Problem("classwise", "no unexpected error", actual, "report this defect of classwise"))
