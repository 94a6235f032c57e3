"""The typed client of submitted audits: submit, watch, wait, read the result, stop.

    >>> client = AuditClient("http://head:8265")                          # doctest: +SKIP
    >>> audit = client.submit("fleet.yaml", key="2026-11-28")             # doctest: +SKIP
    >>> client.wait(audit.id).outcome                                     # doctest: +SKIP
    <Outcome.PASS: 'pass'>

The cluster's job server says whether a process runs; how the audit ended is read from the storage, where the audit
itself wrote it. So a failed gate is never taken for a crash, nor a crash for a failed gate, and a result outlives the
cluster that computed it.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from jobs.fleetfile.reading import Fleet, load_fleet, validate_fleet
from jobs.submission.backend import AlreadySubmitted, Backend
from jobs.submission.dispatcher import Dispatcher
from jobs.submission.local_jobs import LocalJobs
from jobs.submission.queue import Queue, Waiting
from jobs.submission.ray_jobs import RayJobs
from jobs.submission.signing import signing_key
from jobs.submission.standing import Standing
from jobs.submission.status import AuditStatus, State, waiting_status
from jobs.submission.submission import (
    Ending,
    checked_id,
    folder_in,
    is_there,
    submission_of,
    write_ending,
    write_fleet,
)
from services.errors import Crashed, NotFinished, Problem, Pruned, ServiceError, StorageError, UnknownAudit
from services.records import AuditResult
from services.storage import files
from tracking.bundle.bundle import BUNDLE, read_bundle

__all__ = ["AuditClient", "AuditStatus", "State", "backend_for"]

STOP_SECONDS = 60.0
POLL_SECONDS = 1.0


def backend_for(
    address: str,
    *,
    storage: str = "",
    token: str = "",
    verify: bool | str = True,
    headers: Mapping[str, str] | None = None,
    python: str = "python",
) -> Backend:
    """Who runs audits: processes of this machine for the address "local", else the job server of a Ray cluster."""
    if address == "local":
        return LocalJobs(storage or "classwise-runs")
    return RayJobs(address, token=token, verify=verify, headers=headers, python=python)


class AuditClient:
    """Submits audits and follows them.

    Args:
        backend: who runs them, or the address of a Ray cluster's dashboard (see `backend_for` for more settings).
        storage: where submissions lie. Needed to ask for audits that the cluster has forgotten; when given, no
            submission outside it is looked at.
        environment: variables of every audit (MLFLOW_TRACKING_URI ...). Ray shows them to all who see its dashboard.
        offline: while the job server does not answer, say what the storage last recorded, instead of an error.
    """

    def __init__(
        self,
        backend: Backend | str,
        *,
        storage: str = "",
        environment: Mapping[str, str] | None = None,
        offline: bool = False,
    ) -> None:
        self._backend = backend_for(backend, storage=storage) if isinstance(backend, str) else backend
        self._storage = storage
        self._environment = dict(environment or {})
        self._standing = Standing(self._backend, storage, offline=offline)

    @property
    def address(self) -> str:
        """Of the job server, or "local"."""
        return self._backend.address

    def submit(
        self, fleet: Fleet | Mapping[str, Any] | str | Path, key: str = "", *, allow: Mapping[str, Any] | None = None
    ) -> AuditStatus:
        """Have a fleet audited; the same fleet and key is one audit.

        One that waits, runs, or has an outcome other than error is returned as it is. One that was stopped, crashed, or
        ended in an error is started again, and goes on from the shards that it finished.

        Args:
            fleet: a fleet file's path, its content, or a loaded fleet. Its storage must be an absolute path or a URL.
            key: what distinguishes audits of one fleet file, such as a date; up to 200 printable ASCII characters.
            allow: the allow-list that admitted it, which the audit checks again; None: whatever the fleet names.

        Raises:
            ConfigError: the fleet file, the key, the storage or the signing key is wrong.
            ServiceError: the job server is down or refuses.
            StorageError: the storage cannot be written from here.
        """
        loaded = _loaded(fleet)
        submission = submission_of(loaded, key)
        status = self._standing.one(submission.id, submission.folder)
        if status is not None and not status.resumable:
            return status
        write_fleet(submission, loaded, self._signing_key(), allow)
        attempt = uuid.uuid4().hex[:12]
        waiting = Waiting(submission.id, submission.fleet, submission.key, attempt, "")
        with suppress(AlreadySubmitted):  # by another submitter, of the same fleet and key: its audit is ours
            self._backend.start(
                submission.id, submission.folder, waiting.metadata(submission.folder), self._environment
            )
        return self.status(submission.id, folder=submission.folder)

    def enqueue(
        self,
        fleet: Fleet,
        key: str = "",
        *,
        allow: Mapping[str, Any] | None = None,
        caller: str = "",
        priority: int = 0,
    ) -> AuditStatus:
        """As `submit`, but the job server is not waited for: a `dispatcher` of this storage hands the audit over.

        Once this returns, the audit survives the end of this process.

        Args:
            fleet: a fleet in the client's storage.
            caller: who asks for it; it stays with the audit.
            priority: 0 to 99; of those that wait the highest is handed over first.

        Raises:
            ConfigError, StorageError: as `submit`.
        """
        submission = submission_of(fleet, key)
        status = self._standing.one(submission.id, submission.folder)
        if status is not None and not status.resumable:
            return status
        write_fleet(submission, fleet, self._signing_key(), allow, caller)
        waiting = self._waiting_room().put(submission, caller=caller, priority=priority)
        return waiting_status(waiting, submission.folder)

    def dispatcher(self) -> Dispatcher:
        """What hands over the audits that were enqueued in the client's storage."""
        return Dispatcher(self._backend, self._storage, self._environment)

    def status(self, name: str, *, folder: str = "") -> AuditStatus:
        """How an audit stands.

        Raises:
            UnknownAudit: neither the job server nor the storage knows the id.
        """
        checked_id(name)
        current = self._standing.one(name, folder or (folder_in(self._storage, name) if self._storage else ""))
        if current is None:
            remedy = "classwise list shows those of the cluster; name the storage for one that the cluster forgot"
            raise UnknownAudit(Problem(name, f"an audit submitted to {self.address}", "none", remedy))
        return current

    def wait(
        self,
        name: str,
        *,
        timeout: float | None = None,
        poll: float = POLL_SECONDS,
        on_change: Callable[[AuditStatus], None] | None = None,
    ) -> AuditStatus:
        """Wait until an audit has ended, in whatever way; giving up (Ctrl-C, timeout) does not stop it.

        Raises:
            NotFinished: it has not ended after `timeout` seconds.
        """
        end = None if timeout is None else time.monotonic() + timeout
        last: State | None = None
        while True:
            status = self.status(name)
            if status.state is not last and on_change is not None:
                on_change(status)
            last = status.state
            if status.state.over:
                return status
            if end is not None and time.monotonic() >= end:
                remedy = "it goes on; ask again later"
                raise NotFinished(Problem(name, f"to end within {timeout:g} s", f"an audit {status.state}", remedy))
            time.sleep(poll if end is None else min(poll, max(0.0, end - time.monotonic())))

    def logs(self, name: str) -> str:
        """All that the audit's latest attempt printed so far."""
        self.status(name)
        try:
            return self._backend.logs(name)
        except ServiceError:
            if self._backend.info(name) is None:
                return ""
            raise

    def follow(self, name: str, *, poll: float = 0.5) -> Iterator[str]:
        """What the audit prints, as it does, until it has ended. Leaving the loop does not stop the audit."""
        sent = 0
        while True:
            over = self.status(name).state.over
            text = self.logs(name)
            if len(text) > sent:
                yield text[sent:]
                sent = len(text)
            if over:
                return
            time.sleep(poll)

    def result(self, name: str) -> AuditResult:
        """The result of a finished audit, from its bundle.

        Raises:
            NotFinished: it waits, runs, or was stopped, or ended in an error before there was a bundle.
            Crashed: it ended without an outcome.
            Pruned: retention removed it.
            StorageError: its bundle cannot be read from here.
        """
        return read_bundle(self.finished(name).bundle)

    def finished(self, name: str) -> AuditStatus:
        """The status of an audit that has a bundle; raises as `result` does."""
        status = self.status(name)
        if status.state is State.UNREACHABLE:
            raise StorageError(Problem(status.folder, "the files of the audit", "nothing", status.message))
        if status.state is State.CRASHED:
            remedy = "look at classwise logs, and submit it again: it goes on from the finished shards"
            raise Crashed(Problem(name, "an outcome", status.message or "none", remedy))
        if status.state is State.FINISHED and status.problems:
            raise NotFinished(status.problems)
        if not status.bundle:
            remedy = "submit it again" if status.state is State.STOPPED else "wait for it with classwise wait"
            raise NotFinished(Problem(name, "a finished audit", f"one that is {status.state}", remedy))
        if is_there(status.folder) and not files.exists(files.join(status.bundle, BUNDLE)):
            remedy = "submit it with another key to audit again"
            raise Pruned(Problem(name, f"the bundle of an audit that ended with {status.outcome}", "none", remedy))
        return status

    def cancel(self, name: str, *, timeout: float = STOP_SECONDS) -> AuditStatus:
        """Stop an audit and wait until it has let go of everything; its finished shards are kept.

        One that has ended already is returned as it is.
        """
        status = self.request_stop(name)
        return status if status.state.over else self.wait(name, timeout=timeout, poll=0.2)

    def request_stop(self, name: str) -> AuditStatus:
        """Ask an audit to stop, and do not wait for it; one that waits in the queue does not begin."""
        status = self.status(name)
        if status.state.over:
            return status
        queue = self._standing.queue
        if queue is not None and (waiting := queue.find(name)) is not None:
            write_ending(status.folder, Ending(waiting.attempt, "stopped"))  # its driver would end at once
            queue.remove(name)
            status = self.status(name)
        if not status.state.over:
            self._backend.stop(name)
        return status

    def list(self, fleet: str = "") -> list[AuditStatus]:
        """All audits that the job server knows, and those in the client's storage; the latest first."""
        return [status for status in self._standing.all() if fleet in ("", status.fleet)]

    def active(self) -> set[str]:
        """Ids of the audits that wait or run, within the client's storage: one request, whatever has run before."""
        return set(self.active_callers())

    def active_callers(self) -> dict[str, str]:
        """The same, with who asked for each; "" when that is not known."""
        return self._standing.active_callers()

    def job_server_answers(self) -> bool:
        """Whether audits can be followed; `offline` clients do not say so by an error."""
        return self._standing.answers()

    def check_storage(self) -> None:
        """Whether results can be read: the storage, where one is named, answers; the job server is not asked.

        Raises:
            StorageError: it does not.
        """
        if self._storage:
            files.listing(self._storage)

    def check(self) -> None:
        """Whether audits can be started: the job server answers, and the storage, where one is named, can be written.

        Raises:
            ServiceError: with what is not so, all of it.
        """
        problems: list[Problem] = []
        looks: list[Callable[[], None]] = [self._backend.check]
        if self._storage:
            looks.append(lambda: files.require_writable(self._storage, "storage"))
        for look in looks:
            try:
                look()
            except (ServiceError, StorageError) as error:
                problems += error.problems
        if problems:
            raise ServiceError(problems)

    def _waiting_room(self) -> Queue:
        if self._standing.queue is None:
            raise StorageError(Problem("storage", "the storage that holds the queue", "none", "name one"))
        return self._standing.queue

    def _signing_key(self) -> bytes:
        return signing_key({**os.environ, **self._environment})


def _loaded(fleet: Fleet | Mapping[str, Any] | str | Path) -> Fleet:
    if isinstance(fleet, Fleet):
        return fleet
    if isinstance(fleet, Mapping):
        return validate_fleet(dict(fleet))
    return load_fleet(fleet)
