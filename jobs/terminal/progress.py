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
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from jobs.terminal.plain import plain
from services.errors import counted
from services.records import Receipt
from services.telemetry import logs

MINUTE = 60.0
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

    def remaining(self, share: float, seconds: float) -> None:
        """The share of the stage's work that is done, and seconds until it ends; also from a thread, between shards."""
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

    def remaining(self, share: float, seconds: float) -> None:
        """Ignore."""

    def note(self, text: str) -> None:
        """Ignore."""


class Counted:
    """Tells another reporter, and remembers how far the stage is."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._name, self._shards, self._done = "", 0, 0

    @property
    def kept(self) -> str:
        """What a stop leaves: ``18 of 72 shards of pgd20 are kept``; "" before any stage."""
        return f"{self._done} of {self._shards} shards of {self._name} are kept" if self._shards else ""

    def stage(self, name: str, shards: int, models: int) -> None:
        """Count from nothing."""
        self._name, self._shards, self._done = name, shards, 0
        self._reporter.stage(name, shards, models)

    def done(self, receipt: Receipt) -> None:
        """Count the shard."""
        self._done += 1
        self._reporter.done(receipt)

    def remaining(self, share: float, seconds: float) -> None:
        """Tell the other."""
        self._reporter.remaining(share, seconds)

    def note(self, text: str) -> None:
        """Tell the other."""
        self._reporter.note(text)


class Logged:
    """Says by log lines what the session does not already."""

    def __init__(self) -> None:
        self._minute = Minute(time.monotonic())

    def stage(self, name: str, shards: int, models: int) -> None:
        """Only the clock: the session logs it."""
        self._minute = Minute(time.monotonic())

    def done(self, receipt: Receipt) -> None:
        """One line a shard, at level debug."""
        details = {"model": receipt.task.model.name, "rows": receipt.rows, "seconds": round(receipt.seconds, 3)}
        logs.event(_log, logging.DEBUG, "shard done", **details)

    def remaining(self, share: float, seconds: float) -> None:
        """One line a minute."""
        if self._minute.passed(time.monotonic()):
            logs.event(_log, logging.INFO, "stage goes on", share=round(share, 3), seconds_left=round(seconds, 1))

    def note(self, text: str) -> None:
        """A warning."""
        _log.warning("%s", text)


class Minute:
    """Whether another minute has passed since the last time that it had: pure but for the clock it is given."""

    def __init__(self, now: float) -> None:
        self._next = now + MINUTE

    def passed(self, now: float) -> bool:
        """At most once a minute."""
        if now < self._next:
            return False
        self._next = now + MINUTE
        return True


class Rate:
    """Images a second over a stage, from receipts: pure but for the clock it is given."""

    def __init__(self, now: float) -> None:
        self._started = now
        self._images = 0

    def add(self, receipt: Receipt, now: float) -> float:
        """Count a receipt and return images a second so far."""
        self._images += receipt.rows
        return self._images / max(now - self._started, 1e-9)


def clock(seconds: float) -> str:
    """`1:05:20`, `4:07`."""
    minutes, rest = divmod(max(0, round(seconds)), 60)
    return f"{minutes}:{rest:02}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


class Terminal:
    """A bar with models, shards, images a second and time left; on a pipe, a line a stage."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = console.is_terminal and not os.environ.get("CI")
        wide = console.width >= WIDE
        columns = (
            TextColumn("{task.description:<11}"),
            BarColumn(bar_width=16 if wide else 8),
            TextColumn("{task.fields[shards]} shards of {task.fields[models]} {task.fields[rate]:>7} images/s"),
            *((TextColumn("{task.fields[model]:<18}"), TimeElapsedColumn()) if wide else ()),
            TextColumn("left {task.fields[left]}"),
        )
        self._progress = Progress(*columns, console=console, transient=False)
        self._task: TaskID | None = None
        self._rate, self._minute = Rate(time.monotonic()), Minute(time.monotonic())
        self._name, self._shards, self._done = "", 0, 0

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
        self._rate, self._minute = Rate(time.monotonic()), Minute(time.monotonic())
        self._name, self._shards, self._done = name, shards, 0
        if not shards:
            return
        if self._live:
            self._task = self._progress.add_task(
                name, total=1.0, models=counted(models, "model"), rate="", model="", shards=f"0/{shards}", left="-:--"
            )
        else:
            self._console.print(f"{name}: {counted(shards, 'shard')} of {counted(models, 'model')}", highlight=False)

    def done(self, receipt: Receipt) -> None:
        """Count the shard."""
        rate = self._rate.add(receipt, time.monotonic())
        self._done += 1
        if self._live and self._task is not None:
            shown, shards = f"{rate:,.0f}" if receipt.rows else "", f"{self._done}/{self._shards}"
            self._progress.update(self._task, shards=shards, rate=shown, model=receipt.task.model.name[:18])

    def remaining(self, share: float, seconds: float) -> None:
        """Move the bar; without one, a line a minute."""
        if self._live and self._task is not None:
            whole = 1.0 if self._done >= self._shards else min(share, 0.999)
            self._progress.update(self._task, completed=whole, left=clock(seconds))
        elif not self._live and self._minute.passed(time.monotonic()):
            text = f"{self._name}: {self._done} of {self._shards} shards, {share:.0%}, {clock(seconds)} left"
            self._console.print(text, highlight=False)

    def note(self, text: str) -> None:
        """Print above the bar."""
        self._console.print(plain(text), highlight=False, markup=False)
