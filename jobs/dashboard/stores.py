"""What the dashboard reads: bundles, running audits, schedules, MLflow. It writes to none of them, and makes none."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from jobs.dashboard.answers import (
    FailureBody,
    Failures,
    FiringBody,
    LeaderboardBody,
    Running,
    RunningBody,
    ScheduleBody,
    ScheduleList,
)
from jobs.dashboard.bundles import Bundles, fleet_of
from jobs.dashboard.views import problem_body
from jobs.schedules.schedule import Firing, Schedule
from jobs.submission.client import AuditClient, AuditStatus
from jobs.submission.heartbeat import read_progress
from jobs.terminal.remembered import Remembered
from services.errors import ConfigError, ServiceError, StorageError, UnknownAudit
from tracking.bundle.marker import without_secret

PROGRESS_SECONDS = 1.0
FAILURE_SECONDS = 10.0
BOARD_SECONDS = 60.0
BOARDS = 64
"""Leaderboards that are remembered: one for each preset and set of fleets."""
FAILURES = 10
"""Of one reader."""
KEPT_FAILURES = 500
"""Of all."""
FIRINGS = 10
"""Firings of each schedule that are listed."""

PRESETS = ("classes", "robust", "prbench")
"""Of the leaderboard."""


@dataclass(frozen=True)
class Places:
    """Where things are.

    Attributes:
        storage: folder or URL of the audits.
        tracking: URI of the MLflow store; "" when there is none.
        schedules: URI of the database of schedules; "" when there is none.
    """

    storage: str
    tracking: str = ""
    schedules: str = ""


class Stores:
    """Everything that the routes ask for."""

    def __init__(self, places: Places, client: AuditClient) -> None:
        self.places = places
        self.bundles = Bundles(places.storage)
        self._client = client
        self._running = Remembered(self._read_running, PROGRESS_SECONDS)
        self._active: set[str] = set()
        self._failures = Remembered(self._read_failures, FAILURE_SECONDS)
        self._boards: OrderedDict[tuple[str, ...], Remembered[LeaderboardBody]] = OrderedDict()
        self._lock = threading.Lock()

    def running(self) -> Running:
        """Audits that wait or run, with how far they are."""
        return self._running.get()

    def failures(self) -> Failures:
        """The latest submitted audits that ended without a result."""
        return self._failures.get()

    def leaderboard(self, preset: str, sees: Callable[[str], bool] | None = None) -> LeaderboardBody:
        """Boards from MLflow, of a minute ago at most.

        Args:
            sees: whether a fleet is the reader's; then only experiments of the storage's fleets that are. None: all.

        Raises:
            TrackingError: the store cannot be reached.
        """
        key: tuple[str, ...] = (preset,)
        if sees is not None:
            fleets = [fleet for name in self.bundles.fleets() if sees(fleet := fleet_of(name))]
            if not fleets:
                return LeaderboardBody(source="", notes=["No audit of your fleets was logged yet."], boards=[])
            key = (preset, *fleets)
        with self._lock:
            if key not in self._boards:
                self._boards[key] = Remembered(partial(self._read_boards, *key), BOARD_SECONDS)
            while len(self._boards) > BOARDS:
                self._boards.popitem(last=False)
            board = self._boards[key]
        return board.get()

    def schedules(self) -> ScheduleList:
        """The schedules, the next to fire first.

        Raises:
            ServiceError: their database cannot be reached.
        """
        uri = self.places.schedules
        if not is_made(uri):
            return ScheduleList(schedules=[], note="No schedule was made yet: classwise schedule add makes one.")
        from jobs.schedules.store import Store

        store = Store(uri)
        try:
            rows = [schedule_body(each, store.firings(schedule=each.name, limit=FIRINGS)) for each in store.schedules()]
        finally:
            store.close()
        return ScheduleList(schedules=sorted(rows, key=lambda row: (row.next_at is None, row.next_at or "", row.name)))

    def _read_running(self) -> Running:
        try:
            active = self._client.active()
            if self._active - active:
                self._failures.forget()
            self._active = active
            bodies = [self._running_body(name) for name in sorted(active)]
        except (ServiceError, StorageError) as error:
            return Running(running=[], problem=problem_body(error))
        return Running(running=[body for body in bodies if body is not None])

    def _read_failures(self) -> Failures:
        try:
            ended = [status for status in self._client.list() if status.state.over and not status.bundle]
        except (ServiceError, StorageError) as error:
            return Failures(failures=[], problem=problem_body(error))
        return Failures(failures=[failure_body(status) for status in ended[:KEPT_FAILURES]])

    def _running_body(self, name: str) -> RunningBody | None:
        try:
            status = self._client.status(name)
        except UnknownAudit:  # it ended, and was forgotten, since it was listed
            return None
        return None if status.state.over else running_body(status)

    def _read_boards(self, preset: str, *fleets: str) -> LeaderboardBody:
        """The boards of some fleets, or of all experiments; others are not named, nor whether there are any."""
        uri = self.places.tracking
        if not is_made(uri):
            return LeaderboardBody(source=without_secret(uri), notes=["No audit was logged to MLflow yet."], boards=[])
        from jobs.leaderboard.leaderboard import Request, make_leaderboard
        from jobs.leaderboard.presets import Choice
        from tracking.leaderboard.audited_runs import experiments_in
        from tracking.leaderboard.page import board_data

        experiments = tuple(name for name in experiments_in(uri) if name in fleets) if fleets else ()
        if fleets and not experiments:
            return LeaderboardBody(source="", notes=["No audit of your fleets was logged yet."], boards=[])
        wanted = Request(tracking_uri=uri, experiments=experiments, choice=Choice(preset=preset))
        try:
            ranked = make_leaderboard(wanted)
        except ConfigError as error:  # no run to rank
            return LeaderboardBody(source=without_secret(uri), notes=[str(each) for each in error.problems], boards=[])
        boards = [board_data(board) for board in ranked.boards]
        notes = [note for note in ranked.notes if "--together" not in note]  # an option of the command, not of the page
        return LeaderboardBody(source=ranked.source, notes=notes, boards=boards)


def is_made(uri: str) -> bool:
    """Whether a database is there to be read; opening SQLite where there is none would make one."""
    if uri.startswith("sqlite"):
        return Path(uri.partition(":///")[2].partition("?")[0]).exists()
    return bool(uri)


def running_body(status: AuditStatus) -> RunningBody:
    """An audit with its progress."""
    progress = read_progress(status.folder, status.attempt) if status.folder else None
    known: dict[str, Any] = {
        "id": status.id,
        "fleet": status.fleet,
        "key": status.key,
        "state": status.state,
        "started": status.started,
    }
    if progress is not None:
        names = ("stage", "models", "done", "total", "images_per_second", "model", "seconds", "at")
        known |= {name: getattr(progress, name) for name in names}
    return RunningBody(**known)


def failure_body(status: AuditStatus) -> FailureBody:
    """Why an audit has no result."""
    why = "; ".join(str(problem) for problem in status.problems) or status.message
    return FailureBody(
        id=status.id, fleet=status.fleet, state=status.state, started=status.started, ended=status.ended, why=why[:2000]
    )


def schedule_body(schedule: Schedule, firings: Sequence[Firing]) -> ScheduleBody:
    """A schedule with its firings, the latest first; the fleet's content, which names paths, is left out."""
    return ScheduleBody(
        name=schedule.name,
        fleet=schedule.fleet,
        cron=schedule.cron,
        zone=schedule.zone,
        overlap=schedule.overlap.value,
        paused=schedule.paused,
        next_at=schedule.next_at.isoformat() if schedule.next_at else None,
        fault=schedule.fault,
        firings=[
            FiringBody(
                due_at=firing.due_at.isoformat(),
                state=firing.state.value,
                outcome=firing.outcome,
                missed=firing.missed,
                submission=firing.submission,
                message=firing.message,
            )
            for firing in reversed(firings)
        ],
    )
