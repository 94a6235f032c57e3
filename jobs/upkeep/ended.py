"""Which submissions and queue entries of a storage go: those of audits that ended long ago, and those of nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime

from jobs.submission.queue import Queue, submission_in
from jobs.submission.submission import ID_FORM, folder_in, is_there, read_ending
from services.errors import StorageError
from services.storage import files
from services.storage.files import Entry
from tracking.bundle.bundle import BUNDLE

DAY = 86_400.0


def submissions_to_go(
    base: str, entries: Sequence[Entry], waiting: set[str], days: float | None, fleet: str, now: float
) -> Iterator[tuple[str, int, str]]:
    """Path, bytes and reason of each submission that nothing was written to for so long, and that has no bundle.

    One of `waiting`, those in the queue, stays. What was killed ended when it wrote last.
    """
    if days is None:
        return
    sizes: dict[str, int] = {}
    last: dict[str, float] = {}
    for entry in entries:
        name, slash, _ = entry.path.partition("/")
        if slash and re.fullmatch(ID_FORM, name) and fleet in ("", name.rpartition("-")[0]):
            sizes[name] = sizes.get(name, 0) + entry.size
            last[name] = max(last.get(name, 0.0), now if entry.modified is None else entry.modified)
    for name in sorted(sizes):
        idle = (now - last[name]) / DAY
        if idle > days and name not in waiting and not _has_bundle(base, name):
            yield f"submissions/{name}", sizes[name], f"ended {idle:.0f} days ago, without a bundle that is kept"


def entries_to_go(base: str, entries: Sequence[Entry], now: float) -> Iterator[tuple[str, int, str]]:
    """Path, bytes and reason of each entry of the queue that is a day old and whose submission is gone."""
    for entry in entries:
        submission = submission_in(entry.path)
        old = entry.modified is not None and now - entry.modified > DAY
        if submission and old and not is_there(folder_in(base, submission)):
            yield f"queue/{entry.path}", entry.size, "there is no such submission"


def is_at_work(base: str, name: str, now: float) -> bool:
    """Whether a submission waits, or said within the last day that it runs."""
    if Queue(base).find(name) is not None:
        return True
    ending = read_ending(folder_in(base, name))
    try:
        begun = datetime.fromisoformat(ending.at).timestamp() if ending is not None else 0.0
    except ValueError:
        begun = 0.0
    return ending is not None and ending.state == "running" and now - begun < DAY


def _has_bundle(base: str, name: str) -> bool:
    try:
        ending = read_ending(folder_in(base, name))
        return ending is not None and bool(ending.bundle) and files.exists(files.join(ending.bundle, BUNDLE))
    except StorageError:  # it does not say: nothing goes
        return True
