"""How much a caller may ask in a minute, and whose address counts."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from jobs.api.serve import build
from jobs.api.settings import Settings, plain
from jobs.web.guard import Rates

from .conftest import TOKEN, client_of


def test_rates_are_kept_a_caller_and_refill() -> None:
    now = [0.0]
    rates = Rates(60, lambda: now[0])
    assert [rates.wait_for("a") for _ in range(60)] == [0.0] * 60
    assert rates.wait_for("a") == pytest.approx(1.0)
    assert rates.wait_for("b") == 0.0
    now[0] = 1.5
    assert rates.wait_for("a") == 0.0
    assert rates.wait_for("a") == pytest.approx(0.5)


def test_a_fast_caller_is_told_when_to_come_back(settings: Settings) -> None:
    limits = {**plain(settings)["limits"], "per_minute": 3}
    with client_of(settings, limits=limits) as caller:
        answers = [caller.get("/v1/audits") for _ in range(5)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 429, 429]
        assert 1 <= int(answers[-1].headers["retry-after"]) <= 21
        assert caller.get("/health").status_code == 200


def statuses(settings: Settings, proxy: str, **changes: Any) -> list[int]:
    """Answers to four requests without a token of four addresses, as a proxy passes them on."""
    app = build(plain(Settings.model_validate({**plain(settings), **changes, "limits": {"per_minute": 2}})), {})
    with TestClient(app, client=(proxy, 50_000)) as client:
        headers = [{"x-forwarded-for": f"192.0.2.{number}"} for number in range(4)]
        return [client.get("/v1/audits", headers=each).status_code for each in headers]


def test_only_trusted_proxies_name_the_address_of_a_request(settings: Settings) -> None:
    limited = [401, 401, 429, 429]
    assert statuses(settings, "10.0.0.7") == limited
    assert statuses(settings, "127.0.0.1") == limited
    assert statuses(settings, "10.0.0.7", trusted_proxies=["10.0.0.0/8"]) == [401] * 4
    assert statuses(settings, "172.16.0.1", trusted_proxies=["10.0.0.0/8"]) == limited


@pytest.mark.parametrize("form", ["2001:db8::{}", "2001:db8:0:0:{}:1:2:3", "::ffff:192.0.2.1"])
def test_one_machine_has_one_budget_whatever_address_of_its_network_it_takes(settings: Settings, form: str) -> None:
    """Of IPv6 one machine has 2**64 addresses: with one each it evades the limit, and has other callers forgotten."""
    app = build(plain(Settings.model_validate({**plain(settings), "limits": {"per_minute": 2}})), {})
    clients = [TestClient(app, client=(form.format(number), 50_000)) for number in range(1, 5)]
    assert [client.get("/v1/audits").status_code for client in clients] == [401, 401, 429, 429]
    assert TestClient(app, client=("2001:db9::1", 1)).get("/v1/audits").status_code == 401
    assert TestClient(app, client=("192.0.2.1", 1)).get("/v1/audits").status_code == (429 if "ffff" in form else 401)


def test_callers_behind_one_address_have_a_budget_each(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHER_TOKEN", "another-" + TOKEN)
    tokens = [*plain(settings)["tokens"], {"name": "other", "env": "OTHER_TOKEN"}]
    narrow = Settings.model_validate({**plain(settings), "limits": {"per_minute": 2}, "tokens": tokens})
    with client_of(narrow) as caller:
        assert [caller.get("/v1/audits").status_code for _ in range(3)] == [200, 200, 429]
        other = {"authorization": f"Bearer another-{TOKEN}"}
        assert [caller.get("/v1/audits", headers=other).status_code for _ in range(3)] == [200, 200, 429]
