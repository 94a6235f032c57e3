"""A list of many audits reads what changed, and never says what is not true any more."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.submission import endings
from jobs.submission.client import AuditClient
from jobs.submission.endings import Endings
from jobs.submission.ray_jobs import RayJobs
from jobs.submission.status import State
from jobs.submission.submission import Ending, write_ending
from services.errors import ServiceError
from services.records import Outcome
from services.storage import files


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is read from the storage."""
    observed: list[str] = []
    real = files.read_bytes
    monkeypatch.setattr(files, "read_bytes", lambda url: (observed.append(url), real(url))[1])
    return observed


def folders(home: Path, count: int) -> list[str]:
    results = [str(home / f"f-{number:016x}") for number in range(count)]
    for number, folder in enumerate(results):
        write_ending(folder, Ending(f"a{number}", "finished", Outcome.PASS))
    return results


def test_what_has_ended_is_read_once(tmp_path: Path, reads: list[str]) -> None:
    kept, there = Endings(), folders(tmp_path, 30)
    for _ in range(3):
        for known in (True, False):  # by the job server, and when it has forgotten all
            results = [kept.read(folder, f"a{number}" if known else "") for number, folder in enumerate(there)]
            assert [each.attempt for each in results if each] == [f"a{number}" for number in range(30)]
    assert len(reads) == 30


def test_another_attempt_and_one_that_runs_are_read_again(tmp_path: Path, reads: list[str]) -> None:
    kept, (folder,) = Endings(), folders(tmp_path, 1)
    assert kept.read(folder, "a0") == kept.read(folder, "")
    write_ending(folder, Ending("second", "running"))
    for _ in range(2):
        again = kept.read(folder, "second")
        assert again is not None and (again.attempt, again.state) == ("second", "running")
    assert len(reads) == 3
    write_ending(folder, Ending("second", "finished", Outcome.FAIL))
    for attempt in ("second", ""):
        ended = kept.read(folder, attempt)
        assert ended is not None and ended.outcome is Outcome.FAIL
    assert len(reads) == 4


def test_what_was_removed_is_not_remembered(tmp_path: Path) -> None:
    kept, (folder,) = Endings(), folders(tmp_path, 1)
    assert kept.read(folder, "") is not None
    files.remove(folder)
    assert kept.read(folder, "") is None and kept.read(str(tmp_path / "none"), "x") is None


def test_memory_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: list[str]) -> None:
    monkeypatch.setattr(endings, "KEPT", 5)
    kept, there = Endings(), folders(tmp_path, 8)
    for number, folder in enumerate(there):
        assert kept.read(folder, f"a{number}") is not None
    for number in range(7, 2, -1):  # the last five are remembered
        kept.read(there[number], f"a{number}")
    assert len(reads) == 8
    kept.read(there[0], "a0")
    assert len(reads) == 9


@pytest.mark.filterwarnings("default::DeprecationWarning", "default::FutureWarning")
def test_while_the_job_server_is_down_an_outcome_is_told_and_nothing_else(tmp_path: Path) -> None:
    client = AuditClient(RayJobs("http://127.0.0.1:9"), storage=str(tmp_path))
    message = [("finished", Outcome.FAIL), ("finished", Outcome.ERROR), ("stopped", None), ("running", None)]
    for number, (state, outcome) in enumerate(message):
        write_ending(str(tmp_path / "submissions" / f"f-{number:016x}"), Ending("a", state, outcome, bundle="b"))  # type: ignore[arg-type]
    output = client.finished(f"f-{0:016x}")
    assert (output.state, output.outcome, output.bundle) == (State.FINISHED, Outcome.FAIL, "b")
    for number in (1, 2, 3, 4):  # these may have been started again; of the last nothing is known
        with pytest.raises(ServiceError, match="expected Ray's job server"):
            client.status(f"f-{number:016x}")
    with pytest.raises(ServiceError, match="expected Ray's job server"):
        client.list()
