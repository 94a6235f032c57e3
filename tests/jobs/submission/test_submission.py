"""Names, endings and what is made of them: all pure or on a local folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.fleetfile.reading import validate_fleet
from jobs.submission.backend import JobInfo, Phase
from jobs.submission.status import State, settle
from jobs.submission.submission import (
    Ending,
    checked_id,
    folder_in,
    read_ending,
    read_fleet,
    submission_of,
    write_ending,
    write_fleet,
)
from services.errors import ConfigError, Problem, StorageError, UnknownAudit
from services.records import Outcome

FLEET: dict[str, Any] = {
    "fleet": "Shop.v2",
    "models": [{"name": "m", "uri": "logits:/data/m.npz"}],
    "samples": {"uri": "npz:/data/s.npz"},
    "storage": "/srv/runs",
}
NAME = "Shop.v2-0123456789abcdef"


def test_the_same_fleet_and_key_have_one_id_whatever_the_order_of_fields_and_the_defaults_written_out() -> None:
    plain = validate_fleet(FLEET)
    spelled = validate_fleet({**dict(reversed(FLEET.items())), "seed": 0, "fp_lambda": 0.5})
    assert submission_of(plain, "k") == submission_of(spelled, "k")
    others = [submission_of(plain, ""), submission_of(plain, "l"), submission_of(validate_fleet({**FLEET, "seed": 1}))]
    assert len({submission_of(plain, "k").id, *(other.id for other in others)}) == 4
    assert submission_of(plain).id.startswith("Shop.v2-")


def test_what_is_written_is_what_is_audited(tmp_path: Path) -> None:
    fleet = validate_fleet({**FLEET, "storage": str(tmp_path), "measures": ["clean", {"name": "pgd", "steps": 7}]})
    submission = submission_of(fleet, "2026-11-28")
    write_fleet(submission, fleet)
    assert read_fleet(submission.folder) == (submission, fleet, None)


@pytest.mark.parametrize("storage", ["runs", "./runs", "../runs", "~/runs"])
def test_a_storage_that_means_something_else_on_the_cluster_is_refused(storage: str) -> None:
    with pytest.raises(ConfigError, match="an absolute path or a URL"):
        submission_of(validate_fleet({**FLEET, "storage": storage}))


@pytest.mark.parametrize("key", [" ", "a\n", "a\x00", "é", "x" * 201, " a", "a "])
def test_keys_are_short_printable_ascii(key: str) -> None:
    with pytest.raises(ConfigError, match="printable ASCII"):
        submission_of(validate_fleet(FLEET), key)


@given(st.text(max_size=30) | st.sampled_from(["../etc", "a/../../b-0123456789abcdef", "-0123456789abcdef", ""]))
def test_no_text_that_is_no_id_becomes_a_path(text: str) -> None:
    with pytest.raises(UnknownAudit):
        folder_in("/srv/runs", text)


def test_an_id_is_one_part_of_a_path() -> None:
    assert folder_in("s3://bucket/runs/", NAME) == f"s3://bucket/runs/submissions/{NAME}"
    with pytest.raises(UnknownAudit):
        checked_id(f"{NAME}\n")


def test_an_ending_is_read_back_and_a_damaged_one_counts_as_none(tmp_path: Path) -> None:
    ending = Ending("a", "finished", Outcome.ERROR, problems=(Problem("x", "y", "z", "w"),))
    write_ending(str(tmp_path), ending)
    assert read_ending(str(tmp_path)) == ending
    (tmp_path / "ending.json").write_text('{"state": "finis')
    assert read_ending(str(tmp_path)) is None
    assert read_ending(str(tmp_path / "none")) is None


def test_a_folder_without_a_fleet_says_so(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="a submitted fleet, found nothing"):
        read_fleet(str(tmp_path))
    (tmp_path / "fleet.json").write_text("[]")
    with pytest.raises(StorageError, match="a submitted fleet, found something else"):
        read_fleet(str(tmp_path))


def job(phase: Phase, attempt: str = "a") -> JobInfo:
    metadata: Mapping[str, str] = {"classwise.attempt": attempt, "classwise.fleet": "Shop.v2"}
    return JobInfo(NAME, phase, "its last words", metadata)


FINISHED = Ending("a", "finished", Outcome.FAIL, bundle="/b")
RUNNING = Ending("a", "running")


@pytest.mark.parametrize(
    ("info", "ending", "state", "outcome", "code"),
    [
        (job(Phase.PENDING), None, State.QUEUED, None, 0),
        (job(Phase.RUNNING), RUNNING, State.RUNNING, None, 0),
        (job(Phase.RUNNING), FINISHED, State.RUNNING, None, 0),
        (job(Phase.FAILED), FINISHED, State.FINISHED, Outcome.FAIL, 1),
        (job(Phase.SUCCEEDED), FINISHED, State.FINISHED, Outcome.FAIL, 1),
        (job(Phase.FAILED), RUNNING, State.CRASHED, None, 4),
        (job(Phase.FAILED), None, State.CRASHED, None, 4),
        (job(Phase.SUCCEEDED), None, State.CRASHED, None, 4),
        (job(Phase.FAILED, "b"), FINISHED, State.CRASHED, None, 4),
        (job(Phase.STOPPED), RUNNING, State.STOPPED, None, 130),
        (job(Phase.STOPPED), FINISHED, State.FINISHED, Outcome.FAIL, 1),
        (job(Phase.FAILED), Ending("a", "stopped"), State.STOPPED, None, 130),
        (None, FINISHED, State.FINISHED, Outcome.FAIL, 1),
        (None, RUNNING, State.CRASHED, None, 4),
    ],
)
def test_a_failed_gate_a_crash_and_a_stop_are_told_apart(
    info: JobInfo | None, ending: Ending | None, state: State, outcome: Outcome | None, code: int
) -> None:
    status = settle(NAME, "/f", info, ending)
    assert status is not None
    assert (status.state, status.outcome, status.exit_code) == (state, outcome, code)
    assert status.fleet == "Shop.v2"
    assert bool(status.bundle) == (state is State.FINISHED)


def test_an_outcome_that_cannot_be_seen_is_no_crash() -> None:
    status = settle(NAME, "/f", job(Phase.FAILED), None, reachable=False)
    assert status is not None
    assert (status.state, status.exit_code, status.resumable) == (State.UNREACHABLE, 2, False)
    assert "ask the API" in status.message


def test_nothing_known_is_nothing() -> None:
    assert settle(NAME, "", None, None) is None
