"""What a user sees while a sweep trains: a live table of trials on a terminal, lines on a pipe, nothing when quiet."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from jobs.terminal.plain import plain
from services.errors import counted
from services.records.trials import EpochPoint, Kind, TrialResult
from tracking.names import shorten

SHOWN = 25
"""Trials in the live table: those that run first, then those that ended last."""

STYLES = {
    "finished": "green",
    "early-stop": "green",
    "dropped": "dim",
    "diverged": "yellow",
    "failed": "red",
    "training": "cyan",
}


class TrainReporter(Protocol):
    """Hears what a sweep does."""

    def sweep(self, names: Sequence[str], epochs: Sequence[int]) -> None:
        """These trials are to be trained, each for so many epochs."""
        ...

    def begun(self, name: str, done: int) -> None:
        """A worker has taken a trial, with so many epochs done."""
        ...

    def epoch(self, name: str, point: EpochPoint) -> None:
        """An epoch ended."""
        ...

    def ended(self, result: TrialResult) -> None:
        """A trial ended, now or in an earlier run of the sweep."""
        ...

    def note(self, text: str) -> None:
        """Something worth a line."""
        ...


class QuietTraining:
    """Says nothing."""

    def sweep(self, names: Sequence[str], epochs: Sequence[int]) -> None:
        """Ignore."""

    def begun(self, name: str, done: int) -> None:
        """Ignore."""

    def epoch(self, name: str, point: EpochPoint) -> None:
        """Ignore."""

    def ended(self, result: TrialResult) -> None:
        """Ignore."""

    def note(self, text: str) -> None:
        """Ignore."""


@dataclass
class Row:
    """One trial as it stands.

    Attributes:
        epochs: in all; done: so far.
        state: "waiting", "training", or how it ended.
        point: its last epoch.
        seconds: of the epochs seen, and how many those are.
    """

    epochs: int
    done: int = 0
    state: str = "waiting"
    point: EpochPoint | None = None
    seconds: float = 0.0
    timed: int = 0

    def take(self, point: EpochPoint) -> None:
        """Count an epoch."""
        self.point, self.done = point, point.epoch + 1
        self.seconds, self.timed = self.seconds + point.seconds, self.timed + 1

    @property
    def left(self) -> float | None:
        """Seconds until the trial ends, by the mean of the epochs seen."""
        if self.state != "training" or not self.timed:
            return None
        return (self.epochs - self.done) * self.seconds / self.timed


class TrainTerminal:
    """A live table on a terminal; on a pipe, a line an epoch."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._rows: dict[str, Row] = {}
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def sweep(self, names: Sequence[str], epochs: Sequence[int]) -> None:
        """Lay out the rows."""
        self._rows = {name: Row(count) for name, count in zip(names, epochs, strict=True)}
        self._say(f"training {counted(len(names), 'trial')}")

    def begun(self, name: str, done: int) -> None:
        """Mark a trial as running."""
        row = self._rows[name]
        row.state, row.done = "training", done
        self._say(f"{name}: goes on after epoch {done}" if done else f"{name}: begins")

    def epoch(self, name: str, point: EpochPoint) -> None:
        """Move a trial on."""
        row = self._rows[name]
        row.take(point)
        names = columns_of({kind_of(point)})
        numbers = " ".join(f"{key} {value}" for key, value in zip(names, cells(point, names), strict=True))
        self._say(f"{name}: epoch {row.done}/{row.epochs} {numbers} left {duration(row.left)}")

    def ended(self, result: TrialResult) -> None:
        """Close a trial's row."""
        row = self._rows[result.name]
        row.state, row.done = result.state, result.epochs
        row.point = row.point or result.chosen
        self._say(f"{result.name}: {result.state}{f' ({result.reason})' if result.reason else ''}")

    def note(self, text: str) -> None:
        """Print above the table."""
        self._console.print(plain(text), highlight=False, markup=False, soft_wrap=True)

    def _say(self, line: str) -> None:
        if self._live:
            self._live.update(training_table(self._rows), refresh=True)
        else:
            self._console.print(plain(line), highlight=False, markup=False, soft_wrap=True)


def training_table(rows: dict[str, Row]) -> Table:
    """The trials as they stand, those that run first."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("trial", no_wrap=True, max_width=36)
    table.add_column("state", no_wrap=True)
    names = columns_of({kind_of(row.point) for row in rows.values() if row.point is not None})
    for name in ("epoch", *names, "left"):
        table.add_column(name, justify="right", no_wrap=True)
    order = ("training", "failed", "diverged", "waiting")
    ranked = sorted(rows.items(), key=lambda item: order.index(item[1].state) if item[1].state in order else len(order))
    for name, row in ranked[:SHOWN]:
        state, shown = Text(row.state, STYLES.get(row.state, "dim")), cells(row.point, names)
        table.add_row(Text(shorten(name, 36)), state, f"{row.done}/{row.epochs}", *shown, duration(row.left))
    if len(rows) > SHOWN:
        ended = sum(row.state not in ("waiting", "training") for row in rows.values())
        table.caption = f"{SHOWN} of {len(rows)} trials; {ended} ended"
    return table


def columns_of(kinds: Set[Kind]) -> tuple[str, ...]:
    """What there is to show of trials of these kinds: accuracies of networks, explained variance of mappers."""
    networks = ("clean", "robust", "worst") if "network" in kinds or not kinds else ()
    return ("loss", *networks, *(("expl.",) if "mapper" in kinds else ()))


def kind_of(point: EpochPoint) -> Kind:
    """What an epoch is of: only mappers report the parts of their loss."""
    return "mapper" if point.parts else "network"


def cells(point: EpochPoint | None, names: Sequence[str]) -> tuple[str, ...]:
    """Loss, clean, robust and worst-class accuracy, or explained variance, for the eye."""
    if point is None:
        return ("",) * len(names)
    judged = point.judged
    shown = {"clean": judged.clean, "robust": judged.robust, "worst": judged.worst_class, "expl.": point.explained}
    return tuple(f"{point.loss:.3f}" if name == "loss" else _share(shown[name]) for name in names)


def duration(seconds: float | None) -> str:
    """`1:02:03` or `02:03`; "-" when it is not known."""
    if seconds is None:
        return "-"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes:02d}:{rest:02d}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
