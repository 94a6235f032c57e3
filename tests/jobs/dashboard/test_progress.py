"""What a running audit tells of its progress: seldom, whole, and at no cost when it cannot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobs.submission.client import AuditClient
from jobs.submission.heartbeat import read_progress
from jobs.submission.local_jobs import LocalJobs
from jobs.terminal.progress import Quiet
from services.storage import files

from .conftest import Audit


class Notes(Quiet):
    """Remembers what was worth a line, and how many shards were heard of."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.shards = 0

    def note(self, text: str) -> None:
        self.notes.append(text)

    def done(self, receipt: Any) -> None:
        self.shards += 1


def test_progress_is_written_at_a_stage_s_begin_its_end_and_at_most_once_a_second(base: Path) -> None:
    audit = Audit(base, Notes())

    def done() -> int:
        progress = read_progress(str(audit.folder), "one")
        assert progress is not None
        return progress.done

    audit.telling.stage("measures", 6, 2)
    observed = [done()]
    for pause in (0.1, 0.1, 2.0, 0.1, 0.1, 0.1):
        audit.clock.now += pause - 2.0  # a shard itself takes two seconds
        audit.shard()
        observed.append(done())
    assert observed == [0, 0, 0, 3, 3, 3, 6], "the first second, then a write, then only the last shard"
    assert read_progress(str(audit.folder), "another attempt") is None


def test_slow_storage_is_written_to_more_seldom(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    audit = Audit(base, Notes())
    writes = []

    def slow(url: str, data: bytes) -> None:
        writes.append(url)
        audit.clock.now += 1.0

    monkeypatch.setattr(files, "write_bytes", slow)
    audit.telling.stage("measures", 100, 1)
    for _ in range(30):
        audit.shard()
    assert len(writes) == 4 and audit.clock.now == 64, "a write that takes a second, each twenty seconds"


def test_a_write_that_fails_is_said_once_and_costs_nothing(base: Path) -> None:
    notes = Notes()
    audit = Audit(base, notes)
    (audit.folder / "progress.json").mkdir()
    audit.telling.stage("measures", 2, 1)
    audit.shard()
    audit.shard()
    assert notes.shards == 2 and len(notes.notes) == 1 and "the audit goes on" in notes.notes[0]
    assert read_progress(str(audit.folder), "one") is None


def test_damaged_progress_is_none(base: Path) -> None:
    audit = Audit(base, Notes())
    (audit.folder / "progress.json").write_text('{"attempt": "one"')
    assert read_progress(str(audit.folder), "one") is None


def test_a_submitted_audit_tells_its_progress(digits_fleet: dict[str, Any]) -> None:
    base = digits_fleet["storage"]
    client = AuditClient(LocalJobs(base), storage=base, environment={"OMP_NUM_THREADS": "1"})
    status = client.submit({**digits_fleet, "measures": ["clean"]})
    ended = client.wait(status.id, timeout=300, poll=0.2)
    assert ended.outcome is not None
    progress = read_progress(ended.folder, ended.attempt)
    assert progress is not None and progress.total > 0 and progress.done == progress.total and progress.models == 3
    assert progress.images_per_second is not None and progress.images_per_second > 0
