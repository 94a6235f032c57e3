"""The client against processes of this machine: every way an audit can end, and what submitting again does."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from jobs.submission.client import AuditClient
from jobs.submission.local_jobs import LocalJobs
from jobs.submission.status import State
from services.errors import ConfigError, Crashed, NotFinished, UnknownAudit
from services.records import Outcome

from .helpers import gated, modified, shards, wait_until

UNKNOWN = "digits-0123456789abcdef"


def test_one_fleet_and_key_is_one_audit_and_its_outcome_is_told(
    local_client: AuditClient, quick_fleet: dict[str, Any], tmp_path: Path
) -> None:
    fleet = gated(quick_fleet, 0.9999)
    with ThreadPoolExecutor(4) as pool:
        first, *others = pool.map(lambda _: local_client.submit(fleet, key="k"), range(4))
    assert {status.id for status in others} == {first.id}
    text = "".join(local_client.follow(first.id, poll=0.05))
    assert text == local_client.logs(first.id)
    assert len(re.findall(r"stage begins \[.*stage=measures shards=3 models=1", text)) == 1 and "digits: fail" in text
    ended = local_client.wait(first.id, timeout=60)
    assert (ended.state, ended.outcome, ended.exit_code) == (State.FINISHED, Outcome.FAIL, 1)
    assert len(list((tmp_path / "runs" / "audits" / "digits").iterdir())) == 1
    again = local_client.submit(fleet, key="k")
    assert (again.attempt, again.outcome) == (ended.attempt, Outcome.FAIL)
    assert local_client.result(first.id).audit_id == ended.audit_id
    link = json.loads((Path(ended.bundle) / "submission.json").read_text())
    assert (link["id"], link["key"], link["attempt"]) == (first.id, "k", ended.attempt)
    assert [status.id for status in local_client.list("digits")] == [first.id]
    assert local_client.list("other") == []
    assert local_client.cancel(first.id) == ended

    (Path(ended.folder) / "process.json").unlink()  # the outcome outlives who ran it
    later = local_client.status(first.id)
    assert (later.state, later.outcome, later.bundle) == (State.FINISHED, Outcome.FAIL, ended.bundle)
    assert local_client.submit(fleet, key="k").attempt == ended.attempt
    Path(ended.folder).rename(tmp_path / "elsewhere")
    with pytest.raises(UnknownAudit):
        local_client.status(first.id)


@pytest.mark.slow
def test_a_stopped_audit_goes_on_from_its_shards(
    local_client: AuditClient, slow_fleet: dict[str, Any], tmp_path: Path
) -> None:
    name = local_client.submit(slow_fleet).id
    wait_until(lambda: len(shards(tmp_path / "runs")) >= 1)
    with pytest.raises(NotFinished, match="one that is running"):
        local_client.result(name)
    with pytest.raises(NotFinished, match=r"to end within 0\.1 s, found an audit running; it goes on"):
        local_client.wait(name, timeout=0.1)
    stopped = local_client.cancel(name)
    assert (stopped.state, stopped.outcome, stopped.exit_code) == (State.STOPPED, None, 130)
    assert "run the same command to resume" in str(stopped.problems[0])
    kept = modified(shards(tmp_path / "runs"))
    with pytest.raises(NotFinished, match="submit it again"):
        local_client.result(name)
    again = local_client.submit(slow_fleet)
    assert again.id == name and again.attempt != stopped.attempt
    wait_until(lambda: len(shards(tmp_path / "runs")) > len(kept))
    assert modified(list(kept)) == kept
    assert local_client.cancel(name).state is State.STOPPED


def test_a_killed_audit_has_crashed_and_a_faulty_one_has_not(
    local_client: AuditClient, slow_fleet: dict[str, Any], quick_fleet: dict[str, Any]
) -> None:
    name = local_client.submit(slow_fleet).id
    folder = Path(local_client.status(name).folder)
    wait_until(lambda: (folder / "ending.json").exists())
    os.kill(json.loads(json.loads((folder / "process.json").read_text())["driver"])["pid"], signal.SIGKILL)
    ended = local_client.wait(name, timeout=20)
    assert (ended.state, ended.outcome, ended.exit_code) == (State.CRASHED, None, 4)
    with pytest.raises(Crashed, match="ended without saying an outcome"):
        local_client.result(name)

    broken = {**quick_fleet, "samples": {"uri": "npz:/none.npz"}}
    faulty = local_client.wait(local_client.submit(broken).id, timeout=60)
    assert (faulty.state, faulty.outcome, faulty.exit_code) == (State.FINISHED, Outcome.ERROR, 2)
    assert "/none.npz" in str(faulty.problems[0])
    with pytest.raises(NotFinished, match=r"/none\.npz"):
        local_client.result(faulty.id)
    assert local_client.submit(broken).attempt != faulty.attempt
    local_client.wait(faulty.id, timeout=60)


def test_what_is_not_there_is_named(local_client: AuditClient) -> None:
    for ask in (local_client.status, local_client.cancel, local_client.logs, local_client.result):
        with pytest.raises(UnknownAudit, match="classwise list"):
            ask(UNKNOWN)
    with pytest.raises(UnknownAudit, match="the id of a submitted audit"):
        local_client.status("../../etc/passwd")


def test_an_audit_that_is_stopped_before_it_began_was_stopped(
    local_client: AuditClient, slow_fleet: dict[str, Any]
) -> None:
    name = local_client.submit(slow_fleet).id
    stopped = local_client.cancel(name)
    assert (stopped.state, stopped.exit_code) == (State.STOPPED, 130)


def test_processes_need_a_local_storage() -> None:
    with pytest.raises(ConfigError, match="submit to a cluster"):
        LocalJobs("s3://bucket/runs")


def test_leaving_a_follower_stops_nothing(local_client: AuditClient, slow_fleet: dict[str, Any]) -> None:
    name = local_client.submit(slow_fleet).id
    parts = local_client.follow(name, poll=0.05)
    next(parts)
    parts.close()  # type: ignore[attr-defined]
    assert local_client.status(name).state is State.RUNNING
    assert not any(thread.name.startswith("classwise") for thread in threading.enumerate())
    assert local_client.cancel(name).state is State.STOPPED
