"""What a caller with some fleets sees and does; each test is somebody who tries for more."""

from __future__ import annotations

import asyncio
import io
import json
import os
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, MutableMapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from jobs.api.admission import admitted
from jobs.api.routes import PACKERS, UNSENT
from jobs.api.serve import build
from jobs.api.settings import Settings, digests, plain
from jobs.fleetfile.reading import validate_fleet
from jobs.schedules.scheduler import new_schedule, now_utc
from jobs.schedules.store import Store
from jobs.submission.client import AuditClient
from jobs.submission.status import AuditStatus
from jobs.submission.submission import Ending, folder_in, write_ending
from jobs.terminal import console
from services.errors import ConfigError
from services.records import Outcome

TOKENS = {name: f"{name}-" + "0123456789abcdef" * 2 for name in ("ours", "theirs", "reader", "root", "few", "sends")}
Callers = dict[str, TestClient]


@pytest.fixture(scope="module")
def audited(once: Callable[[str, Callable[[Path], None]], Path], digit_weights: dict[str, str]) -> Path:
    """A storage with an audit of a fleet of each team; made once."""
    from jobs.audit.publish import audit_and_publish

    def fill(folder: Path) -> None:
        uri = f"factory:services.training.architectures:small_cnn?width=8&weights={digit_weights['good']}"
        for fleet in ("team-a", "team-b"):
            data = {"fleet": fleet, "models": [{"name": "good", "uri": uri}], "measures": ["clean"]}
            data |= {"samples": {"uri": "sklearn:digits?split=test"}, "storage": str(folder)}
            data |= {"resources": {"runner": "local", "workers": 1}, "tracking": {"enabled": False}}
            with console.reporter(quiet=True) as reporter:
                audit_and_publish(validate_fleet(data), reporter)

    storage = once("two-teams", fill)
    for fleet in ("team-a", "team-b"):
        (bundle,) = (storage / "audits" / fleet).iterdir()
        folder = folder_in(str(storage), f"{fleet}-{'a' * 16}")
        write_ending(folder, Ending("1", "finished", Outcome.PASS, str(bundle), bundle.name))
        (Path(folder) / "fleet.json").write_text("{}")
    return storage


@pytest.fixture
def team(settings: Settings, audited: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings with a caller a case."""
    for name, token in TOKENS.items():
        monkeypatch.setenv(name.upper(), token)
    access: dict[str, dict[str, Any]] = {
        "ours": {"fleets": ["team-a", "team-a-*"]},
        "theirs": {"fleets": ["team-b"]},
        "reader": {"fleets": ["team-a"], "may": ["read"]},
        "root": {"fleets": [], "may": ["admin"]},
        "few": {"fleets": ["team-f*"], "submissions": 2, "priority": 7},
        "sends": {"fleets": ["team-a"], "may": ["submit"]},
    }
    store = Store(f"sqlite:///{tmp_path}/schedules.db")
    for fleet in ("team-a", "team-b"):
        data = {"fleet": fleet, "models": [{"name": "m", "uri": "export:/m"}], "samples": {"uri": "sklearn:digits"}}
        store.add(new_schedule(fleet, validate_fleet({**data, "storage": str(tmp_path)}), "0 3 * * *", now=now_utc()))
    store.close()
    tokens = [{"name": name, "env": name.upper(), **access[name]} for name in TOKENS]
    data = {**plain(settings), "storage": str(audited), "tokens": tokens, "audit_log": str(tmp_path / "changes.jsonl")}
    return Settings.model_validate({**data, "schedules": f"sqlite:///{tmp_path}/schedules.db"})


@pytest.fixture
def server(team: Settings) -> FastAPI:
    return build(plain(team), digests(team, os.environ))


@pytest.fixture
def callers(server: FastAPI) -> Callers:
    """Clients by name; nothing that is accepted begins, for the application's own start is left out."""
    return {
        name: TestClient(server, headers={"authorization": f"Bearer {token}"}, raise_server_exceptions=False)
        for name, token in TOKENS.items()
    }


A, B, NONE = f"team-a-{'a' * 16}", f"team-b-{'a' * 16}", f"team-b-{'0' * 16}"


@pytest.mark.parametrize("part", ["", "/result", "/report", "/bundle", "/logs", "/logs?follow=true"])
def test_an_audit_of_another_fleet_is_as_one_that_does_not_exist(callers: Callers, part: str) -> None:
    assert callers["ours"].get(f"/v1/audits/{A}{part}").status_code == 200
    refused, unknown = (callers["ours"].get(f"/v1/audits/{name}{part}") for name in (B, NONE))
    assert refused.status_code == unknown.status_code == 404
    assert refused.text.replace(B, NONE) == unknown.text
    known = callers["theirs"].get(f"/v1/audits/{NONE}{part}")  # of their own fleet: in the same words
    assert known.status_code == 404 and known.text == unknown.text


def test_cancelling_an_audit_of_others_does_nothing(callers: Callers, fleet: dict[str, Any]) -> None:
    name = callers["theirs"].post("/v1/audits", json={**fleet, "fleet": "team-b"}).json()["id"]
    for caller, status in (("ours", 404), ("reader", 403), ("sends", 403)):
        assert callers[caller].post(f"/v1/audits/{name}/cancel").status_code == status
    assert callers["theirs"].get(f"/v1/audits/{name}").json()["state"] == "queued"
    assert callers["theirs"].post(f"/v1/audits/{name}/cancel").json()["state"] == "stopped"


@pytest.mark.parametrize("fleet_name", ["team-b", "team-", "Team-a", "team-ab", "team"])
def test_no_fleet_is_submitted_that_is_not_the_callers(
    callers: Callers, fleet: dict[str, Any], fleet_name: str
) -> None:
    answer = callers["ours"].post("/v1/audits", json={**fleet, "fleet": fleet_name})
    assert answer.status_code == 403 and answer.json()["problems"][0]["where"] == "fleet"
    assert (
        callers["root"].get("/v1/audits").json()["audits"].__len__()
        == callers["root"].get("/v1/audits", params={"limit": 1000}).json()["audits"].__len__()
    )


@pytest.mark.parametrize("fleet_name", ["team.", "team_", "T" * 52, "t" * 61, "team-"])
def test_no_fleet_is_submitted_whose_folder_looks_like_one_of_others(
    callers: Callers, settings: Settings, fleet: dict[str, Any], fleet_name: str
) -> None:
    """The folder of `team.` is `team-DIGEST`, which the dashboard showed to callers of `team-*`."""
    answer = callers["root"].post("/v1/audits", json={**fleet, "fleet": fleet_name})
    assert answer.status_code == 403 and "its folder bears another name" in answer.json()["problems"][0]["remedy"]
    admitted({**fleet, "fleet": fleet_name}, settings)  # where all callers see all fleets it may have any name


def test_lists_and_the_dashboard_show_the_callers_fleets_alone(callers: Callers, fleet: dict[str, Any]) -> None:
    for team in ("team-a", "team-b"):
        assert callers["root"].post("/v1/audits", json={**fleet, "fleet": team}).status_code == 202
    for caller, seen in {"ours": {"team-a"}, "theirs": {"team-b"}, "root": {"team-a", "team-b"}}.items():
        client = callers[caller]
        listed = {each["fleet"] for each in client.get("/v1/audits").json()["audits"]}
        fleets = {each["id"] for each in client.get("/v1/fleets").json()["fleets"]}
        running = {each["fleet"] for each in client.get("/v1/progress").json()["running"]}
        scheduled = {each["fleet"] for each in client.get("/v1/schedules").json()["schedules"]}
        assert listed == fleets == running == scheduled == seen, caller
        assert client.get("/v1/fleets").json()["total"] == len(seen)
        assert client.get("/v1/audits", params={"fleet": "team-b"}).json()["audits"] == [] or "team-b" in seen


@pytest.mark.parametrize(
    "path", ["audits", "trend", "audits/x", "audits/x/classes", "audits/x/models/0", "comparison?before=x&after=x"]
)
def test_a_fleet_of_others_is_not_on_the_dashboard(callers: Callers, path: str, audited: Path) -> None:
    (audit,) = (each.name for each in (audited / "audits" / "team-b").iterdir())
    url = f"/v1/fleets/team-b/{path}".replace("/x", f"/{audit}").replace("=x", f"={audit}")
    assert callers["theirs"].get(url).status_code == 200
    refused = callers["ours"].get(url)
    unknown = callers["ours"].get(url.replace("team-b", "team-q"))
    assert refused.status_code == unknown.status_code == 404
    assert refused.text.replace("team-b", "team-q") == unknown.text


def test_rights_are_what_the_settings_say(callers: Callers, fleet: dict[str, Any]) -> None:
    body = {**fleet, "fleet": "team-a"}
    assert callers["reader"].post("/v1/audits", json=body).status_code == 403
    assert callers["sends"].post("/v1/audits", json=body).status_code == 202
    for path in ("/v1/audits", f"/v1/audits/{A}", "/v1/fleets", "/v1/fleets/team-a/audits", "/v1/progress"):
        assert callers["sends"].get(path).status_code == 403, path
    assert [callers[name].get("/metrics").status_code for name in ("ours", "reader", "root")] == [403, 403, 200]


def test_a_callers_quota_and_priority_are_theirs(callers: Callers, fleet: dict[str, Any], audited: Path) -> None:
    answers = [
        callers["few"].post("/v1/audits", json={**fleet, "fleet": "team-f"}, headers={"idempotency-key": f"k{number}"})
        for number in range(3)
    ]
    assert [each.status_code for each in answers] == [202, 202, 429]
    assert answers[2].json()["problems"][0]["expected"] == "at most 2 of few"
    assert (
        callers["few"]
        .post("/v1/audits", json={**fleet, "fleet": "team-f"}, headers={"idempotency-key": "k1"})
        .json()["id"]
        == answers[1].json()["id"]
    )
    assert callers["root"].post("/v1/audits", json={**fleet, "fleet": "team-f"}).status_code == 202
    name = answers[0].json()["id"]
    (entry,) = (path for path in (audited / "queue").iterdir() if name in path.name)
    assert (json.loads(entry.read_text())["priority"], json.loads(entry.read_text())["caller"]) == (7, "few")
    for answer in answers[:2]:
        callers["few"].post(f"/v1/audits/{answer.json()['id']}/cancel")
    assert callers["few"].post("/v1/audits", json={**fleet, "fleet": "team-f9"}).status_code == 202


@pytest.mark.parametrize(("name", "tagged"), [("ours", False), ("root", True)])
def test_who_sees_some_fleets_leaves_no_verdict_at_models_of_others(
    name: str, tagged: bool, callers: Callers, fleet: dict[str, Any], audited: Path
) -> None:
    """Anyone may audit any registered model, by gates of their own; the version's tag is what its owners read."""
    asked = {**fleet, "fleet": "team-a", "seed": 7 + tagged, "tracking": {"tag_registry": True}}
    audit = callers[name].post("/v1/audits", json=asked).json()["id"]
    written = json.loads((audited / "submissions" / audit / "fleet.json").read_text())
    assert written["fleet"]["tracking"].get("tag_registry", True) is tagged
    callers["root"].post(f"/v1/audits/{audit}/cancel")


def test_one_caller_without_a_quota_leaves_others_half_of_the_places(
    team: Settings, fleet: dict[str, Any], tmp_path: Path
) -> None:
    limits = {**plain(team)["limits"], "submissions": 4}
    narrow = Settings.model_validate({**plain(team), "limits": limits, "storage": str(tmp_path / "runs")})
    client = TestClient(build(plain(narrow), digests(narrow, os.environ)), raise_server_exceptions=False)

    def posted(name: str, key: str) -> Any:
        headers = {"authorization": f"Bearer {TOKENS[name]}", "idempotency-key": key}
        return client.post("/v1/audits", json={**fleet, "fleet": "team-a"}, headers=headers)

    greedy = [posted("ours", f"k{number}") for number in range(3)]
    assert [each.status_code for each in greedy] == [202, 202, 429]
    assert greedy[2].json()["problems"][0]["expected"] == "at most 2 of ours"
    assert posted("root", "mine").status_code == 202


def test_every_change_is_in_the_audit_log_with_its_caller(
    callers: Callers, fleet: dict[str, Any], tmp_path: Path
) -> None:
    sent = callers["ours"].post("/v1/audits", json={**fleet, "fleet": "team-a"}, headers={"idempotency-key": "k"})
    callers["ours"].post("/v1/audits", json={**fleet, "fleet": "team-b"})
    callers["ours"].post(f"/v1/audits/{sent.json()['id']}/cancel")
    callers["ours"].get("/v1/audits")
    log = tmp_path / "changes.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(each["action"], each["caller"]) for each in lines] == [
        ("submit", "ours"),
        ("submit refused", "ours"),
        ("cancel", "ours"),
    ]
    assert lines[0]["audit"] == lines[2]["audit"] == sent.json()["id"] and lines[0]["key"] == "k"
    assert all(each["time"] for each in lines) and log.stat().st_mode & 0o777 == 0o600
    assert not [token for token in TOKENS.values() if token in log.read_text()]


def test_a_server_whose_audit_log_cannot_be_written_does_not_start(team: Settings, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    data = {**plain(team), "audit_log": f"{tmp_path}/file/changes.jsonl"}
    with pytest.raises(ConfigError, match="audit_log"):
        build(data, digests(team, os.environ))


def test_report_and_bundle_are_downloads_that_run_nothing(callers: Callers, audited: Path) -> None:
    report = callers["reader"].get(f"/v1/audits/{A}/report")
    assert report.headers["content-disposition"] == f'attachment; filename="{A}.html"' and "<html" in report.text
    assert report.headers["content-security-policy"].startswith("sandbox")
    answer = callers["reader"].get(f"/v1/audits/{A}/bundle")
    assert answer.headers["content-type"] == "application/zip"
    (home,) = (audited / "audits" / "team-a").iterdir()
    expected = {f"{A}/{path.relative_to(home)}": path.read_bytes() for path in home.rglob("*") if path.is_file()}
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == expected


async def _asked(server: FastAPI, path: str, who: str, reads: asyncio.Event | None = None) -> int:
    """The status of a GET, without a client: requests of one loop, side by side; a body is read when `reads` is set."""
    received, statuses = iter([{"type": "http.request", "body": b"", "more_body": False}]), []

    async def receive() -> dict[str, Any]:
        message = next(received, None)
        return message if message is not None else await asyncio.Future()

    async def send(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            statuses.append(int(message["status"]))
        elif reads is not None:
            await reads.wait()

    scope = {"type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "method": "GET", "path": path}
    scope |= {"raw_path": path.encode(), "query_string": b"", "root_path": "", "scheme": "http", "http_version": "1.1"}
    scope |= {
        "headers": [(b"authorization", f"Bearer {TOKENS[who]}".encode())],
        "client": ("127.0.0.1", 1),
        "state": {},
    }
    await server(scope, receive, send)
    return statuses[0]


@pytest.mark.parametrize("part", ["bundle", "report", "result"])
def test_few_results_are_read_and_packed_at_the_same_time(
    server: FastAPI, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """Thirty archives at once kept the liveness probe waiting for over a second."""
    running, most, lock = 0, 0, threading.Lock()
    finished = AuditClient.finished

    def counted(client: AuditClient, name: str) -> AuditStatus:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.05)
        try:
            return finished(client, name)
        finally:
            with lock:
                running -= 1

    monkeypatch.setattr(AuditClient, "finished", counted)

    async def ask() -> list[int]:
        return list(await asyncio.gather(*(_asked(server, f"/v1/audits/{A}/{part}", "reader") for _ in range(12))))

    assert asyncio.run(asyncio.wait_for(ask(), 60)) == [200] * 12
    assert 1 <= most <= PACKERS


@pytest.mark.parametrize("part", ["bundle", "report", "result"])
def test_who_reads_slowly_holds_a_few_answers_and_keeps_nobody_else(server: FastAPI, part: str) -> None:
    """What is packed lies in memory or on disk until it is sent."""

    async def ask() -> tuple[int, list[int]]:
        reads, path = asyncio.Event(), f"/v1/audits/{A}/{part}"
        slow = [asyncio.create_task(_asked(server, path, "reader", reads)) for _ in range(2 * UNSENT)]
        others = [await asyncio.wait_for(_asked(server, path, "ours"), 30) for _ in range(3)]
        held = server.state.service.unsent.waiting("reader")
        slow.pop().cancel()  # one that waited, and one that was being sent
        slow.pop(0).cancel()
        reads.set()
        assert others == [200] * 3
        return held, await asyncio.gather(*slow)

    held, statuses = asyncio.run(asyncio.wait_for(ask(), 60))
    assert held == UNSENT and statuses == [200] * (2 * UNSENT - 2)


@pytest.mark.parametrize(
    "name",
    [
        "..%2f..%2fetc",
        "team-a-..%2faaaaaaaaaaaaaaaa",
        "team-a%2f..%2fteam-b-aaaaaaaaaaaaaaaa",
        "%2e%2e",
        f"{A}%00",
        f"{A}.",
    ],
)
@pytest.mark.parametrize("part", ["", "/result", "/report", "/bundle", "/logs"])
def test_no_id_leads_out_of_the_callers_audits(callers: Callers, name: str, part: str) -> None:
    assert callers["ours"].get(f"/v1/audits/{name}{part}").status_code in (404, 422)


def test_what_retention_removed_is_gone_and_not_a_failure_that_may_pass(
    callers: Callers, audited: Path, tmp_path: Path
) -> None:
    name = f"team-a-{'b' * 16}"
    folder = folder_in(str(audited), name)
    write_ending(folder, Ending("1", "finished", Outcome.FAIL, bundle=str(audited / "audits" / "team-a" / "gone")))
    (Path(folder) / "fleet.json").write_text("{}")
    for part in ("result", "report", "bundle"):
        answer = callers["ours"].get(f"/v1/audits/{name}/{part}")
        assert (answer.status_code, answer.json()["error"]) == (410, "Pruned"), part
    assert callers["ours"].get(f"/v1/audits/{name}").json()["outcome"] == "fail"
    Path(folder, "ending.json").unlink()
    Path(folder, "fleet.json").unlink()
    Path(folder).rmdir()


# --- identity headers -------------------------------------------------------------------------------------------


@pytest.fixture
def proxied(team: Settings) -> Iterator[Callable[..., TestClient]]:
    """A client that connects from an address, with headers."""
    people = [
        {"name": "root@example.org", "may": ["admin"]},
        {"name": "*@example.org", "fleets": ["team-a"]},
    ]
    identity = {"header": "X-Auth-Email", "callers": people}
    data = {**plain(team), "identity": identity, "trusted_proxies": ["10.1.0.0/16"]}
    app = build(data, digests(team, os.environ))

    def connect(address: str, *headers: tuple[str, str]) -> TestClient:
        client = TestClient(app, client=(address, 5000), raise_server_exceptions=False)
        client.headers = type(client.headers)([*client.headers.multi_items(), *headers])
        return client

    yield connect


def test_a_signed_in_user_is_the_caller_whom_the_settings_describe(
    proxied: Callable[..., TestClient], fleet: dict[str, Any], tmp_path: Path
) -> None:
    person = proxied("10.1.2.3", ("X-Auth-Email", "eve@example.org"))
    assert person.get(f"/v1/audits/{A}").status_code == 200 and person.get(f"/v1/audits/{B}").status_code == 404
    sent = person.post("/v1/audits", json={**fleet, "fleet": "team-a"}, headers={"idempotency-key": "signed in"})
    assert (sent.status_code, sent.json()["caller"]) == (202, "eve@example.org")
    line = json.loads((tmp_path / "changes.jsonl").read_text().splitlines()[-1])
    assert (line["action"], line["caller"]) == ("submit", "eve@example.org")
    assert proxied("10.1.2.3", ("X-Auth-Email", "root@example.org")).get(f"/v1/audits/{B}").status_code == 200


@pytest.mark.parametrize(
    ("address", "headers"),
    [
        ("10.2.0.1", [("X-Auth-Email", "root@example.org")]),
        ("127.0.0.1", [("X-Auth-Email", "root@example.org")]),
        ("10.2.0.1", [("X-Auth-Email", "root@example.org"), ("X-Forwarded-For", "10.1.0.1")]),
        ("10.1.0.1", [("X-Auth-Email", "root@example.org"), ("x-auth-email", "eve@example.org")]),
        ("10.1.0.1", [("X-Auth-Email", "root@example.org.evil.test")]),
        ("10.1.0.1", [("X-Auth-Email", "root@example.org\x7f")]),
        ("10.1.0.1", [("X-Auth-Email", "")]),
        ("10.1.0.1", [("X-Auth_Email", "root@example.org")]),
        ("10.1.0.1", [("X-Forwarded-Email", "root@example.org")]),
        ("10.1.0.1", []),
    ],
)
def test_a_header_from_elsewhere_or_with_two_voices_signs_nobody_in(
    proxied: Callable[..., TestClient], address: str, headers: list[tuple[str, str]]
) -> None:
    assert proxied(address, *headers).get(f"/v1/audits/{B}").status_code == 401


@pytest.mark.parametrize("name", ["ours", "OURS", "root", "mlflow"])
def test_nobody_signs_in_with_the_name_of_a_token(team: Settings, name: str) -> None:
    """Quotas, budgets and the audit log know callers by their names."""
    identity = {"header": "X-User", "callers": [{"name": "*"}]}
    data = {**plain(team), "identity": identity, "trusted_proxies": ["10.1.0.0/16"]}
    client = TestClient(build(data, digests(team, os.environ)), client=("10.1.0.1", 5000))
    assert client.get("/v1/audits", headers={"x-user": name}).status_code == 401
    assert client.get("/v1/audits", headers={"x-user": f"{name}2"}).status_code == 200


def test_a_page_of_another_site_changes_nothing_in_a_users_name(
    proxied: Callable[..., TestClient], fleet: dict[str, Any]
) -> None:
    person = ("X-Auth-Email", "eve@example.org")
    name = proxied("10.1.0.1", person).post("/v1/audits", json={**fleet, "fleet": "team-a"}).json()["id"]
    for site, status in (("cross-site", 401), ("same-site", 401), ("same-origin", 202)):
        answer = proxied("10.1.0.1", person, ("Sec-Fetch-Site", site)).post(f"/v1/audits/{name}/cancel")
        assert answer.status_code == status, site


def test_identity_without_trusted_proxies_is_a_mistake(team: Settings) -> None:
    people = {"callers": [{"name": "*"}]}
    with pytest.raises(ValueError, match="trusted_proxies"):
        Settings.model_validate({**plain(team), "identity": people})


# --- tokens by digest -------------------------------------------------------------------------------------------


def test_a_token_may_be_known_by_its_digest_alone(team: Settings) -> None:
    token = "elsewhere-" + "0123456789abcdef" * 2
    entry = {"name": "ci", "sha256": sha256(token.encode()).hexdigest(), "may": ["read"]}
    settings = Settings.model_validate({**plain(team), "tokens": [entry]})
    client = TestClient(build(plain(settings), digests(settings, {})))
    assert client.get("/v1/audits", headers={"authorization": f"Bearer {token}"}).status_code == 200
    assert client.get("/v1/audits", headers={"authorization": f"Bearer {entry['sha256']}"}).status_code == 401


@pytest.mark.parametrize(
    "entry",
    [
        {"sha256": "0" * 64},
        {"sha256": sha256(b"").hexdigest()},
        {"sha256": "1" * 64, "env": "OURS"},
        {"file": "/nowhere", "env": "OURS"},
        {},
    ],
)
def test_a_digest_of_no_token_and_two_places_of_one_are_refused(team: Settings, entry: dict[str, str]) -> None:
    settings = Settings.model_validate({**plain(team), "tokens": [{"name": "ci", **entry}]})
    with pytest.raises(ConfigError, match="one of file, env and sha256"):
        digests(settings, os.environ)
