"""Health, readiness and metrics of the API."""

from __future__ import annotations

import asyncio
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest
from fastapi import FastAPI
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from jobs.api import routes
from jobs.api.app import READY_SECONDS
from jobs.api.prometheus import ApiMetrics
from jobs.api.serve import build
from jobs.api.settings import Settings, digests, plain
from jobs.fleetfile.reading import validate_fleet
from jobs.schedules.scheduler import new_schedule
from jobs.schedules.store import Store
from jobs.submission.client import AuditClient
from jobs.terminal.remembered import Remembered

from .conftest import TOKEN
from .test_api import UNKNOWN, ended


def samples(caller: TestClient) -> dict[tuple[str, ...], float]:
    """Values by name and label values."""
    answer = caller.get("/metrics")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain")
    families = text_string_to_metric_families(answer.text)
    return {(s.name, *s.labels.values()): s.value for family in families for s in family.samples}


def test_the_schedulers_heartbeat_and_faulty_schedules_are_metrics(
    settings: Settings, tmp_path: Path, fleet: dict[str, Any]
) -> None:
    uri = f"sqlite:///{tmp_path}/schedules.db"
    store = Store(uri)
    now = datetime.now(UTC)
    for name in ("good", "bad"):
        store.add(new_schedule(name, validate_fleet({**fleet, "storage": str(tmp_path)}), "0 * * * *", now=now))
    store.beat("here", now)
    store.set_fault("bad", "it has no zone")
    data = plain(settings.model_copy(update={"schedules": uri}))
    app = build(data, digests(settings, os.environ))
    with TestClient(app, headers={"authorization": f"Bearer {TOKEN}"}) as caller:
        metrics = samples(caller)
    assert metrics[("classwise_scheduler_heartbeat_timestamp_seconds", "here")] == pytest.approx(now.timestamp())
    assert metrics[("classwise_schedules_faulty",)] == 1
    store.close()


def test_metrics_need_a_token_and_tell_nothing_without(app: FastAPI) -> None:
    with TestClient(app) as stranger:
        refused = stranger.get("/metrics")
    assert refused.status_code == 401
    assert "classwise_api" not in refused.text


def test_requests_are_counted_by_template_and_audits_by_state(caller: TestClient, fleet: dict[str, Any]) -> None:
    name = caller.post("/v1/audits", json=fleet).json()["id"]
    ended(caller, name)
    caller.get(f"/v1/audits/{UNKNOWN}")
    caller.get("/nowhere/at/all")
    metrics = samples(caller)
    assert metrics["classwise_api_requests_total", "POST", "/v1/audits", "202"] == 1
    assert metrics["classwise_api_submissions_total",] == 1
    assert metrics["classwise_api_requests_total", "GET", "/v1/audits/{id}", "404"] == 1
    assert metrics["classwise_api_requests_total", "GET", "none", "404"] == 1
    assert metrics["classwise_api_request_seconds_count", "/v1/audits"] == 1
    assert metrics["classwise_audits_submitted", "finished"] == 1
    assert metrics["classwise_audits_submitted", "running"] == 0
    assert metrics["classwise_job_server_up",] == 1
    assert not [key for key in metrics if name in str(key) or UNKNOWN in str(key)]


def test_scrapes_at_one_moment_ask_the_job_server_once_and_tell_the_same() -> None:
    requested = []

    class Slow:
        def list(self) -> list[Any]:
            requested.append(1)
            time.sleep(0.3)
            return []

        def job_server_answers(self) -> bool:
            return True

        def check_storage(self) -> None:
            pass

    metrics = ApiMetrics(cast(AuditClient, Slow()))
    with ThreadPoolExecutor(2) as pool:
        items = list(pool.map(lambda _: metrics.text(), range(2)))
    assert len(requested) == 1 and all(b"classwise_job_server_up 1.0" in text for text in items)


def test_refusals_are_counted_too(app: FastAPI, caller: TestClient) -> None:
    with TestClient(app) as stranger:
        stranger.get("/v1/audits")
    assert samples(caller)["classwise_api_requests_total", "GET", "none", "401"] == 1


def test_ready_says_what_is_not(caller: TestClient, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.terminal.remembered.monotonic", count(step=READY_SECONDS).__next__)
    assert caller.get("/ready").json()["status"] == "ready"
    storage = Path(settings.storage)
    for child in sorted(storage.rglob("*"), reverse=True):
        child.rmdir() if child.is_dir() else child.unlink()
    storage.rmdir()
    storage.write_text("a file where a folder should be")
    answer = caller.get("/ready")
    assert answer.status_code == 503
    assert answer.headers["retry-after"]
    (problem,) = answer.json()["problems"]
    assert problem["where"] == "storage"
    assert caller.get("/health").json()["status"] == "alive"
    storage.unlink()
    assert caller.get("/ready").status_code == 200


def test_a_failure_is_remembered_for_a_moment_so_that_strangers_cannot_hammer() -> None:
    from services.errors import Problem, ServiceError

    requested = []

    class Down:
        def check(self) -> None:
            requested.append(1)
            raise ServiceError(Problem("job server", "an answer", "none"))

    readiness = Remembered(Down().check, 60.0)
    for _ in range(5):
        with pytest.raises(ServiceError, match="job server"):
            readiness.get()
    assert len(requested) == 1


def test_descriptions_are_written_once_however_many_ask(app: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one of the API needs no token: written for each request, it kept the liveness probe waiting; so did
    forty that asked at once before the first was answered."""
    calls: list[str] = []
    described, schema = app.openapi, routes.json_schema
    monkeypatch.setattr(app, "openapi", lambda: (calls.append("api"), described())[1])
    monkeypatch.setattr(routes, "json_schema", lambda: (calls.append("fleet"), schema())[1])
    paths = {"/v1/openapi.json": described(), "/v1/schema": schema()}

    async def answered(path: str) -> dict[str, Any]:
        sent: list[dict[str, Any]] = []
        headers = [(b"authorization", f"Bearer {TOKEN}".encode())]
        scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": headers, "state": {}}

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        await app({**scope, "client": ("127.0.0.1", 1), "http_version": "1.1", "scheme": "http"}, receive, send)
        assert sent[0]["status"] == 200 and (b"content-type", b"application/json") in sent[0]["headers"]
        body: dict[str, Any] = json.loads(b"".join(each.get("body", b"") for each in sent[1:]))
        return body

    async def ask(path: str) -> list[dict[str, Any]]:
        return list(await asyncio.gather(*(answered(path) for _ in range(5))))

    for path, expected in paths.items():
        assert asyncio.run(asyncio.wait_for(ask(path), 60)) == [expected] * 5
    assert sorted(calls) == ["api", "fleet"]
