"""Hands accepted audits over to the job server, in the background: an answer to a caller never waits for it.

An entry of the queue stays until its audit has begun. So whatever ends in between (this process, the job server, the
cluster's head with all its records), the next look finds the entry and hands it over again. Handing over twice starts
nothing twice: the attempt is named in the entry, and a backend starts an attempt once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Collection, Mapping

from jobs.submission.backend import CALLER, AlreadySubmitted, Backend, JobInfo, Phase
from jobs.submission.queue import Queue, Waiting
from jobs.submission.submission import folder_in, read_ending
from services.errors import ServiceError, StorageError

AHEAD = 4
"""Jobs that wait at the job server at most: the others wait here, where their priorities count."""
SHARE = 3
"""Those of one caller: the next to come is handed over at once, however many came before from another."""
POLL_SECONDS = 1.0
IDLE_SECONDS = 5.0
RETRY_SECONDS = 10.0
MOST_RETRY_SECONDS = 300.0

_log = logging.getLogger("classwise.dispatcher")


class Dispatcher:
    """Looks at the queue of a storage until it is stopped; several on one storage double nothing.

    Args:
        backend: who runs audits.
        base: the storage.
        environment: variables of every audit.
    """

    def __init__(self, backend: Backend, base: str, environment: Mapping[str, str]) -> None:
        self._backend, self._base, self._environment = backend, base, dict(environment)
        self._queue = Queue(base)
        self._failed: dict[str, tuple[float, float]] = {}
        self._said = ""
        self._awake, self._over = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Work in a thread of its own."""
        self._over.clear()
        self._thread = threading.Thread(target=self._run, name="dispatcher", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Do not begin another look; what waits is found by the next dispatcher."""
        self._over.set()
        self._awake.set()
        if self._thread is not None:
            self._thread.join(5.0)

    def wake(self) -> None:
        """Look now: something was accepted."""
        self._awake.set()

    def look(self) -> int:
        """Take out what has begun and hand over what may; returns how many still wait."""
        entries = self._queue.all()
        attempts = {entry.attempt for entry in entries}
        self._failed = {attempt: wait for attempt, wait in self._failed.items() if attempt in attempts}
        if not entries:
            return 0
        infos = {info.id: info for info in self._backend.infos()}
        left, due = 0, list[Waiting]()
        for entry in entries:
            info = infos.get(entry.id)
            if self._has_begun(entry, info):
                self._queue.remove(entry.id)
                continue
            left += 1
            due += [entry] if not _is_own(entry, info) and self._may_try(entry) else []
        self._hand_over_in_turn(due, infos.values())
        return left

    def _hand_over_in_turn(self, due: list[Waiting], infos: Collection[JobInfo]) -> None:
        """The highest priority first; of equal ones that of the caller with the fewest at the job server; then by time.

        So nobody waits for all that another submitted before.
        """
        active = Counter(info.metadata.get(CALLER, "") for info in infos if not info.phase.over)
        pending = Counter(info.metadata.get(CALLER, "") for info in infos if info.phase is Phase.PENDING)
        while due and pending.total() < AHEAD and not self._over.is_set():
            entry = min(due, key=lambda each: (-each.priority, active[each.caller]))
            due.remove(entry)
            if (not entry.caller or pending[entry.caller] < SHARE) and self._hand_over(entry):
                active[entry.caller] += 1
                pending[entry.caller] += 1

    def _run(self) -> None:
        while not self._over.is_set():
            self._awake.clear()
            try:
                seconds = POLL_SECONDS if self.look() else IDLE_SECONDS
                self._said = ""
            except (ServiceError, StorageError) as error:
                seconds = POLL_SECONDS
                self._say(str(error))
            except Exception:
                seconds = IDLE_SECONDS
                _log.exception("a look at the queue failed; it goes on")
            self._awake.wait(seconds)

    def _has_begun(self, entry: Waiting, info: JobInfo | None) -> bool:
        if info is not None and info.phase is not Phase.PENDING and (_is_own(entry, info) or not info.phase.over):
            return True
        if info is not None and not info.phase.over and not _is_own(entry, info):  # of another submitter
            return True
        ending = read_ending(folder_in(self._base, entry.id))
        return ending is not None and ending.attempt == entry.attempt

    def _may_try(self, entry: Waiting) -> bool:
        return time.monotonic() >= self._failed.get(entry.attempt, (0.0, 0.0))[0]

    def _hand_over(self, entry: Waiting) -> bool:
        """Start the audit; False when the job server refused it for now: others go on meanwhile."""
        folder = folder_in(self._base, entry.id)
        if (now := self._queue.find(entry.id)) is None or now.attempt != entry.attempt:  # cancelled since the listing
            return False
        try:
            self._backend.start(entry.id, folder, entry.metadata(folder), self._environment)
        except AlreadySubmitted:
            return True
        except ServiceError as error:
            wait = min(2 * self._failed.get(entry.attempt, (0.0, RETRY_SECONDS / 2))[1], MOST_RETRY_SECONDS)
            self._failed[entry.attempt] = (time.monotonic() + wait, wait)
            _log.warning("%s was not taken by the job server, tried again in %.0f s: %s", entry.id, wait, error)
            return False
        self._failed.pop(entry.attempt, None)
        _log.info("%s handed over for %s", entry.id, entry.caller or "the server")
        if self._queue.find(entry.id) is None:  # cancelled while it was handed over
            self._backend.stop(entry.id)
        return True

    def _say(self, text: str) -> None:
        if text != self._said:
            self._said = text
            _log.warning("accepted audits wait: %s", text)


def _is_own(entry: Waiting, info: JobInfo | None) -> bool:
    return info is not None and info.attempt == entry.attempt
