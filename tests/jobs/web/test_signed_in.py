"""The identity header by itself: from whom, how often, and of whom it counts."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Any

import pytest
from starlette.testclient import TestClient

from jobs.web.access import Caller
from jobs.web.guard import Guard, Rates
from jobs.web.signed_in import Identity

PROXIES = [ip_network("10.1.0.0/16"), ip_network("fd00::/8")]
PEOPLE = [Caller("root@example.org", ("*",)), Caller("*@example.org", ("shop-*",))]


def client(inner: Any, address: str) -> TestClient:
    guard = Guard(inner, digests={}, rates=Rates(1000), body=10, open_paths=frozenset())
    app = Identity(guard, header="X-User", proxies=PROXIES, callers=PEOPLE)
    return TestClient(app, client=(address, 1))


@pytest.mark.parametrize("address", ["10.1.0.1", "10.1.255.254", "fd12::1"])
def test_a_trusted_proxys_user_is_the_caller_by_name(inner: Any, address: str) -> None:
    answer = client(inner, address).get("/x", headers={"x-user": "eve@example.org"})
    assert answer.status_code == 200 and answer.text == "eve@example.org 0 None"


@pytest.mark.parametrize("address", ["10.2.0.1", "::1", "127.0.0.1", "fe80::1", "testclient", ""])
def test_anyone_elses_header_signs_nobody_in(inner: Any, address: str) -> None:
    assert client(inner, address).get("/x", headers={"x-user": "root@example.org"}).status_code == 401


@pytest.mark.parametrize("name", ["", " ", "eve", "eve@example.org\t.", "x" * 201 + "@example.org"])
def test_a_name_that_no_pattern_fits_is_nobody(inner: Any, name: str) -> None:
    assert client(inner, "10.1.0.1").get("/x", headers={"x-user": name}).status_code == 401


@pytest.mark.parametrize("name", ["x@evil.test,root@example.org", "root@example.org, root@example.org"])
def test_two_names_that_a_proxy_joined_are_nobody(inner: Any, name: str) -> None:
    """A header that was there twice, as HTTP lets a proxy write it (RFC 9110, 5.3)."""
    assert client(inner, "10.1.0.1").get("/x", headers={"x-user": name}).status_code == 401


@pytest.mark.parametrize(
    ("method", "origin", "status"),
    [
        ("POST", "https://evil.test", 401),
        ("POST", "null", 401),
        ("POST", "http://testserver.evil.test", 401),
        ("POST", "http://testserver:81", 401),
        ("POST", "http://testserver", 200),
        ("POST", "https://TestServer", 200),
        ("POST", None, 200),
        ("GET", "https://evil.test", 200),
    ],
)
def test_a_page_of_another_site_changes_nothing_also_without_tls(
    inner: Any, method: str, origin: str | None, status: int
) -> None:
    """Browsers say Sec-Fetch-Site to https alone; Origin they send with every change."""
    headers = {"x-user": "eve@example.org"} | ({"origin": origin} if origin else {})
    assert client(inner, "10.1.0.1").request(method, "/x", headers=headers).status_code == status
