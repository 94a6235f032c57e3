"""Webhooks: real deliveries to a server of this machine that answers as told, their signatures, and their record."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from jobs.audit.publish import audit_and_publish
from jobs.cli import app
from jobs.comparison.accepted import accept
from jobs.fleetfile.followups import NotifyConfig
from jobs.fleetfile.reading import validate_fleet
from jobs.notify import delivery
from jobs.notify.delivery import TOTAL_SECONDS, Attempt, deliver, pause_after
from jobs.notify.notify import name_of, read_deliveries
from jobs.notify.signing import DELIVERY, HEADER, verify
from services.errors import ConfigError
from tests.jobs.comparison.conftest import Notes, audit, measured

SECRET = "a secret of the tests"


class Receiver(ThreadingHTTPServer):
    """Answers with the statuses it was given, the last one for ever; keeps what it received."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.statuses = [204]
        self.headers: dict[str, str] = {}
        self.received: list[tuple[str, dict[str, str], bytes]] = []

    def url(self, path: str = "/hook") -> str:
        return f"http://127.0.0.1:{self.server_address[1]}{path}"


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.received.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
        statuses = self.server.statuses
        self.send_response(statuses.pop(0) if len(statuses) > 1 else statuses[0])
        for name, value in {"content-length": "0", **self.server.headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def fleet(digits_fleet: dict[str, Any]) -> dict[str, Any]:
    return {**measured(digits_fleet, "good"), "measures": ["clean"]}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses of milliseconds, and a secret."""
    monkeypatch.setattr(delivery, "FIRST_PAUSE", 0.002)
    monkeypatch.setattr(delivery, "LONGEST_PAUSE", 0.002)
    monkeypatch.setattr(delivery, "TOTAL_SECONDS", 0.2)
    monkeypatch.setenv("HOOK_SECRET", SECRET)


def hook(url: str, *when: str, **more: Any) -> dict[str, Any]:
    return {"url": url, "secret_env": "HOOK_SECRET", **({"when": list(when)} if when else {}), **more}


def test_a_worse_audit_is_told_signed_and_on_record(
    fleet: dict[str, Any], swapped: Callable[..., dict[str, Any]], receiver: Receiver
) -> None:
    accept(audit(fleet).folder, by="me")
    hooks = [hook(receiver.url("/worse?token=abc"), "worse"), hook(receiver.url("/fail"), "fail")]
    published = audit_and_publish(validate_fleet({**swapped(fleet, "good", "weak"), "notify": hooks}), Notes())
    assert [path for path, _, _ in receiver.received] == ["/worse?token=abc"]
    _, headers, body = receiver.received[0]
    assert verify(body, headers[HEADER.lower()], SECRET) and not verify(body + b" ", headers[HEADER.lower()], SECRET)
    output = json.loads(body)
    head = [output[key] for key in ("schema_version", "event", "fleet", "outcome")]
    assert head == [1, "audit.finished", "digits", "pass"]
    assert output["because"] == ["worse"] and output["comparison"]["worse"] > 0
    assert output["comparison"]["worst_changes"][0]["model"] == "good"
    assert output["models"][0]["worst"][0]["series"] == "clean" and output["links"]["bundle"] == published.folder
    (kept,) = read_deliveries(published.folder)
    assert kept.delivered and kept.id == headers[DELIVERY.lower()] and [each.status for each in kept.tries] == [204]
    assert kept.hook.startswith(receiver.url("/worse?... ("))
    everything = "".join(path.read_text() for path in Path(published.folder).glob("*.json"))
    assert "token=abc" not in everything and SECRET not in everything


def test_a_receiver_that_is_down_for_a_moment_gets_it_once_with_one_id(receiver: Receiver) -> None:
    receiver.statuses = [500, 429, 503, 200]
    tries = deliver(receiver.url(), b"{}", "one-id", SECRET)
    assert [each.status for each in tries] == [500, 429, 503, 200] and tries[-1].delivered
    assert {headers[DELIVERY.lower()] for _, headers, _ in receiver.received} == {"one-id"}


@pytest.mark.parametrize(("status", "said"), [(400, "HTTP 400"), (404, "HTTP 404"), (302, "a redirect")])
def test_a_refusal_is_final_and_no_redirect_is_followed(status: int, said: str, receiver: Receiver) -> None:
    receiver.statuses, receiver.headers = [status], {"location": receiver.url("/elsewhere")}
    tries = deliver(receiver.url(), b"{}", "id", "")
    assert len(tries) == 1 == len(receiver.received) and said in tries[0].error
    assert HEADER.lower() not in receiver.received[0][1]


def test_a_receiver_that_stays_down_is_given_up_in_time(receiver: Receiver) -> None:
    receiver.statuses = [500]
    tries = deliver(receiver.url(), b"{}", "id", SECRET)
    assert 2 < len(tries) < 200 and not tries[-1].delivered
    nobody = deliver("http://127.0.0.1:9/", b"{}", "id", SECRET)
    assert len(nobody) > 2 and "refused" in nobody[-1].error.lower()


def test_pauses_grow_with_jitter_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    down = Attempt(0.0, 0.1, 503)
    pauses = [pause_after(tries, down, 0.0, 0.5) for tries in range(1, 8)]
    assert pauses == [0.75, 1.5, 3.0, 6.0, 12.0, 12.0, 12.0]
    assert (pause_after(1, down, 0.0, 0.0), pause_after(1, down, 0.0, 0.999)) == (0.5, pytest.approx(1.0, abs=1e-3))
    assert pause_after(1, down, TOTAL_SECONDS - 0.1, 0.0) is None
    assert pause_after(1, Attempt(0.0, 0.1, 429, retry_after=7.0), 0.0, 0.0) == 7.0
    assert pause_after(1, Attempt(0.0, 0.1, 429, retry_after=90.0), 0.0, 0.0) is None
    assert pause_after(1, Attempt(0.0, 0.1, None, "reset"), 0.0, 0.0) == 0.5
    assert pause_after(1, Attempt(0.0, 0.1, None, "certificate", final=True), 0.0, 0.0) is None


def test_a_lost_delivery_costs_no_audit_and_is_sent_later(
    fleet: dict[str, Any], receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver.statuses = [500]
    hooks = [
        hook(receiver.url("/a?key=1"), "always"),
        hook(receiver.url("/b"), "always", secret_env="NOT_SET"),
        {"url_env": "HOOK_URL", "when": ["always"]},
    ]
    notes = Notes()
    data = {**fleet, "notify": hooks}
    published = audit_and_publish(validate_fleet(data), notes)
    assert published.result.outcome.value == "pass"
    assert f"later    classwise notify {published.folder}" in published.where_to_look
    assert notes.notes[0].startswith("estimate: ")
    messages = [re.sub(r" \([0-9a-f]{8}\)", "", note) for note in notes.notes[1:]]
    assert [note.split(" (")[0] for note in messages] == [
        f"{receiver.url('/a?...')} was not notified",
        f"{receiver.url('/b')} was not notified",
        "$HOOK_URL was not notified",
    ]
    assert "HTTP 500, after" in notes.notes[1] and "NOT_SET is not set" in notes.notes[2]

    receiver.statuses = [200]
    monkeypatch.setenv("NOT_SET", SECRET)
    monkeypatch.setenv("HOOK_URL", receiver.url("/c"))
    receiver.received.clear()
    ran = CliRunner().invoke(app, ["notify", published.folder])
    assert ran.exit_code == 2 and "--fleet-file" in ran.stderr, ran.output
    assert sorted(path for path, _, _ in receiver.received) == ["/b", "/c"]
    file = tmp_path / "fleet.yaml"
    file.write_text(yaml.safe_dump(data))
    ran = CliRunner().invoke(app, ["notify", published.folder, "--fleet-file", str(file), "--json"])
    assert ran.exit_code == 0 and [each["hook"].partition(" (")[0] for each in json.loads(ran.stdout)] == [
        receiver.url("/a?...")
    ]
    output = CliRunner().invoke(app, ["notify", published.folder, "--fleet-file", str(file)])
    assert "no webhook was notified" in output.stdout
    assert len(read_deliveries(published.folder)) == 7


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"url": "http://example.org/x?token=1"}, "https, but for this machine"),
        ({"url": "https://me:pw@example.org/"}, "without user, password and fragment"),
        ({"url": "ftp://example.org/"}, "an https URL"),
        ({"url": "https://example.org/ x"}, "printable ASCII"),
        ({"url": "https://[::1"}, "an https URL"),
        ({}, "one of url and url_env"),
        ({"url": "https://example.org", "url_env": "X"}, "one of url and url_env"),
        ({"url": "https://example.org", "when": ["sometimes"]}, "'always'"),
        ({"url": "https://example.org", "when": []}, "at least 1"),
        ({"url": "https://example.org", "secret_env": "not a name"}, "text of the form"),
        ({"url": "https://example.org", "secret": "x"}, "no such field"),
    ],
)
def test_mistakes(entry: dict[str, Any], message: str, fleet: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        validate_fleet({**fleet, "notify": [entry]})
    assert message in str(caught.value) and "pw" not in str(caught.value)
    assert "token" not in str(caught.value)


def test_two_hooks_that_differ_in_the_query_alone_are_two() -> None:
    first, two = (NotifyConfig(url=f"https://example.org/a?token={token}") for token in ("x", "y"))
    assert name_of(first) != name_of(two)
    assert "token" not in name_of(first)
    assert name_of(NotifyConfig(url="https://example.org/a")) == "https://example.org/a"
