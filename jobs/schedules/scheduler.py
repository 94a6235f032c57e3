"""The scheduler: claims what is due, submits it, and records how it ended.

All that it knows is in the database and the storage, so it may be killed at any point: the next one follows the audits
that still run, records those that ended meanwhile, and calls lost those that never finished. An audit is not ended by
the end of its scheduler.

Each schedule and each firing fails alone: what is wrong with one is recorded with it, and the others go on.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from jobs.fleetfile.reading import Fleet, validate_fleet
from jobs.schedules.cron import Cron
from jobs.schedules.policy import Decision, decide
from jobs.schedules.schedule import Firing, FiringState, Overlap, Schedule
from jobs.schedules.store import Store, is_of_data
from jobs.submission.client import AuditClient
from jobs.submission.status import AuditStatus, State
from jobs.submission.submission import content_of, submission_of
from services.errors import ClasswiseError, ConfigError, Problem, ServiceError, StorageError, UnknownAudit, one_line
from tracking.bundle.comparison import read_comparison
from tracking.report.comparison_words import summary

POLL_SECONDS = 2.0
NAME_LENGTH = 100

Clock = Callable[[], datetime]
Note = Callable[[str], None]


def now_utc() -> datetime:
    """The time."""
    return datetime.now(UTC)


def new_schedule(
    name: str, fleet: Fleet, cron: str, *, zone: str = "UTC", overlap: Overlap = Overlap.SKIP, now: datetime
) -> Schedule:
    """A checked schedule, with its first firing after `now`.

    Raises:
        ConfigError: of the name, the expression, the zone or the fleet's storage; or it never fires.
    """
    if not 0 < len(name) <= NAME_LENGTH or not name.isprintable() or not name.isascii() or name != name.strip():
        raise ConfigError(Problem("--name", f"at most {NAME_LENGTH} printable ASCII characters", repr(name)[:120]))
    submission_of(fleet)
    first = Cron(cron, zone).after(now)
    if first is None:
        raise ConfigError(Problem("cron", "an expression that comes due some day", repr(cron)))
    return Schedule(name, fleet.config.fleet, content_of(fleet), cron, zone, overlap, False, first)


class Scheduler:
    """One turn of it is `tick`.

    Args:
        store: the database.
        clients: the client that submits to a storage.
        clock: the time, for tests.
        note: hears a line for everything that happens.
    """

    def __init__(
        self,
        store: Store,
        clients: Callable[[str], AuditClient],
        *,
        clock: Clock = now_utc,
        note: Note = lambda text: None,
    ) -> None:
        self._store = store
        self._clients = clients
        self._clock = clock
        self._note = note
        self._complaints: dict[int | str, str] = {}

    def run(self, *, poll: float = POLL_SECONDS) -> None:
        """Tick until a stop is asked for; a database or job server that is down is noted, and asked again."""
        while True:
            try:
                self.tick()
            except (ServiceError, StorageError) as error:
                self._note(str(error))
            time.sleep(poll)

    def tick(self) -> None:
        """Follow what runs, claim what is due, and start what may."""
        self._store.beat(host(), self._clock())
        for firing in self._store.firings(FiringState.RUNNING):
            self._apart(firing, partial(self.follow, firing))
        for schedule in self._store.schedules():
            self._look_at(schedule)
        overlaps = {schedule.name: schedule.overlap for schedule in self._store.schedules()}
        running = self._store.firings(FiringState.RUNNING)
        for firing, decision in decide(self._store.firings(FiringState.WAITING), running, overlaps):
            self._apart(firing, partial(self._carry_out, firing, decision))
        self._store.beat(host(), self._clock())

    def _look_at(self, schedule: Schedule) -> None:
        """Claim a schedule that is due; what is wrong with it is recorded with it."""
        fault = _fault_of(partial(self._claim_if_due, schedule)) if schedule.readable else schedule.fault
        if fault != schedule.fault:
            self._store.set_fault(schedule.name, fault)
        if fault:
            self._complain(schedule.name, schedule.name, f"does not fire: {fault}")

    def _apart(self, firing: Firing, work: Callable[[], None]) -> None:
        if fault := _fault_of(work):
            self._complain(firing.id, firing.schedule, fault)

    # --- one firing ----------------------------------------------------------------------------------------------

    def _claim_if_due(self, schedule: Schedule) -> None:
        """Record one firing for all times that were missed."""
        now = self._clock()
        cron = Cron(schedule.cron, schedule.zone)
        if schedule.paused or schedule.next_at is None or schedule.next_at > now:
            return
        due_at, count = cron.due(schedule.next_at, now)
        if self._store.claim(schedule, due_at, count - 1, cron.after(max(due_at, now))):
            self._note(f"{schedule.name}: due at {due_at:%Y-%m-%d %H:%M:%S} UTC" + _missed(count - 1))

    def _carry_out(self, firing: Firing, decision: Decision) -> None:
        if decision is Decision.START:
            self._start(firing)
        elif decision is Decision.SKIP:
            self._end(firing, FiringState.SKIPPED, message=f"an audit of {firing.fleet} was running")
        elif decision is Decision.REPLACE:
            self._end(firing, FiringState.REPLACED, message="a later firing waits in its place")

    def _start(self, firing: Firing) -> None:
        try:
            fleet = validate_fleet(self._store.content(firing), source=firing.schedule)
            submission = submission_of(fleet, firing.key)
        except ConfigError as error:
            self._end(firing, FiringState.REFUSED, message=str(error))
            return
        if not self._store.start(firing, submission.id):
            return
        try:
            self._clients(fleet.config.storage).submit(fleet, firing.key)
        except (ServiceError, StorageError) as error:
            self._store.put_back(firing, str(error))
            self._complain(firing.id, firing.schedule, f"not submitted, tried again later: {error}")
        except ClasswiseError as error:
            self._end(replace(firing, state=FiringState.RUNNING), FiringState.REFUSED, message=str(error))
        else:
            self._note(f"{firing.schedule}: submitted {submission.id}")

    def follow(self, firing: Firing) -> None:
        """Look after an audit that runs, or did when the last scheduler ended."""
        try:
            storage = str(self._store.content(firing).get("storage", ""))
        except ConfigError as error:  # the place of its audit is unknown
            self._end(firing, FiringState.LOST, message=str(error))
            return
        try:
            status = self._clients(storage).status(firing.submission)
        except UnknownAudit:  # its scheduler ended between the record and the submission
            self._store.put_back(firing, "it had not been submitted")
        except (ServiceError, StorageError) as error:
            self._complain(firing.id, firing.schedule, f"not followed, asked again later: {error}")
        else:
            if status.state is State.UNREACHABLE:
                self._complain(firing.id, firing.schedule, status.message)
            elif status.state.over:
                self._record(firing, status)

    def _complain(self, about: int | str, schedule: str, text: str) -> None:
        """Note what hinders a firing or a schedule, once and not at every look."""
        if self._complaints.get(about) != text:
            self._complaints[about] = text
            self._note(f"{schedule}: {text}")

    def _record(self, firing: Firing, status: AuditStatus) -> None:
        states = {State.FINISHED: FiringState.DONE, State.STOPPED: FiringState.STOPPED, State.CRASHED: FiringState.LOST}
        message = status.message or "\n".join(str(problem) for problem in status.problems) or _changes(status.bundle)
        self._end(firing, states[status.state], message=message, status=status)

    def _end(self, firing: Firing, state: FiringState, *, message: str, status: AuditStatus | None = None) -> None:
        outcome, bundle = (status.outcome, status.bundle) if status is not None else (None, "")
        if self._store.end(firing, state, self._clock(), outcome=outcome, bundle=bundle, message=message):
            shown = f"{state}, {outcome}" if outcome is not None else str(state)
            self._note(f"{firing.schedule}: {shown}" + (f" ({message})" if message else ""))


def host() -> str:
    """The machine, or the pod, as the heartbeat names it."""
    return socket.gethostname()[:255]


def require_alive(store: Store, now: datetime, *, seconds: float, anywhere: bool = False) -> datetime:
    """When the scheduler of this host was at work last.

    Raises:
        ServiceError: never, or longer than `seconds` ago.
    """
    beats = store.beats()
    known = list(beats.values()) if anywhere else [at for name, at in beats.items() if name == host()]
    if known and (now - max(known)).total_seconds() <= seconds:
        return max(known)
    actual = f"none since {max(known):%Y-%m-%dT%H:%M:%SZ}" if known else "none ever"
    where = "scheduler" if anywhere else f"scheduler on {host()}"
    raise ServiceError(
        Problem(where, f"a heartbeat of the last {seconds:g} s", actual, "restart classwise schedule run")
    )


def _fault_of(work: Callable[[], None]) -> str:
    """What went wrong with one thing, "" for nothing; the database, which all share, is no fault of one."""
    try:
        work()
    except (ServiceError, StorageError) as error:
        if not is_of_data(error):
            raise
        return one_line(error, 1000)
    except Exception as error:
        name = "" if isinstance(error, ClasswiseError) else f"{type(error).__name__}: "
        return name + one_line(error, 1000)
    return ""


def _changes(bundle: str) -> str:
    """How much is worse and better than in the accepted audit; "" when there is no comparison that can be read."""
    try:
        comparison = read_comparison(bundle) if bundle else None
    except StorageError:
        return ""
    return summary(comparison) if comparison is not None else ""


def _missed(count: int) -> str:
    return f", for {count} missed before it as well" if count else ""
