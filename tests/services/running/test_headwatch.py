"""A head that no longer answers is given up sooner than Ray would end the process."""

from __future__ import annotations

import socket
import time

import pytest

from services.errors import ResourceError
from services.running import headwatch
from services.running.headwatch import RECONNECT, HeadWatch


@pytest.fixture
def head(monkeypatch: pytest.MonkeyPatch) -> socket.socket:
    monkeypatch.setenv(RECONNECT, "1")
    monkeypatch.setattr(headwatch, "EVERY", 0.05)
    return socket.create_server(("127.0.0.1", 0))


def watched(watch: HeadWatch, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        watch.check()
        time.sleep(0.02)


@pytest.mark.long
def test_one_that_answers_or_comes_back_soon_is_not_given_up(head: socket.socket) -> None:
    port = head.getsockname()[1]
    watch = HeadWatch(f"127.0.0.1:{port}")
    watched(watch, 1.0)
    head.close()
    watched(watch, 0.3)
    with socket.create_server(("127.0.0.1", port)):
        watch.wait()
        watched(watch, 1.0)
    assert not watch.gone


def test_one_that_is_gone_is_told_with_what_to_do(head: socket.socket) -> None:
    watch = HeadWatch(f"127.0.0.1:{head.getsockname()[1]}")
    head.close()
    with pytest.raises(
        ResourceError, match=r"the head of Ray at 127.0.0.1:\d+: expected an answer, found none for 0.7 s"
    ):
        watched(watch, 5.0)
    assert watch.gone
    with pytest.raises(ResourceError, match="with a cluster that runs, the same command goes on"):
        watch.wait()
