"""The progress that a submitted audit reports while it runs: ``progress.json`` beside ``ending.json``.

Rewritten whole at most once a second, and so seldom that writing takes no more than a twentieth of the time: the
storage may be far away. A write that fails costs the audit nothing; the first failure is said.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pydantic import TypeAdapter, ValidationError

from jobs.terminal import stop
from jobs.terminal.progress import Rate, Reporter
from services import limits
from services.errors import StorageError
from services.records import SCHEMA_VERSION, Receipt
from services.storage import files

PROGRESS = "progress.json"
EVERY_SECONDS = 1.0
_SHARE = 20.0


@dataclass(frozen=True)
class Progress:
    """How far an audit is.

    Attributes:
        attempt: which start of it wrote this.
        stage: what it does: preflight, logits, measures ...
        models, done, total: models of the stage, its finished shards, all its shards.
        images_per_second: over the stage; None before its first shard.
        model: of the shard that was finished last.
        seconds: since the stage began.
        at: when this was written, UTC.
    """

    attempt: str
    stage: str
    models: int
    done: int
    total: int
    images_per_second: float | None = None
    model: str = ""
    seconds: float = 0.0
    at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    schema_version: int = SCHEMA_VERSION


_PROGRESS: TypeAdapter[Progress] = TypeAdapter(Progress)


def read_progress(folder: str, attempt: str) -> Progress | None:
    """How far that attempt is; None when it has not said, or what is there cannot be read."""
    path = files.join(folder, PROGRESS)
    try:
        progress = _PROGRESS.validate_json(files.read_bytes(path, most=limits.NOTE)) if files.exists(path) else None
    except (ValidationError, StorageError):
        return None
    return progress if progress is not None and progress.attempt == attempt else None


class ProgressReporter:
    """A reporter that passes everything on, and writes how far the audit is.

    Args:
        inner: who hears it first.
        folder: of the submission.
        clock: seconds that only grow.
    """

    def __init__(self, inner: Reporter, folder: str, attempt: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._inner = inner
        self._path = files.join(folder, PROGRESS)
        self._clock = clock
        self._progress = Progress(attempt, "", 0, 0, 0)
        self._began = self._next = clock()
        self._rate = Rate(self._began)
        self._failed = False

    def stage(self, name: str, shards: int, models: int) -> None:
        """A stage begins."""
        self._inner.stage(name, shards, models)
        self._began = self._clock()
        self._rate = Rate(self._began)
        self._progress = Progress(self._progress.attempt, name, models, 0, shards)
        self._write(self._began)

    def done(self, receipt: Receipt) -> None:
        """One shard is done."""
        self._inner.done(receipt)
        now, progress = self._clock(), self._progress
        rate = self._rate.add(receipt, now)
        name, since = receipt.task.model.name, round(now - self._began, 1)
        self._progress = Progress(
            progress.attempt,
            progress.stage,
            progress.models,
            progress.done + 1,
            progress.total,
            round(rate, 1),
            name,
            since,
        )
        if now >= self._next or self._progress.done == progress.total:
            self._write(now)

    def remaining(self, share: float, seconds: float) -> None:
        """How far the stage is."""
        self._inner.remaining(share, seconds)

    def note(self, text: str) -> None:
        """Something worth a line."""
        self._inner.note(text)

    def _write(self, now: float) -> None:
        try:
            files.write_bytes(self._path, _PROGRESS.dump_json(self._progress))
        except Exception as error:  # of the storage's own library, too
            if not self._failed:
                self._inner.note(f"progress cannot be written, the audit goes on: {error}")
            self._failed = True
            stop.check()
        self._next = now + max(EVERY_SECONDS, _SHARE * (self._clock() - now))
