"""What a user sees while an audit runs: a live bar a stage on a terminal, plain lines on a pipe, nothing when quiet.

A CI system may call its log a terminal (`FORCE_COLOR`): where the variable CI is set, lines are plain.
"""

from __future__ import annotations

import logging
import os
import time
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from services.records import Receipt
from services.telemetry import logs

WIDE = 110
"""Columns from which the bar also names the model at work and shows the time spent."""

_log = logging.getLogger("classwise.audit")


class Reporter(Protocol):
    """Hears what an audit does."""

    def stage(self, name: str, shards: int, models: int) -> None:
        """A stage begins with so many shards of so many models left to do."""
        ...

    def done(self, receipt: Receipt) -> None:
        """One shard is done."""
        ...

    def note(self, text: str) -> None:
        """Something worth a line."""
        ...


class Quiet:
    """Says nothing."""

    def stage(self, name: str, shards: int, models: int) -> None:
        """Ignore."""

    def done(self, receipt: Receipt) -> None:
        """Ignore."""

    def note(self, text: str) -> None:
        """Ignore."""


class Logged:
    """Says by log lines what the session does not already."""

    def stage(self, name: str, shards: int, models: int) -> None:
        """Ignore: the session logs it."""

    def done(self, receipt: Receipt) -> None:
        """One line a shard, at level debug."""
        details = {"model": receipt.task.model.name, "rows": receipt.rows, "seconds": round(receipt.seconds, 3)}
        logs.event(_log, logging.DEBUG, "shard done", **details)

    def note(self, text: str) -> None:
        """A warning."""
        _log.warning("%s", text)


class Rate:
    """Images a second over a stage, from receipts: pure but for the clock it is given."""

    def __init__(self, now: float) -> None:
        self._started = now
        self._images = 0

    def add(self, receipt: Receipt, now: float) -> float:
        """Count a receipt and return images a second so far."""
        self._images += receipt.rows
        return self._images / max(now - self._started, 1e-9)


class Terminal:
    """A bar with models, shards, images a second and time left; on a pipe, a line a stage."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = console.is_terminal and not os.environ.get("CI")
        wide = console.width >= WIDE
        columns = (
            TextColumn("{task.description:<11}"),
            BarColumn(bar_width=16 if wide else 8),
            MofNCompleteColumn(),
            TextColumn("shards of {task.fields[models]} models {task.fields[rate]:>7} images/s"),
            *((TextColumn("{task.fields[model]:<18}"), TimeElapsedColumn()) if wide else ()),
            TextColumn("left"),
            TimeRemainingColumn(compact=True),
        )
        self._progress = Progress(*columns, console=console, transient=False)
        self._task: TaskID | None = None
        self._rate = Rate(time.monotonic())

    def __enter__(self) -> Self:
        if self._live:
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._progress.stop()

    def stage(self, name: str, shards: int, models: int) -> None:
        """Start a new line."""
        self._rate = Rate(time.monotonic())
        if not shards:
            return
        if self._live:
            self._task = self._progress.add_task(name, total=shards, models=models, rate="", model="")
        else:
            self._console.print(f"{name}: {shards} shards of {models} models", highlight=False)

    def done(self, receipt: Receipt) -> None:
        """Move the bar."""
        rate = self._rate.add(receipt, time.monotonic())
        if self._live and self._task is not None:
            shown = f"{rate:,.0f}" if receipt.rows else ""
            self._progress.update(self._task, advance=1, rate=shown, model=receipt.task.model.name[:18])

    def note(self, text: str) -> None:
        """Print above the bar."""
        self._console.print(text, highlight=False, markup=False)
