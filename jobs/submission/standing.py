"""How submitted audits stand: what the job server, the queue and the storage say, put together."""

from __future__ import annotations

from jobs.submission.backend import CALLER, Backend, JobInfo
from jobs.submission.endings import Endings
from jobs.submission.queue import Queue, Waiting
from jobs.submission.status import AuditStatus, recorded, settle, waiting_status
from jobs.submission.submission import Ending, folder_in, is_there, known_in
from services.errors import ServiceError
from services.records import Outcome


class Standing:
    """Asks all three.

    Args:
        backend: who runs audits.
        base: the storage; "" for none: then the folders are those that the job server names.
        offline: while the job server does not answer, say what the storage last recorded, instead of an error.
    """

    def __init__(self, backend: Backend, base: str, *, offline: bool) -> None:
        self._backend, self._base, self._offline = backend, base, offline
        self._endings = Endings()
        self.queue = Queue(base) if base else None

    def one(self, name: str, folder: str) -> AuditStatus | None:
        """An audit; None when nothing knows it."""
        answers = True
        try:
            info = self._backend.info(name)
        except ServiceError:  # what has its outcome keeps it, whether or not there is a job server just now
            if not self._offline and (not folder or not _is_final(self._endings.read(folder, ""))):
                raise
            info, answers = None, not self._offline
        if not folder and info is not None:
            folder = info.metadata.get("classwise.folder", "")
        waiting = self.queue.find(name) if self.queue is not None else None
        return self._settled(name, folder, info, waiting, answers=answers)

    def all(self) -> list[AuditStatus]:
        """All that the job server knows, and those in the storage; the latest first."""
        infos, answers = self._jobs()
        waiting = {each.id: each for each in self.queue.all()} if self.queue is not None else {}
        if self._base:
            home = {name: folder_in(self._base, name) for name in known_in(self._base)}
        else:
            home = {name: info.metadata.get("classwise.folder", "") for name, info in infos.items()}
        statuses = [
            self._settled(name, folder, infos.get(name), waiting.get(name), listed=True, answers=answers)
            for name, folder in home.items()
        ]
        known = [status for status in statuses if status is not None]
        return sorted(known, key=lambda status: (status.started, status.id), reverse=True)

    def active_callers(self) -> dict[str, str]:
        """Audits that wait or run in the storage, with who asked for each: one request, whatever has run before."""
        home = folder_in(self._base, "x-0123456789abcdef").rpartition("/")[0] if self._base else ""
        waiting = {each.id: each.caller for each in self.queue.all()} if self.queue is not None else {}
        jobs = [info for info in self._jobs()[0].values() if not info.phase.over]
        own = [info for info in jobs if info.metadata.get("classwise.folder", "").startswith(home)]
        return waiting | {info.id: info.metadata.get(CALLER, "") for info in own}

    def answers(self) -> bool:
        """Whether the job server does."""
        try:
            return self._jobs()[1]
        except ServiceError:
            return False

    def _jobs(self) -> tuple[dict[str, JobInfo], bool]:
        """The job server's jobs by id, and whether it answered."""
        try:
            return {info.id: info for info in self._backend.infos()}, True
        except ServiceError:
            if not self._offline:
                raise
            return {}, False

    def _settled(
        self,
        name: str,
        folder: str,
        info: JobInfo | None,
        waiting: Waiting | None,
        *,
        listed: bool = False,
        answers: bool = True,
    ) -> AuditStatus | None:
        """In a list what an attempt once said is not looked at again; asked for one audit, its folder always is."""
        attempt = info.attempt if info is not None and listed else ""
        ending = self._endings.read(folder, attempt) if folder else None
        if waiting is not None and not _has_begun(waiting, info, ending):
            return waiting_status(waiting, folder)
        if not answers:
            return recorded(name, folder, ending) if ending is not None or is_there(folder) else None
        reachable = ending is not None or info is None or not info.phase.over or is_there(folder)
        return settle(name, folder, info, ending, reachable=reachable)


def _has_begun(waiting: Waiting, info: JobInfo | None, ending: Ending | None) -> bool:
    """Whether a job or an ending says more than that the audit waits."""
    if ending is not None and ending.attempt == waiting.attempt:
        return True
    return info is not None and (not info.phase.over or info.attempt == waiting.attempt)


def _is_final(ending: Ending | None) -> bool:
    """Whether submitting the audit again would not start it again."""
    return ending is not None and ending.state == "finished" and ending.outcome is not Outcome.ERROR
