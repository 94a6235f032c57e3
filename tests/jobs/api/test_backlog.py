"""What of a storage waits longer than it should."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from jobs.api.backlog import OVERTIME, Backlog
from jobs.api.serve import build
from jobs.api.settings import Settings, digests, plain
from jobs.fleetfile.reading import validate_fleet
from jobs.schedules.schedule import FiringState
from jobs.schedules.scheduler import new_schedule
from jobs.schedules.store import Store
from jobs.submission.queue import Queue
from jobs.submission.status import AuditStatus, State
from jobs.submission.submission import Ending, Submission, folder_in, write_ending
from services.records import AuditResult
from tracking.bundle.bundle import folder_of, write_bundle
from tracking.bundle.marker import record

from .conftest import TOKEN
from .test_operations import samples

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)


def test_the_oldest_of_the_queue_is_its_age(tmp_path: Path) -> None:
    backlog, queue = Backlog(str(tmp_path), tracked=True), Queue(str(tmp_path))
    assert backlog.queue(NOW) == (0, 0.0)
    for number in (1, 2):
        queue.put(Submission(f"f-{number:016x}", "f", "", "unused"))
    count, oldest = backlog.queue(datetime.now(UTC) + timedelta(hours=2))
    assert count == 2 and oldest == pytest.approx(7200, abs=60)


def test_uploads_wait_until_they_were_made_somewhere(tmp_path: Path, board_audit: Callable[..., AuditResult]) -> None:
    backlog = Backlog(str(tmp_path), tracked=True)
    folders = []
    for name, tracking in (("20261128T010000Z-1", None), ("20261128T020000Z-2", {"enabled": False})):
        audit = board_audit(name, {"first": ({}, {"clean": 0.9})})
        if tracking is not None:
            audit.config["tracking"] = tracking
        folders.append(folder_of(str(tmp_path), "robust", name))
        write_bundle(audit, folders[-1])
    (tmp_path / "audits" / "robust" / "20261128T030000Z-3" / "tables").mkdir(parents=True)  # being written
    (tmp_path / "audits" / "robust" / "accepted.json").write_text("{}")
    assert backlog.uploads() == 1  # the second was not to be uploaded
    assert Backlog(str(tmp_path), tracked=False).uploads() == 0
    record(folders[0], "http://mlflow", {"parent_run_id": "r"})
    assert backlog.uploads() == 0


def test_an_audit_is_late_by_the_deadline_of_its_own_fleet(tmp_path: Path) -> None:
    def running(name: str, deadline: object, minutes: float, state: str = "running") -> AuditStatus:
        folder = folder_in(str(tmp_path), f"{name}-{'0' * 16}")
        Path(folder).mkdir(parents=True)
        body = {"fleet": {"resources": {"deadline": deadline}}}
        (Path(folder) / "fleet.json").write_text(json.dumps(body))
        write_ending(folder, Ending("a", "running", at=(NOW - timedelta(minutes=minutes)).isoformat()))
        return AuditStatus(f"{name}-{'0' * 16}", State(state), folder=folder, attempt="a")

    limit = 600.0
    statuses = [
        running("late", limit, (limit + OVERTIME) / 60 + 1),
        running("soon", limit, (limit + OVERTIME) / 60 - 1),
        running("free", None, 10_000),
        running("odd", "x", 10_000),
        running("waits", limit, 10_000, "queued"),
        AuditStatus("lost-" + "0" * 16, State.RUNNING, folder=str(tmp_path / "nowhere"), attempt="a"),
    ]
    backlog = Backlog(str(tmp_path), tracked=True)
    assert [backlog.overdue([each], NOW) for each in statuses] == [1, 0, 0, 0, 0, 0]
    assert backlog.overdue(statuses, NOW) == 1


def test_metrics_say_what_waits_and_that_the_storage_is_gone(
    settings: Settings, tmp_path: Path, fleet: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = f"sqlite:///{tmp_path}/schedules.db"
    store = Store(uri)
    now = datetime.now(UTC)
    known = new_schedule("night", validate_fleet({**fleet, "storage": str(tmp_path)}), "0 * * * *", now=now)
    store.add(known)
    for hours in (1, 30):
        store.fire(known, now - timedelta(hours=hours))
    for firing in store.firings():
        store.end(firing, FiringState.LOST, now)
    store.close()
    Queue(settings.storage).put(Submission("f-" + "0" * 16, "f", "", "unused"))
    data = plain(settings.model_copy(update={"schedules": uri}))
    with TestClient(build(data, digests(settings, os.environ)), headers={"authorization": f"Bearer {TOKEN}"}) as caller:
        metrics = samples(caller)
    assert metrics["classwise_firings_lost_a_day",] == 1
    assert metrics["classwise_storage_up",] == 1 and metrics["classwise_queue_oldest_seconds",] < 60
    down = {**data, "storage": "s3://nowhere/classwise", "address": "http://127.0.0.1:9"}  # closed ports, both
    monkeypatch.setenv("CLASSWISE_SIGNING_KEY", "0123456789abcdef" * 2)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    gone = TestClient(build(down, digests(settings, os.environ)), headers={"authorization": f"Bearer {TOKEN}"})
    metrics = samples(gone)
    assert metrics["classwise_storage_up",] == metrics["classwise_job_server_up",] == 0
