"""A job server whose list of jobs is asked for in the background, so that no answer of ours waits for it.

What it said last counts for `FRESH_SECONDS`; after that it does not answer, which is an error at once and not after a
timeout. Starting, stopping and logs are asked of the server itself.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from jobs.submission.backend import Backend, JobInfo, Phase
from services.errors import Problem, ServiceError

EVERY_SECONDS = 2.0
FRESH_SECONDS = 30.0
FIRST_SECONDS = 2.0
"""How long the first questions wait for the first answer, all together."""


@dataclass
class _Seen:
    """The jobs at a time; `at` is of the moment before the question."""

    at: float = float("-inf")
    infos: dict[str, JobInfo] = field(default_factory=dict)
    problem: ServiceError | None = None


class WatchedJobs:
    """The backend, watched from now on.

    Args:
        backend: of a server that may not answer.
        every: seconds between two questions.
        fresh: seconds for which an answer counts.
    """

    def __init__(self, backend: Backend, *, every: float = EVERY_SECONDS, fresh: float = FRESH_SECONDS) -> None:
        self.address = backend.address
        self._backend, self._every, self._fresh = backend, every, fresh
        self._seen = _Seen()
        self._started: dict[str, tuple[float, JobInfo]] = {}
        self._lock, self._first = threading.Lock(), threading.Event()
        self._began = time.monotonic()
        threading.Thread(target=self._run, name="job-server", daemon=True).start()

    def start(self, name: str, folder: str, metadata: Mapping[str, str], environment: Mapping[str, str]) -> None:
        """Start it, and count it as waiting until the next list has it."""
        self._backend.start(name, folder, metadata, environment)
        with self._lock:
            self._started[name] = (time.monotonic(), JobInfo(name, Phase.PENDING, metadata=dict(metadata)))

    def info(self, name: str) -> JobInfo | None:
        """Of the last list.

        Raises:
            ServiceError: the server has not answered for too long.
        """
        return self._infos().get(name)

    def infos(self) -> list[JobInfo]:
        """The last list; raises as `info`."""
        return list(self._infos().values())

    def logs(self, name: str) -> str:
        """As the server says now."""
        return self._backend.logs(name)

    def stop(self, name: str) -> None:
        """Ask the server now."""
        self._backend.stop(name)

    def check(self) -> None:
        """Ask the server now."""
        self._backend.check()

    def _infos(self) -> dict[str, JobInfo]:
        self._first.wait(max(0.0, self._began + FIRST_SECONDS - time.monotonic()))
        with self._lock:
            if time.monotonic() - self._seen.at > self._fresh:
                problem = Problem(self.address, "a job server that answers", "none for a while", "start it")
                raise self._seen.problem or ServiceError(problem)
            return {**self._seen.infos, **{name: info for name, (_, info) in self._started.items()}}

    def _run(self) -> None:
        while True:
            self._ask()
            self._first.set()
            time.sleep(self._every)

    def _ask(self) -> None:
        at = time.monotonic()
        try:
            infos = {info.id: info for info in self._backend.infos()}
        except ServiceError as error:
            with self._lock:
                self._seen.problem = error
            return
        with self._lock:
            self._seen = _Seen(at, infos)
            self._started = {name: each for name, each in self._started.items() if each[0] >= at}
