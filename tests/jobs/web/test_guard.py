"""The guard by itself: bodies, open paths, budgets."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from jobs.web.guard import CALLERS, Guard, Rates

TOKENS = {"a": "token-of-a", "b": "token-of-b"}
DIGESTS = {name: sha256(token.encode()).digest() for name, token in TOKENS.items()}


def guarded(inner: Any, *, per_minute: int = 1000, **more: Any) -> TestClient:
    app = Guard(inner, digests=DIGESTS, rates=Rates(per_minute), body=10, open_paths=frozenset({"/open"}), **more)
    return TestClient(app)


def token(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {TOKENS[name]}"}


def test_each_token_is_its_own_caller_and_none_is_nobody(inner: Any) -> None:
    client = guarded(inner)
    assert client.get("/x", headers=token("a")).text.split()[0] == "a"
    assert client.get("/x", headers=token("b")).text.split()[0] == "b"
    assert client.get("/x").status_code == 401 and client.get("/open").text.split()[0] == "nobody"


@pytest.mark.parametrize(
    "header", ["Bearer", "bearer ", "Bearer token-of-a extra", "Token token-of-a", "Bearer token-of-A"]
)
def test_what_is_no_known_token_is_none(inner: Any, header: str) -> None:
    assert guarded(inner).get("/x", headers={"authorization": header}).status_code == 401


@pytest.mark.parametrize(("size", "status"), [(0, 200), (10, 200), (11, 413)])
def test_a_body_is_counted_with_and_without_its_header(inner: Any, size: int, status: int) -> None:
    def parts() -> Iterator[bytes]:
        yield from (b"x" for _ in range(size))

    client = guarded(inner)
    assert client.post("/x", content=b"x" * size, headers=token("a")).status_code == status
    assert client.post("/x", content=parts(), headers=token("a")).status_code == status


def test_budgets_are_apart_and_open_paths_have_none(inner: Any) -> None:
    client = guarded(inner, per_minute=2)
    assert [client.get("/x", headers=token("a")).status_code for _ in range(3)] == [200, 200, 429]
    assert [client.get("/x", headers=token("b")).status_code for _ in range(3)] == [200, 200, 429]
    assert [client.get("/x").status_code for _ in range(3)] == [401, 401, 429]
    assert client.get("/open").status_code == 200


def test_only_unsigned_deliveries_cost_a_signed_path_its_budget(inner: Any) -> None:
    client = guarded(inner, per_minute=2, signed_paths=frozenset({"/hook"}))
    assert [client.get("/x").status_code for _ in range(3)] == [401, 401, 429]
    assert [client.post("/hook").status_code for _ in range(5)] == [200] * 5


@given(st.integers(1, 600), st.lists(st.floats(0, 30), max_size=100))
def test_no_one_gets_more_than_a_burst_and_the_rate(per_minute: int, pauses: list[float]) -> None:
    now = [0.0]
    rates = Rates(per_minute, lambda: now[0])
    granted = 0
    for pause in pauses:
        now[0] += pause
        granted += rates.wait_for("a") == 0.0
    assert granted <= per_minute + now[0] * per_minute / 60 + 1e-6


def test_who_was_silent_longest_is_forgotten_first() -> None:
    rates = Rates(1, lambda: 0.0)
    rates.wait_for("first")
    for number in range(CALLERS - 1):
        rates.wait_for(f"other {number}")
    assert rates.wait_for("first") > 0  # known still
    for number in range(CALLERS):
        rates.wait_for(f"new {number}")
    assert rates.wait_for("first") == 0.0
