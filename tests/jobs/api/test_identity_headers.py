"""Callers whom a proxy has signed in, and tokens that are known by their digests."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from jobs.api.serve import build
from jobs.api.settings import Settings, digests, plain
from services.errors import ConfigError

from .conftest import A, B


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
