"""Schedules and their firings, as records."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from services.records import Outcome


class Overlap(StrEnum):
    """What a firing does while an audit of the same fleet runs."""

    SKIP = "skip"
    QUEUE = "queue"


class FiringState(StrEnum):
    """Where a firing is.

    Lost: its audit ended without an outcome, or its record is gone. Skipped: another audit of the fleet ran. Replaced:
    a later firing of its schedule waits in its place.
    """

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"
    LOST = "lost"
    SKIPPED = "skipped"
    REPLACED = "replaced"
    REFUSED = "refused"


@dataclass(frozen=True)
class Schedule:
    """When a fleet is audited.

    Attributes:
        fleet: the fleet's name; audits of one fleet never overlap, whatever schedule they are of.
        content: the fleet file as plain data, as it was when the schedule was added.
        cron, zone: see `jobs.schedules.cron`.
        next_at: the next firing in UTC; None when there is none, or the schedule is paused.
        fault: why it does not fire: its row cannot be read, or the scheduler could not make sense of it; "" for none.
        readable: whether all of its row could be read.
    """

    name: str
    fleet: str
    content: dict[str, Any]
    cron: str
    zone: str
    overlap: Overlap
    paused: bool
    next_at: datetime | None
    fault: str = ""
    readable: bool = True


@dataclass(frozen=True)
class Firing:
    """One time that a schedule came due.

    Attributes:
        due_at: when, in UTC; of the latest, when several were missed.
        missed: how many earlier ones this one stands for.
        submission, bundle: its audit.
        message: what hindered it, or how much is worse and better than in the accepted audit.
    """

    id: int
    schedule: str
    fleet: str
    due_at: datetime
    state: FiringState
    missed: int = 0
    submission: str = ""
    outcome: Outcome | None = None
    bundle: str = ""
    message: str = ""
    ended_at: datetime | None = None

    @property
    def key(self) -> str:
        """The key of its submission: one audit a firing, however often it is submitted."""
        return f"{self.schedule} {self.due_at:%Y-%m-%dT%H:%M:%S.%fZ}"
