"""What a caller with some fleets sees and does; each test is somebody who tries for more."""

from __future__ import annotations

import asyncio
import io
import json
import os
import threading
import time
import zipfile
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from jobs.api.admission import admitted
from jobs.api.routes import PACKERS, UNSENT
from jobs.api.serve import build
from jobs.api.settings import Settings, digests, plain
from jobs.submission.client import AuditClient
from jobs.submission.status import AuditStatus
from jobs.submission.submission import Ending, folder_in, write_ending
from services.errors import ConfigError
from services.records import Outcome

from .conftest import NONE, TOKENS, A, B

Callers = dict[str, TestClient]


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


# --- tokens by digest -------------------------------------------------------------------------------------------
