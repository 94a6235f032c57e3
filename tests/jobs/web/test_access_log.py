"""A line a request, with its caller and without what stood behind the question mark."""

from __future__ import annotations

import logging
from hashlib import sha256
from typing import Any

import pytest
from starlette.testclient import TestClient

from jobs.web.access_log import AccessLog
from jobs.web.guard import Guard, Rates
from services.telemetry import logs
from services.telemetry.logs import LogSetting


@pytest.fixture
def client(inner: Any) -> TestClient:
    digests = {"ci": sha256(b"token-of-ci").digest()}
    guard = Guard(inner, digests=digests, rates=Rates(1000), body=10, open_paths=frozenset({"/health"}))
    return TestClient(AccessLog(guard, quiet=frozenset({"/health"})), headers={"authorization": "Bearer token-of-ci"})


@pytest.fixture
def lines(capfd: pytest.CaptureFixture[str]) -> Any:
    logs.configure(LogSetting("text", "info"))
    yield lambda: [line for line in capfd.readouterr().err.splitlines() if "classwise.access" in line]
    logs.reset()


def test_a_line_says_who_what_and_what_came_of_it(client: TestClient, lines: Any) -> None:
    client.get("/v1/audits?token=swordfish-0123456789&fleet=x")
    (line,) = lines()
    assert "GET /v1/audits 200 [caller=ci address=testclient ms=" in line and line[:4].isdigit()
    assert "swordfish" not in line and "?" not in line


def test_a_refusal_has_no_caller(client: TestClient, lines: Any) -> None:
    client.get("/v1/audits", headers={"authorization": "Bearer wrong"})
    (line,) = lines()
    assert "GET /v1/audits 401 [caller= address=" in line


def test_a_path_stays_one_line(client: TestClient, lines: Any) -> None:
    client.get("/v1/%0a2026-01-01 info forged%1b[2J")
    (line,) = lines()
    assert "GET /v1/?2026-01-01 info forged?[2J 404" in line


def test_probes_are_silent_while_they_are_well(client: TestClient, lines: Any, caplog: Any) -> None:
    with caplog.at_level(logging.DEBUG, "classwise.access"):
        client.get("/health")
    assert [record.levelname for record in caplog.records if record.name == "classwise.access"] == ["DEBUG"]
