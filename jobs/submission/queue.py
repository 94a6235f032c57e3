"""Accepted audits that the job server has not begun yet, in the storage: a restart of whoever accepted them loses none.

::

    STORAGE/queue/ORDER-TIME-ATTEMPT-ID.json    priority and time are in the name, so that one listing is the queue

An entry is written once and never changed. It names a submission and decides nothing: what is audited is the signed
`fleet.json` of that submission, which its driver checks.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from jobs.submission.backend import ATTEMPT, CALLER
from jobs.submission.submission import ID_FORM, Submission, fleet_in
from services import limits
from services.errors import StorageError
from services.records import SCHEMA_VERSION
from services.storage import files, plainjson

HOME = "queue"
PRIORITIES = 100
"""Priorities go from 0 to one less; the highest goes first."""
KEPT = 10_000
_NAME = re.compile(rf"(\d{{4}})-(\d{{13}})-([0-9a-f]{{12}})-({ID_FORM.strip('^$')})\.json")


@dataclass(frozen=True)
class Waiting:
    """An accepted audit.

    Attributes:
        id, fleet, key: of its submission.
        attempt: which start of it this is to be.
        at: when it was accepted, as ISO time.
        caller: who asked for it; "" for the server itself.
        priority: from 0; the highest goes first, of equal ones the earliest.
    """

    id: str
    fleet: str
    key: str
    attempt: str
    at: str
    caller: str = ""
    priority: int = 0

    def metadata(self, folder: str) -> dict[str, str]:
        """What links the job to its submission; Ray takes text only."""
        return {
            "classwise.submission": self.id,
            "classwise.fleet": self.fleet,
            "classwise.key": self.key,
            "classwise.folder": folder,
            ATTEMPT: self.attempt,
            CALLER: self.caller,
        }


class Queue:
    """The queue of the storage `base`; processes may share it, and threads an object."""

    def __init__(self, base: str) -> None:
        self._home = files.join(base, HOME)
        self._known: dict[str, Waiting] = {}

    def put(self, submission: Submission, *, caller: str = "", priority: int = 0) -> Waiting:
        """Accept a submission whose files are written."""
        now = datetime.now(UTC)
        attempt = uuid.uuid4().hex[:12]
        at = now.isoformat(timespec="seconds")
        waiting = Waiting(submission.id, submission.fleet, submission.key, attempt, at, caller, priority)
        name = f"{PRIORITIES - priority:04d}-{int(time.time() * 1000):013d}-{attempt}-{submission.id}.json"
        body = json.dumps({"schema_version": SCHEMA_VERSION, **asdict(waiting)})
        files.write_bytes(files.join(self._home, name), body.encode())
        self._known[name] = waiting
        return waiting

    def all(self) -> list[Waiting]:
        """Those that wait, the next first; of one submission the first entry alone."""
        by_id: dict[str, Waiting] = {}
        for name in self._names():
            waiting = self._read(name)
            if waiting is not None:
                by_id.setdefault(waiting.id, waiting)
        return list(by_id.values())

    def find(self, submission: str) -> Waiting | None:
        """The entry of a submission; None when it does not wait."""
        name = next((name for name in self._names() if submission_in(name) == submission), None)
        return self._read(name) if name is not None else None

    def remove(self, submission: str) -> None:
        """Take a submission out of the queue, with every entry of it."""
        for name in self._names():
            if submission_in(name) == submission:
                with suppress(StorageError, FileNotFoundError):  # another took it out
                    files.remove(files.join(self._home, name))

    def _names(self) -> list[str]:
        files.forget_listing(self._home)
        return sorted(name for name in files.listing(self._home) if _NAME.fullmatch(name))

    def _read(self, name: str) -> Waiting | None:
        """An entry; None for one that has gone, or was not written by this program."""
        if name not in self._known:
            try:
                waiting = _waiting(
                    name, plainjson.parsed(files.read_bytes(files.join(self._home, name), most=limits.NOTE))
                )
            except (StorageError, ValueError, TypeError):
                return None
            while len(self._known) >= KEPT:
                self._known.pop(next(iter(self._known)), None)
            self._known[name] = waiting
        return self._known[name]


def submission_in(name: str) -> str:
    """The submission of an entry, by its file's name; "" for other files."""
    matched = _NAME.fullmatch(name)
    return matched[4] if matched else ""


def _waiting(name: str, body: Mapping[str, object]) -> Waiting:
    """The entry of a file: what is in the name counts, for others may write here."""
    matched = _NAME.fullmatch(name)
    if matched is None or not isinstance(body, dict):
        raise ValueError(name)
    fleet = fleet_in(matched[4])
    texts = {part: str(body.get(part, ""))[:200] for part in ("key", "at", "caller")}
    priority = min(max(PRIORITIES - int(matched[1]), 0), PRIORITIES - 1)
    return Waiting(matched[4], fleet, attempt=matched[3], priority=priority, **texts)
