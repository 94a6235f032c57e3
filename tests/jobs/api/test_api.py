"""The API as a caller meets it, over real audits."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
import schemathesis
import yaml
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from schemathesis import checks
from starlette.testclient import TestClient

from jobs.api.app import OPEN_PATHS
from jobs.api.settings import Settings

from .conftest import TOKEN

UNKNOWN = "digits-0123456789abcdef"


def ended(caller: TestClient, name: str) -> dict[str, Any]:
    end = time.monotonic() + 300
    while True:
        body: dict[str, Any] = caller.get(f"/v1/audits/{name}").json()
        if body["state"] not in ("queued", "running"):
            return body
        assert time.monotonic() < end
        time.sleep(0.2)


def test_from_submission_to_result(caller: TestClient, fleet: dict[str, Any], settings: Settings) -> None:
    sent = caller.post("/v1/audits", json=fleet, headers={"idempotency-key": "pipeline 7"})
    assert sent.status_code == 202, sent.text
    name = sent.json()["id"]
    assert sent.headers["location"] == f"/v1/audits/{name}"
    assert caller.get(f"/v1/audits/{name}/result").status_code == 409
    again = caller.post(
        "/v1/audits",
        content=yaml.safe_dump(fleet),
        headers={"idempotency-key": "pipeline 7", "content-type": "application/yaml"},
    )
    assert again.json()["id"] == name and again.json()["attempt"] == sent.json()["attempt"]

    body = ended(caller, name)
    assert (body["state"], body["outcome"], body["exit_code"], body["key"]) == ("finished", "pass", 0, "pipeline 7")
    assert body["bundle"].startswith(f"{settings.storage}/audits/digits/")
    result = caller.get(body["links"]["result"])
    assert result.json()["outcome"] == "pass" and result.json()["audit_id"] == body["audit_id"]
    assert "digits: pass" in caller.get(f"/v1/audits/{name}/logs").text
    assert "digits: pass" in caller.get(f"/v1/audits/{name}/logs", params={"follow": True}).text
    assert caller.post("/v1/audits", json=fleet, headers={"idempotency-key": "pipeline 7"}).status_code == 200
    listed = caller.get("/v1/audits", params={"fleet": "digits", "state": "finished"}).json()["audits"]
    assert [audit["id"] for audit in listed] == [name]
    assert caller.get("/v1/audits", params={"fleet": "other"}).json() == {"audits": []}
    assert caller.post(f"/v1/audits/{name}/cancel").json()["state"] == "finished"


def test_a_running_audit_is_cancelled(caller: TestClient, fleet: dict[str, Any]) -> None:
    slow = {**fleet, "measures": [{"name": "pgd", "steps": 500, "epsilons": [0.02]}], "resources": {"shard": 50}}
    name = caller.post("/v1/audits", json=slow).json()["id"]
    while "measures" not in caller.get(f"/v1/audits/{name}/logs").text:
        time.sleep(0.1)
    assert caller.post(f"/v1/audits/{name}/cancel").status_code == 202
    body = ended(caller, name)
    assert (body["state"], body["outcome"], body["exit_code"]) == ("stopped", None, 130)
    refused = caller.get(f"/v1/audits/{name}/result")
    assert refused.status_code == 409 and refused.json()["problems"][0]["remedy"] == "submit it again"


def test_faults_of_a_fleet_are_told_all_at_once_in_the_one_shape(caller: TestClient, fleet: dict[str, Any]) -> None:
    text = yaml.safe_dump({**fleet, "measures": ["graet"], "seed": -1})
    answer = caller.post("/v1/audits", content=text, headers={"content-type": "text/yaml"})
    assert answer.status_code == 422 and answer.json()["error"] == "ConfigError"
    wheres = [problem["where"] for problem in answer.json()["problems"]]
    assert len(wheres) == 2 and any("measures[0]" in where for where in wheres)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", f"/v1/audits/{UNKNOWN}", 404),
        ("GET", f"/v1/audits/{UNKNOWN}/result", 404),
        ("GET", f"/v1/audits/{UNKNOWN}/logs", 404),
        ("GET", f"/v1/audits/{UNKNOWN}/logs?follow=true", 404),
        ("POST", f"/v1/audits/{UNKNOWN}/cancel", 404),
        ("GET", "/v1/none", 404),
        ("DELETE", "/v1/audits", 405),
        ("GET", "/v1/audits?limit=0", 422),
        ("GET", "/v1/audits?state=dead", 422),
    ],
)
def test_every_refusal_has_the_one_shape(caller: TestClient, method: str, path: str, status: int) -> None:
    answer = caller.request(method, path)
    assert answer.status_code == status
    assert set(answer.json()) == {"error", "problems"} and answer.json()["problems"][0]["expected"]


def test_health_needs_no_token_and_tells_no_secret(caller: TestClient) -> None:
    del caller.headers["authorization"]
    for path in OPEN_PATHS:
        assert caller.get(path).status_code == 200
    assert caller.get("/ready").json()["status"] == "ready"
    assert caller.get("/v1/audits").status_code == 401


def test_the_schema_is_the_fleet_files(caller: TestClient) -> None:
    from jobs.fleetfile.reading import json_schema

    assert caller.get("/v1/schema").json() == json.loads(json.dumps(json_schema()))


@pytest.mark.filterwarnings("default")
def test_the_api_keeps_its_own_openapi_document(app: Any) -> None:
    """Fuzzed from the document: never a 5xx, no status, header, type or body that the document does not have."""
    schema = schemathesis.openapi.from_asgi("/v1/openapi.json", app)
    wanted = [
        checks.not_a_server_error,
        schemathesis.specs.openapi.checks.status_code_conformance,
        schemathesis.specs.openapi.checks.content_type_conformance,
        schemathesis.specs.openapi.checks.response_headers_conformance,
        schemathesis.specs.openapi.checks.response_schema_conformance,
        schemathesis.specs.openapi.checks.ignored_auth,
    ]
    operations = [each.ok() for each in schema.get_all_operations()]
    assert {operation.path for operation in operations} >= {"/v1/audits", "/v1/audits/{id}/result", "/ready"}
    quick = hypothesis_settings(
        max_examples=15, deadline=None, database=None, suppress_health_check=list(HealthCheck), derandomize=True
    )
    from hypothesis import given

    for operation in operations:

        @quick
        @given(case=operation.as_strategy())
        def fuzz(case: Any) -> None:
            case.call_and_validate(checks=wanted, headers={"Authorization": f"Bearer {TOKEN}"})

        fuzz()
