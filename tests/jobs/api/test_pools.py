"""Requests that wait for what hangs (MLflow, the database of schedules, the job server) keep no others waiting."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import requests

from .conftest import TOKEN
from .test_liveness import serving

POOL = 40
"""Threads that all plain routes share."""


@pytest.fixture(scope="module")
def stopped() -> Iterator[int]:
    """The port of a server that takes connections and never answers."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(1000)
        yield int(server.getsockname()[1])


@pytest.fixture(scope="module")
def api(stopped: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The API, with everything behind it but the storage stopped."""
    tmp_path = tmp_path_factory.mktemp("pools")
    settings: dict[str, Any] = {
        "address": f"http://127.0.0.1:{stopped}",
        "storage": str(tmp_path / "runs"),
        "tokens": [{"name": "ci", "env": "CI_TOKEN"}],
        "tracking": {"uri": f"http://127.0.0.1:{stopped}"},
        "schedules": f"postgresql+psycopg://nobody@127.0.0.1:{stopped}/classwise",
        "limits": {"per_minute": 100_000},
    }
    (tmp_path / "runs").mkdir()
    with serving(settings, tmp_path) as root:
        yield root


@pytest.fixture(scope="module")
def without_storage(stopped: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The API whose storage, an object store, takes connections and never answers."""
    pytest.importorskip("s3fs")
    tmp_path = tmp_path_factory.mktemp("hung")
    secrets = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": "x"}
    settings: dict[str, Any] = {
        "address": f"http://127.0.0.1:{stopped}",
        "storage": "s3://bucket/runs",
        "tokens": [{"name": "ci", "env": "CI_TOKEN"}],
        "limits": {"per_minute": 100_000},
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**secrets, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{stopped}"}.items():
            patch.setenv(name, value)
        with serving(settings, tmp_path) as root:
            yield root


LOOKS = ["/v1/audits", f"/v1/audits/a-{'0' * 16}", "/v1/progress", "/v1/failures", "/v1/fleets"]


@pytest.mark.parametrize("path", LOOKS)
def test_a_storage_that_hangs_holds_no_thread_of_what_needs_none(without_storage: str, path: str) -> None:
    headers = {"authorization": f"Bearer {TOKEN}"}
    with ThreadPoolExecutor(POOL + 10) as pool:
        asked = f"{without_storage}{path}"
        hung = [pool.submit(requests.get, asked, headers=headers, timeout=4) for _ in range(POOL + 10)]
        time.sleep(1)
        waits = []
        for other in ("/", "/ui/common.js", "/v1/schema", "/v1/schedules", "/health"):
            began = time.monotonic()
            assert requests.get(f"{without_storage}{other}", headers=headers, timeout=20).status_code == 200, other
            waits.append(time.monotonic() - began)
        assert any(each.exception() for each in hung), "it did not hang"
    assert max(waits) < 3, waits


@pytest.mark.parametrize("path", ["/v1/leaderboard", "/v1/schedules", "/ready", "/metrics"])
def test_what_hangs_holds_no_thread_of_what_does_not(api: str, path: str) -> None:
    headers = {"authorization": f"Bearer {TOKEN}"}
    with ThreadPoolExecutor(POOL + 10) as pool:
        hung = [pool.submit(requests.get, f"{api}{path}", headers=headers, timeout=4) for _ in range(POOL + 10)]
        time.sleep(1)
        waits = []
        for other in ("/v1/fleets", "/v1/schema", "/health"):
            began = time.monotonic()
            assert requests.get(f"{api}{other}", headers=headers, timeout=20).status_code == 200
            waits.append(time.monotonic() - began)
        for each in hung:
            each.exception()
    assert max(waits) < 3, waits
