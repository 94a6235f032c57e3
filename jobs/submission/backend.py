"""Who runs a submitted audit: a Ray cluster's job server, or processes of this machine.

Both are behind one protocol, so that the client, the API and the scheduler are the same without a cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Protocol

from services.errors import ServiceError

ATTEMPT = "classwise.attempt"
"""Where a job's metadata name its attempt. An attempt is started once, however often it is handed over."""
CALLER = "classwise.caller"
"""And who asked for it; "" for the server itself."""
AT_ONCE = "CLASSWISE_AUDITS_AT_ONCE"
"""A variable of a job's: how many audits its machine drives at the same time; none where nothing limits them."""
GRACE_SECONDS = 30
"""How long an audit may take after a request to stop to let go of its workers before it is killed."""


class Phase(StrEnum):
    """What the backend knows of a process. Whether a gate failed it does not know: that is in the storage."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"

    @property
    def over(self) -> bool:
        return self not in (Phase.PENDING, Phase.RUNNING)


@dataclass(frozen=True)
class JobInfo:
    """One job as its backend knows it.

    Attributes:
        id: the submission's id.
        job: the backend's own name of this attempt.
        message: the backend's own words on how it ended.
        metadata: what was given at submission; `classwise.*`.
        started, ended: ISO times in UTC, "" when unknown.
    """

    id: str
    phase: Phase
    message: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    started: str = ""
    ended: str = ""
    job: str = ""

    @property
    def attempt(self) -> str:
        """Which start of its submission it is; "" when that was not recorded."""
        return self.metadata.get(ATTEMPT, "")


class AlreadySubmitted(ServiceError):
    """Another submitter was faster; its job is the one."""


class Backend(Protocol):
    """Starts, watches and stops jobs."""

    address: str

    def start(self, name: str, folder: str, metadata: Mapping[str, str], environment: Mapping[str, str]) -> None:
        """Start the audit whose files lie in `folder`, for the first time or again.

        Raises:
            AlreadySubmitted: a job of that name runs, or this attempt was started before.
        """
        ...

    def info(self, name: str) -> JobInfo | None:
        """What is known of the latest attempt of a job; None for a job it does not know."""
        ...

    def infos(self) -> list[JobInfo]:
        """All jobs of classwise."""
        ...

    def logs(self, name: str) -> str:
        """What its latest attempt printed so far."""
        ...

    def stop(self, name: str) -> None:
        """Ask it to stop; returns immediately."""
        ...

    def check(self) -> None:
        """Raise a ServiceError when jobs cannot be started now."""
        ...


def iso(milliseconds: int | None) -> str:
    """A time of the job server's as text."""
    if not milliseconds:
        return ""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="seconds")
