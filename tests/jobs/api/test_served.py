"""The API as `classwise serve --here` runs it: what it logs, and a stream that stays open."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests
import yaml

from jobs.api.settings import Settings, plain
from tests.ports import free_port

from .conftest import TOKEN

SECRET = "swordfish-0123456789"


@dataclass(frozen=True)
class Served:
    """A server that runs, and what it wrote."""

    root: str
    log: Path


@pytest.fixture
def served(settings: Settings, tmp_path: Path) -> Iterator[Served]:
    data = plain(settings) | {"tokens": [{"name": "ci", "env": "CI_TOKEN"}]}
    data["limits"]["silence"] = 0.2
    (tmp_path / "settings.yaml").write_text(yaml.safe_dump(data))
    port, log = free_port(), tmp_path / "log"
    words = ["-m", "jobs.cli", "serve", str(tmp_path / "settings.yaml"), "--here", "--port", str(port)]
    environment = {name: value for name, value in os.environ.items() if name != "CLASSWISE_LOG"}
    with log.open("w") as output:
        process = subprocess.Popen([sys.executable, *words], env=environment, stdout=output, stderr=output)
        try:
            end = time.monotonic() + 60
            while not _answers(f"http://127.0.0.1:{port}/health"):
                assert time.monotonic() < end and process.poll() is None, log.read_text()
                time.sleep(0.1)
            yield Served(f"http://127.0.0.1:{port}", log)
        finally:
            process.terminate()
            process.wait(30)


def _answers(url: str) -> bool:
    try:
        return requests.get(url, timeout=5).status_code == 200
    except requests.ConnectionError:
        return False


def test_every_line_has_its_time_and_none_has_a_token_of_an_address(served: Served, fleet: dict[str, Any]) -> None:
    """Also when somebody puts it there by mistake, in the form that logs have unless another is asked for."""
    headers = {"authorization": f"Bearer {TOKEN}"}
    for path in (f"/v1/audits?token={SECRET}", f"/?token={SECRET}#x", f"/v1/audits/{SECRET}%0Aforged?access={SECRET}x"):
        requests.get(f"{served.root}{path}", headers=headers, timeout=30)
    sent = requests.post(f"{served.root}/v1/audits", json=fleet, headers=headers, timeout=30)
    requests.post(f"{served.root}/v1/audits/{sent.json()['id']}/cancel", headers=headers, timeout=30)
    lines = served.log.read_text().splitlines()
    assert [line for line in lines if not re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00 ", line)] == []
    accessed = [line for line in lines if "classwise.access: " in line]
    assert any(re.search(r"GET /v1/audits 200 \[caller=ci address=127\.0\.0\.1 ms=\d+\]", line) for line in accessed)
    assert any("POST /v1/audits 202 [caller=ci " in line for line in accessed)
    assert f"token={SECRET}" not in "".join(lines) and f"{SECRET}x" not in "".join(lines)


def test_a_silent_stream_sends_empty_lines_and_what_an_audit_logs_has_times_and_its_caller(
    served: Served, fleet: dict[str, Any]
) -> None:
    """Empty lines, so that no proxy takes the connection for dead: an audit prints nothing while it imports."""
    headers = {"authorization": f"Bearer {TOKEN}"}
    sent = requests.post(f"{served.root}/v1/audits", json=fleet, headers=headers, timeout=30)
    url = f"{served.root}/v1/audits/{sent.json()['id']}/logs?follow=true"
    text = requests.get(url, headers=headers, timeout=120).text
    assert text.startswith("\n") and "digits: pass" in text
    printed = requests.get(url.partition("?")[0], headers=headers, timeout=30).text
    assert [line for line in text.splitlines() if line] == [line for line in printed.splitlines() if line]
    stages = [line for line in text.splitlines() if "stage" in line]
    assert stages
    for line in stages:
        assert re.match(r"\d{4}-\d\d-\d\dT", line) and f"submission={sent.json()['id']}" in line and "caller=ci" in line


@pytest.mark.parametrize("begin", ["GET /health HTTP/1.1\r\nHost: x\r\nX: ", "GET /?", "GET /health HTTP/1.1\r\nX"])
def test_headers_without_an_end_are_not_collected(served: Served, begin: str) -> None:
    """Anyone who reaches the port could fill the memory of the API with one request, and needed no token."""
    at = urlsplit(served.root)
    with socket.create_connection((str(at.hostname), int(at.port or 80)), timeout=20) as connection:
        connection.sendall(begin.encode())
        with pytest.raises(OSError):  # the server answers, and closes; what is sent then is refused
            for _ in range(1000):
                connection.sendall(b"a" * 65_536)
    assert requests.get(f"{served.root}/health", timeout=20).status_code == 200
