"""What of a storage waits longer than it should: accepted audits, uploads to MLflow, audits past their deadline."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from jobs.submission.queue import Queue
from jobs.submission.status import AuditStatus, State
from jobs.submission.submission import read_ending
from services import limits
from services.errors import StorageError
from services.storage import files, plainjson
from tracking.bundle.bundle import BUNDLE
from tracking.bundle.marker import uploads

OVERTIME = 120.0
"""Seconds past its deadline in which an audit may let go of its workers."""


class Backlog:
    """Looks into a storage; what cannot change any more is looked at once.

    Args:
        base: the storage.
        tracked: whether its audits are to be in MLflow.
    """

    def __init__(self, base: str, *, tracked: bool) -> None:
        self._base, self._tracked = base, tracked
        self._queue = Queue(base)
        self._settled: set[str] = set()
        self._deadlines: dict[str, float | None] = {}

    def queue(self, now: datetime) -> tuple[int, float]:
        """How many accepted audits have not begun, and for how many seconds the oldest has waited."""
        waiting = self._queue.all()
        return len(waiting), max((_seconds_since(each.at, now) for each in waiting), default=0.0)

    def uploads(self) -> int:
        """Complete bundles that were to be uploaded and are nowhere."""
        if not self._tracked:
            return 0
        home = files.join(self._base, "audits")
        waiting = 0
        for fleet in files.listing(home):
            if files.leads_out(files.join(home, fleet)):
                continue
            for name in files.listing(files.join(home, fleet)):
                folder = files.join(home, fleet, name)
                if folder not in self._settled:
                    waiting += self._waits(folder)
        return waiting

    def overdue(self, statuses: Sequence[AuditStatus], now: datetime) -> int:
        """Audits that run past their deadline."""
        running = [status for status in statuses if status.state is State.RUNNING and status.folder]
        self._deadlines = {
            key: self._deadlines[key] if key in self._deadlines else _deadline(status.folder)
            for status in running
            for key in [f"{status.folder} {status.attempt}"]
        }
        late = 0
        for status in running:
            limit = self._deadlines[f"{status.folder} {status.attempt}"]
            begun = read_ending(status.folder) if limit is not None else None
            late += begun is not None and limit is not None and _seconds_since(begun.at, now) > limit + OVERTIME
        return late

    def _waits(self, folder: str) -> bool:
        try:
            if not files.exists(files.join(folder, BUNDLE)):
                return False
            if not uploads(folder) and _wants(folder):
                return True
        except StorageError:  # damaged, or pruned meanwhile
            return False
        self._settled.add(folder)
        return False


def _wants(folder: str) -> bool:
    """Whether a bundle's fleet was to be logged."""
    try:
        tracking = (
            plainjson.parsed(files.read_bytes(files.join(folder, BUNDLE), most=limits.FILE))["config"].get("tracking")
            or {}
        )
    except (ValueError, KeyError, AttributeError, TypeError):
        return False
    return bool(tracking.get("enabled", True))


def _deadline(folder: str) -> float | None:
    try:
        body: Any = plainjson.parsed(files.read_bytes(files.join(folder, "fleet.json"), most=limits.FILE))
        return float(body["fleet"]["resources"]["deadline"])
    except (StorageError, ValueError, KeyError, TypeError):
        return None


def _seconds_since(text: str, now: datetime) -> float:
    """0 for a text that is no time: others may write it."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return 0.0
    return max(0.0, (now - (at if at.tzinfo else at.replace(tzinfo=UTC))).total_seconds())
