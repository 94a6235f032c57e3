"""Requests go where they were granted to go, whatever redirects and names say."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from jobs.notify.delivery import deliver
from services import outgoing
from services.loading.models.scoring_client import Manners, ScoringClient
from services.outgoing import Misdirected, is_metadata


@pytest.fixture
def server() -> Iterator[tuple[int, list[str]]]:
    """Its port, and the paths that it was asked for; it sends everybody on to /elsewhere."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(307)
            self.send_header("location", f"http://127.0.0.1:{self.server.server_port}/elsewhere")  # type: ignore[attr-defined]
            self.end_headers()

        do_POST = do_GET  # noqa: N815

        def log_message(self, *arguments: Any) -> None:
            pass

    running = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=running.serve_forever, daemon=True)
    thread.start()
    yield running.server_port, asked
    running.shutdown()
    running.server_close()
    thread.join()


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("169.254.169.254", True),
        ("169.254.0.1", True),
        ("::ffff:169.254.169.254", True),
        ("fe80::1", True),
        ("fe80::1%eth0", True),
        ("fd00:ec2::254", True),
        ("2002:a9fe:a9fe::", True),
        ("100.100.100.200", True),
        ("168.63.129.16", True),
        ("127.0.0.1", False),
        ("10.0.0.8", False),
        ("192.0.2.1", False),
        ("::1", False),
        ("2001:db8::1", False),
        ("/run/socket", False),
        ("", False),
    ],
)
def test_addresses_of_metadata_services_are_known_in_all_their_forms(address: str, expected: bool) -> None:
    assert is_metadata(address) is expected


def test_a_name_that_leads_to_a_metadata_service_is_asked_nothing(
    server: tuple[int, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner gives it another address between the look and the request; the open connection is what counts."""
    port, asked = server
    found: list[Any] = []
    real = socket.getaddrinfo
    monkeypatch.setattr(outgoing, "is_metadata", lambda address: found.append(address) or address == "127.0.0.1")
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *more, **named: real("127.0.0.1", *more, **named))
    with pytest.raises(Misdirected, match=r"a public one at scores\.example\.org, found 127\.0\.0\.1"):
        outgoing.OPENER.open(f"http://scores.example.org:{port}/", timeout=5)
    tries = deliver(f"http://scores.example.org:{port}/hook", b"{}", "1", "secret")
    assert len(tries) == 1 and tries[0].final and "Misdirected" in tries[0].error
    client = ScoringClient("m", Manners(timeout=5, retries=5), token="secret")
    with pytest.raises(Exception, match=r"expected an answer from .*Misdirected"):
        client.ask(f"http://scores.example.org:{port}/v2/models/m/infer", b"{}")
    assert found == ["127.0.0.1"] * 3 and asked == []


def test_an_address_that_is_named_itself_is_asked(
    server: tuple[int, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    port, asked = server
    monkeypatch.setattr(outgoing, "is_metadata", lambda address: True)
    assert deliver(f"http://127.0.0.1:{port}/hook", b"{}", "1", "")[0].status == 307 and asked == ["/hook"]


def test_no_redirect_is_followed_by_any_request(server: tuple[int, list[str]]) -> None:
    port, asked = server
    assert deliver(f"http://127.0.0.1:{port}/hook", b"{}", "1", "")[0].status == 307
    with pytest.raises(Exception, match="a redirect, which is not followed"):
        ScoringClient("m", Manners(timeout=5), token="x").ask(f"http://127.0.0.1:{port}/infer")
    assert asked == ["/hook", "/infer"]
