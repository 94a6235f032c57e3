"""What one caller can hold of what there is little of: places for log streams, turns at packing, files being sent."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests
from starlette.testclient import TestClient

from jobs.api.serve import build
from jobs.api.settings import Settings, digests, plain
from jobs.dashboard.bundles import Bundles

from .conftest import TOKEN
from .test_liveness import serving

OTHER = "other-" + "0123456789abcdef" * 2
STREAMS = 4


@pytest.fixture
def api(tmp_path: Path, digit_weights: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The API in a process of its own, with two callers and few streams."""
    monkeypatch.setenv("OTHER_TOKEN", OTHER)
    settings: dict[str, Any] = {
        "storage": str(tmp_path / "runs"),
        "tokens": [{"name": "ci", "env": "CI_TOKEN"}, {"name": "other", "env": "OTHER_TOKEN"}],
        "tracking": {"enabled": False},
        "resources": {"runner": "local", "workers": 1},
        "limits": {"per_minute": 100_000, "followers": STREAMS, "silence": 0.2},
        "allow": {"models": ["factory"], "samples": ["sklearn"], "factories": ["services.training.architectures"]},
    }
    settings["allow"]["paths"] = [str(Path(digit_weights["good"]).parent)]
    with serving(settings, tmp_path) as root:
        yield root


@pytest.fixture
def running(api: str, fleet: dict[str, Any]) -> Iterator[str]:
    """The id of an audit that runs for long enough."""
    headers = {"authorization": f"Bearer {TOKEN}"}
    slow = {**fleet, "measures": [{"name": "pgd", "epsilons": ["8/255"], "steps": 1000, "restarts": 50}]}
    answer = requests.post(f"{api}/v1/audits", json=slow, headers=headers, timeout=30)
    assert answer.status_code == 202, answer.text
    here = f"{api}/v1/audits/{answer.json()['id']}"
    yield str(answer.json()["id"])
    for _ in range(300):  # its process outlives the server
        if requests.post(f"{here}/cancel", headers=headers, timeout=30).json()["state"] not in ("queued", "running"):
            return
        time.sleep(0.2)


def asking(api: str, path: str, token: str) -> socket.socket:
    """A connection that has asked for something and reads nothing."""
    at = urlsplit(api)
    connection = socket.create_connection((str(at.hostname), int(at.port or 80)), timeout=30)
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
    return connection


def status_of(connection: socket.socket) -> int:
    return int(connection.recv(64).split(b" ")[1])


def test_one_caller_holds_a_share_of_the_log_streams_and_gives_them_back(api: str, running: str) -> None:
    path = f"/v1/audits/{running}/logs?follow=true"
    for _ in range(4 * STREAMS):  # gone before the answer begins: each held a place for ever
        asking(api, path, TOKEN).close()
    time.sleep(2)
    held = [asking(api, path, TOKEN) for _ in range(2 * STREAMS)]
    try:
        statuses = [status_of(connection) for connection in held]
        assert sorted(statuses) == [200] * (STREAMS // 2) + [429] * (2 * STREAMS - STREAMS // 2)
        with asking(api, path, OTHER) as another:
            assert status_of(another) == 200
    finally:
        for connection in held:
            connection.close()
    for _ in range(50):
        with asking(api, path, TOKEN) as again:
            if status_of(again) == 200:
                return
        time.sleep(0.2)
    raise AssertionError("places that were given back are not free")


def test_bodies_that_take_long_to_read_keep_only_their_own_caller_waiting(api: str) -> None:
    """A YAML list of 20,000 numbers takes over a second; of 100,000, as many as a body may hold, five."""
    long = "fleet: [" + ",".join("1" for _ in range(20_000)) + "]"

    def post(token: str, body: str) -> int:
        headers = {"authorization": f"Bearer {token}", "content-type": "application/yaml"}
        return requests.post(f"{api}/v1/audits", data=body, headers=headers, timeout=120).status_code

    with ThreadPoolExecutor(8) as pool:
        many = [pool.submit(post, TOKEN, long) for _ in range(8)]
        time.sleep(0.5)
        assert post(OTHER, "fleet: 1") == 422
        assert sum(each.done() for each in many) < 5
        assert {each.result() for each in many} == {422}


def test_who_asks_for_many_pages_that_compute_keeps_only_their_own_requests_waiting(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages that read whole bundles take seconds each; few are made at the same time."""
    slow, begun, done = Bundles.home, threading.Semaphore(0), threading.Event()

    def home(self: Bundles, fleet: str) -> Any:
        if fleet == "large":
            begun.release()
            done.wait(30)
        return slow(self, fleet)

    monkeypatch.setattr(Bundles, "home", home)
    monkeypatch.setenv("OTHER_TOKEN", OTHER)
    data = plain(settings) | {"tokens": [{"name": "ci", "env": "CI_TOKEN"}, {"name": "other", "env": "OTHER_TOKEN"}]}
    app = build(data, digests(Settings.model_validate(data), os.environ))
    mine, others = ({"authorization": f"Bearer {token}"} for token in (TOKEN, OTHER))
    with TestClient(app, raise_server_exceptions=False) as client, ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(client.get, "/v1/fleets/large/audits", headers=mine) for _ in range(8)]
        try:
            assert begun.acquire(timeout=20)
            began = time.monotonic()
            answer = client.get("/v1/fleets", headers=others)
            assert answer.status_code == 200 and time.monotonic() - began < 10
            assert not begun.acquire(timeout=0.5), "one at a time of one caller"
        finally:
            done.set()
        assert {each.result().status_code for each in asked} == {404}
