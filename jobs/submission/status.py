"""How a submitted audit stands: a pure function of what the backend says and what the audit wrote."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from jobs.submission.backend import ATTEMPT, CALLER, JobInfo, Phase
from jobs.submission.queue import Waiting
from jobs.submission.submission import Ending, fleet_in
from services.errors import Crashed, Interrupted, Problem, StorageError
from services.records import Outcome

FORGOTTEN = "the job server does not know it any more, and it said no outcome"
RECORDED = "as the storage last recorded: the job server does not answer"
UNSEEN = "its folder cannot be seen from here; ask where the storage is reached, or ask the API"


class State(StrEnum):
    """Where an audit is.

    Only a finished one has an outcome. Crashed: it ended without saying one. Unreachable: it ended, and what it said
    lies in a storage that cannot be seen from here.
    """

    QUEUED = "queued"
    RUNNING = "running"
    FINISHED = "finished"
    STOPPED = "stopped"
    CRASHED = "crashed"
    UNREACHABLE = "unreachable"

    @property
    def over(self) -> bool:
        return self not in (State.QUEUED, State.RUNNING)


@dataclass(frozen=True)
class AuditStatus:
    """One submitted audit.

    Attributes:
        id: FLEET-DIGEST.
        outcome: pass, fail, undecided or error; None unless finished.
        bundle, audit_id: where the results are.
        tracking_uri, run_id, run_url: the audit's MLflow run.
        folder: the submission's files.
        attempt: which start of it this is.
        job: the cluster's name of that start.
        message: what the backend said of a crash, or that it does not answer.
        caller: who submitted it through the API, as far as the backend knows.
        problems: why the outcome is error, when there is no bundle.
    """

    id: str
    state: State
    outcome: Outcome | None = None
    fleet: str = ""
    key: str = ""
    bundle: str = ""
    audit_id: str = ""
    tracking_uri: str = ""
    run_id: str = ""
    run_url: str = ""
    started: str = ""
    ended: str = ""
    folder: str = ""
    attempt: str = ""
    job: str = ""
    message: str = ""
    problems: tuple[Problem, ...] = ()
    caller: str = ""

    @property
    def resumable(self) -> bool:
        """Whether submitting it again starts it again."""
        ended = self.state.over and self.state is not State.UNREACHABLE
        return ended and (self.outcome is None or self.outcome is Outcome.ERROR)

    @property
    def exit_code(self) -> int:
        """0 pass, 1 fail, 2 error or unreachable, 3 undecided, 4 crashed, 130 stopped; 0 while it waits or runs."""
        if self.state is State.CRASHED:
            return Crashed.exit_code
        if self.state is State.STOPPED:
            return Interrupted.exit_code
        if self.state is State.UNREACHABLE:
            return StorageError.exit_code
        return self.outcome.exit_code if self.outcome is not None else 0


def settle(
    name: str, folder: str, info: JobInfo | None, ending: Ending | None, *, reachable: bool = True
) -> AuditStatus | None:
    """Put together what is known; None when nothing is.

    An ending counts when it is of the attempt that the backend knows, or when the backend knows none.

    Args:
        reachable: the submission's files can be seen from here, so that no ending means that none was written.
    """
    attempt = info.attempt if info is not None else ""
    own = ending if ending is not None and (info is None or ending.attempt == attempt) else None
    if info is None and own is None:
        return None
    state, message = _state(info, own, reachable)
    ended = own if own is not None and own.state != "running" and state.over else None
    return AuditStatus(
        id=name,
        state=state,
        outcome=ended.outcome if ended and state is State.FINISHED else None,
        fleet=(info.metadata.get("classwise.fleet", "") if info else "") or fleet_in(name),
        key=info.metadata.get("classwise.key", "") if info else "",
        caller=info.metadata.get(CALLER, "") if info else "",
        bundle=ended.bundle if ended else "",
        audit_id=ended.audit_id if ended else "",
        tracking_uri=ended.tracking_uri if ended else "",
        run_id=ended.run_id if ended else "",
        run_url=ended.run_url if ended else "",
        started=info.started if info else "",
        ended=(info.ended if info else "") or (ended.at if ended else ""),
        folder=folder,
        attempt=attempt or (own.attempt if own else ""),
        job=info.job if info else "",
        message=message,
        problems=ended.problems if ended else (),
    )


def waiting_status(waiting: Waiting, folder: str) -> AuditStatus:
    """An accepted audit that the job server has not begun."""
    return AuditStatus(
        id=waiting.id,
        state=State.QUEUED,
        fleet=waiting.fleet,
        key=waiting.key,
        caller=waiting.caller,
        started=waiting.at,
        folder=folder,
        attempt=waiting.attempt,
    )


def recorded(name: str, folder: str, ending: Ending | None) -> AuditStatus | None:
    """What the storage alone says of a submitted audit: what has ended has, and what ran then counts as running."""
    attempt = ending.attempt if ending is not None else ""
    going = ending is None or ending.state == "running"
    phase = Phase.PENDING if ending is None else Phase.RUNNING
    info = JobInfo(name, phase, metadata={ATTEMPT: attempt}) if going else None
    status = settle(name, folder, info, ending)
    return replace(status, message=RECORDED) if status is not None else None


def _state(info: JobInfo | None, ending: Ending | None, reachable: bool) -> tuple[State, str]:
    if info is not None and not info.phase.over:  # also when it has said its end: it still lets go of things
        return (State.QUEUED if info.phase is Phase.PENDING else State.RUNNING), ""
    if ending is not None and ending.state == "finished":
        return State.FINISHED, ""
    if ending is not None and ending.state == "stopped":
        return State.STOPPED, ""
    if info is None:
        return State.CRASHED, FORGOTTEN
    if info.phase is Phase.STOPPED:
        return State.STOPPED, ""
    if not reachable:
        return State.UNREACHABLE, UNSEEN
    return State.CRASHED, info.message
