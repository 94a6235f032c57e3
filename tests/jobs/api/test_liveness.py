"""The API while everything behind it is stopped: liveness answers at once, and nothing waits without end."""

from __future__ import annotations

import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml
from ports import free_port

from jobs.submission import ray_jobs
from jobs.submission.ray_jobs import RayJobs
from jobs.submission.signing import KEY
from services.errors import ServiceError

from .conftest import TOKEN

POSTS = 100


@pytest.fixture
def stopped() -> Iterator[str]:
    """The address of a server that takes connections and never answers, as one that got SIGSTOP does."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(1000)
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_a_job_server_that_never_answers_is_down(stopped: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_jobs, "READ_SECONDS", 1.0)
    began = time.monotonic()
    with pytest.raises(ServiceError):
        RayJobs(stopped).check()
    assert time.monotonic() - began < 30


@pytest.fixture
def api(stopped: str, tmp_path: Path, digit_weights: dict[str, str]) -> Iterator[str]:
    """The API in a process of its own before a job server that is stopped."""
    settings = {
        "address": stopped,
        "storage": str(tmp_path / "runs"),
        "tokens": [{"name": "ci", "env": "CI_TOKEN"}],
        "tracking": {"enabled": False},
        "limits": {"per_minute": 100_000, "submissions": 1000},
        "allow": {"models": ["factory"], "samples": ["sklearn"], "factories": ["services.training.architectures"]},
    }
    (tmp_path / "runs").mkdir()
    settings["allow"]["paths"] = [str(Path(digit_weights["good"]).parent)]  # type: ignore[index]
    with serving(settings, tmp_path) as root:
        yield root


@contextmanager
def serving(settings: dict[str, Any], folder: Path) -> Iterator[str]:
    """`classwise serve --here` in a process of its own."""
    port = free_port()
    (folder / "settings.yaml").write_text(yaml.safe_dump(settings))
    command = [sys.executable, "-m", "jobs.cli", "serve", str(folder / "settings.yaml"), "--here"]
    environment = {**os.environ, "CI_TOKEN": TOKEN, KEY: "a-key-of-the-tests-and-of-nothing-else"}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([*command, "--port", str(port)], env=environment, stdout=log, stderr=log, cwd=folder)
    root = f"http://127.0.0.1:{port}"
    try:
        _wait_for(f"{root}/health", process, folder / "log")
        yield root
    finally:
        process.kill()
        process.wait()


def test_a_forwarded_header_from_this_machine_evades_no_limit(tmp_path: Path) -> None:
    settings = {"storage": str(tmp_path), "tokens": [{"name": "ci", "env": "CI_TOKEN"}], "limits": {"per_minute": 2}}
    with serving(settings, tmp_path) as root:
        headers = [{"x-forwarded-for": f"192.0.2.{number}"} for number in range(4)]
        answers = [requests.get(f"{root}/v1/audits", headers=each, timeout=30).status_code for each in headers]
    assert answers == [401, 401, 429, 429]


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(600):
        assert process.poll() is None, log.read_text()
        try:
            requests.get(url, timeout=1)
        except requests.RequestException:
            time.sleep(0.1)
        else:
            return
    raise AssertionError(log.read_text())


def test_submissions_are_accepted_and_read_while_the_job_server_hangs(api: str, fleet: dict[str, Any]) -> None:
    """A hundred at once: none waits for Ray, none is lost, and neither liveness nor what is known waits for them."""
    headers = {"authorization": f"Bearer {TOKEN}"}

    def post(number: int) -> tuple[int, float, str]:
        began = time.perf_counter()
        body = {**fleet, "fleet": f"digits{number % (POSTS // 2)}"}  # each is sent twice
        reply = requests.post(f"{api}/v1/audits", json=body, headers=headers, timeout=30)
        return reply.status_code, time.perf_counter() - began, str(reply.json().get("id"))

    waits = []
    with ThreadPoolExecutor(POSTS) as pool:
        posts = [pool.submit(post, number) for number in range(POSTS)]
        with requests.Session() as session:
            while not all(each.done() for each in posts) or len(waits) < 20:
                started = time.perf_counter()
                assert session.get(f"{api}/health", timeout=20).status_code == 200
                waits.append(time.perf_counter() - started)
                time.sleep(0.02)
            assert session.get(f"{api}/ready/results", timeout=30).status_code == 200
        statuses, took, ids = zip(*(each.result() for each in posts), strict=True)
    assert set(statuses) == {202} and len(set(ids)) == POSTS // 2
    assert statistics.median(took) < 2.0, sorted(took)  # it was 6 to 8 s for 50 with a job server that answers
    assert statistics.median(waits) < 0.1 and max(waits) < 3.0, sorted(waits)[-20:]

    began = time.perf_counter()
    listed = requests.get(f"{api}/v1/audits?limit=1000", headers=headers, timeout=30).json()["audits"]
    assert {each["id"] for each in listed} == set(ids) and {each["state"] for each in listed} == {"queued"}
    again = requests.post(f"{api}/v1/audits", json={**fleet, "fleet": "digits7"}, headers=headers, timeout=30).json()
    assert again["attempt"] == next(each["attempt"] for each in listed if each["id"] == again["id"])
    cancelled = requests.post(f"{api}/v1/audits/{again['id']}/cancel", headers=headers, timeout=30)
    assert (cancelled.status_code, cancelled.json()["state"]) == (202, "stopped")
    assert requests.get(f"{api}/v1/progress", headers=headers, timeout=30).status_code == 200
    assert time.perf_counter() - began < 10


@pytest.mark.parametrize("epsilon", ["1e7000000", "1e400", "9" * 5000 + "/7"])
def test_a_number_that_takes_minutes_to_read_is_refused_at_once(api: str, fleet: dict[str, Any], epsilon: str) -> None:
    headers = {"authorization": f"Bearer {TOKEN}"}
    body = {**fleet, "measures": [{"name": "pgd", "epsilons": [epsilon]}]}
    began = time.monotonic()
    assert requests.post(f"{api}/v1/audits", json=body, headers=headers, timeout=30).status_code == 422
    assert time.monotonic() - began < 5
