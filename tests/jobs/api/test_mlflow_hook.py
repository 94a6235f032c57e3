"""Events of MLflow's registry, signed and sent by MLflow's own code to the real application."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml
from mlflow.entities.webhook import Webhook, WebhookAction, WebhookEntity, WebhookEvent
from mlflow.webhooks.delivery import _generate_hmac_signature, _send_webhook_request  # noqa: PLC2701
from starlette.testclient import TestClient

from jobs.api import hooks
from jobs.api.hooks import PATH, Event, Receiver, Replayed, event_of, secret_of
from jobs.api.routes import Service
from jobs.api.serve import build
from jobs.api.settings import MlflowHookSettings, Settings, digests, plain
from jobs.fleetfile.reading import Fleet
from jobs.submission.client import AuditClient
from jobs.submission.local_jobs import LocalJobs
from jobs.submission.status import AuditStatus
from jobs.submission.submission import submission_of
from jobs.web.shares import TooMany
from services.errors import ConfigError, Problem, ServiceError

from .conftest import TOKEN
from .test_api import ended

SECRET = "the secret of MLflow's webhook"
ALIAS_SET = WebhookEvent(WebhookEntity.MODEL_VERSION_ALIAS, WebhookAction.CREATED)
REGISTERED = WebhookEvent(WebhookEntity.MODEL_VERSION, WebhookAction.CREATED)
TAGGED = WebhookEvent(WebhookEntity.MODEL_VERSION_TAG, WebhookAction.SET)


class Session:
    """What MLflow posts with; goes to the application instead of the network, and keeps what was sent."""

    def __init__(self, client: TestClient) -> None:
        self.client = client
        self.sent: tuple[bytes, dict[str, str]] = (b"", {})

    def post(self, url: str, data: bytes, headers: dict[str, str], timeout: float) -> Any:
        self.sent = (data, headers)
        return self.client.post(PATH, content=data, headers=headers)

    def again(self) -> Any:
        return self.client.post(PATH, content=self.sent[0], headers=self.sent[1])


@pytest.fixture
def hooked(settings: Settings, fleet: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The settings with a hook for the model `digits`, whose fleet file is there."""
    monkeypatch.setenv("MLFLOW_HOOK_SECRET", SECRET)
    monkeypatch.setenv("_MLFLOW_WEBHOOK_ALLOW_PRIVATE_IPS", "true")
    monkeypatch.setenv("MLFLOW_WEBHOOK_ALLOW_PRIVATE_IPS", "true")
    file = tmp_path / "digits.yaml"
    file.write_text(yaml.safe_dump({**fleet, "tracking": {"enabled": False}, "resources": {"runner": "local"}}))
    hook = {
        "secret_env": "MLFLOW_HOOK_SECRET",
        "fleets": {"digits": str(file), "broken": str(tmp_path / "none.yaml")},
        "events": ["model_version_alias.created", "model_version.created"],
        "aliases": ["candidate"],
    }
    return Settings.model_validate({**plain(settings), "hooks": {"mlflow": hook}})


@pytest.fixture
def session(hooked: Settings) -> Iterator[Session]:
    app = build(plain(hooked), digests(hooked, os.environ))
    with TestClient(app, raise_server_exceptions=False) as client:
        yield Session(client)


def send(session: Session, event: WebhookEvent, secret: str = SECRET, **data: str) -> Any:
    webhook = Webhook("1", "w", "https://127.0.0.1/v1/hooks/mlflow", [event], 0, 0, secret=secret)
    return _send_webhook_request(webhook, data, event, session)  # type: ignore[arg-type]


def test_a_signed_event_is_taken_when_others_used_up_its_address(hooked: Settings) -> None:
    narrow = Settings.model_validate({**plain(hooked), "limits": {"per_minute": 3}})
    with TestClient(build(plain(narrow), digests(narrow, os.environ)), raise_server_exceptions=False) as client:
        assert [client.get("/v1/audits").status_code for _ in range(4)] == [401, 401, 401, 429]
        session = Session(client)
        for version in "123456":
            assert send(session, ALIAS_SET, name="other", version=version, alias="candidate").status_code == 200
        unsigned = send(
            session, ALIAS_SET, secret="another secret of somebody", name="other", version="7", alias="candidate"
        )
        assert unsigned.status_code == 429 and int(unsigned.headers["retry-after"]) >= 1


def test_an_alias_that_is_set_has_its_fleet_audited_once(session: Session) -> None:
    answer = send(session, ALIAS_SET, name="digits", version="3", alias="candidate")
    assert answer.status_code == 202, answer.text
    name = answer.json()["audit"]
    assert session.again().status_code == 409
    second = send(session, ALIAS_SET, name="digits", version="3", alias="candidate")
    assert second.json()["audit"] == name
    session.client.headers["authorization"] = f"Bearer {TOKEN}"
    body = ended(session.client, name)
    assert (body["outcome"], body["key"]) == ("pass", "mlflow digits 3 model_version_alias.created @candidate")
    assert len(session.client.get("/v1/audits").json()["audits"]) == 1


def signed(delivery: str, version: str) -> tuple[bytes, dict[str, str]]:
    """A delivery as it reaches the receiver."""
    data = {"name": "digits", "version": version}
    body = json.dumps({"entity": "model_version", "action": "created", "data": data})
    at = str(int(time.time()))
    signature = _generate_hmac_signature(SECRET, delivery, at, body)
    headers = {"x-mlflow-signature": signature, "x-mlflow-timestamp": at, "x-mlflow-delivery-id": delivery}
    return body.encode(), headers


class SlowClient(AuditClient):
    """Accepts audits that nobody starts; to store the first one takes until it may go on, and that may fail."""

    def __init__(self, base: str, *, fails: bool = False) -> None:
        super().__init__(LocalJobs(base), storage=base)
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.started: list[str] = []
        self._fails = fails

    def enqueue(self, fleet: Fleet, key: str = "", **more: Any) -> AuditStatus:
        self.started.append(submission_of(fleet, key).id)
        if len(self.started) == 1:
            self.begun.set()
            assert self.go_on.wait(30)
            if self._fails:
                raise ServiceError(Problem("storage", "an answer", "none"))
        return super().enqueue(fleet, key, **more)


def receiver_of(hooked: Settings, jobs: SlowClient, submissions: int = 20) -> Receiver:
    assert hooked.hooks.mlflow is not None
    limits = hooked.limits.model_copy(update={"submissions": submissions})
    service = Service(hooked.model_copy(update={"limits": limits}), jobs, jobs.dispatcher())
    return Receiver(hooked.hooks.mlflow, SECRET, service)


def test_a_slow_submission_holds_up_no_other_delivery_and_none_is_doubled(hooked: Settings) -> None:
    jobs = SlowClient(hooked.storage, fails=True)
    receiver = receiver_of(hooked, jobs)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(receiver.receive, *signed("a", "1"))
        assert jobs.begun.wait(30)
        try:
            other = pool.submit(receiver.receive, *signed("b", "2")).result(timeout=10)
            assert other.audit == jobs.started[1] != jobs.started[0]
            with pytest.raises(ServiceError, match="again in a moment"):
                receiver.receive(*signed("a", "1"))
        finally:
            jobs.go_on.set()
        with pytest.raises(ServiceError, match="storage"):
            first.result()
    assert receiver.receive(*signed("a", "1")).audit, "one that met a fault may come again"
    with pytest.raises(Replayed):
        receiver.receive(*signed("a", "1"))
    assert len(jobs.started) == 3


@pytest.mark.parametrize("fails", [False, True])
def test_an_audit_that_is_being_submitted_has_a_place_until_that_fails(hooked: Settings, fails: bool) -> None:
    jobs = SlowClient(hooked.storage, fails=fails)
    receiver = receiver_of(hooked, jobs, submissions=1)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(receiver.receive, *signed("a", "1"))
        assert jobs.begun.wait(30)
        try:
            with pytest.raises(TooMany, match="at most 1 that wait or run, found 1"):
                pool.submit(receiver.receive, *signed("b", "2")).result(timeout=10)
        finally:
            jobs.go_on.set()
        if fails:
            with pytest.raises(ServiceError, match="storage"):
                first.result()
            assert receiver.receive(*signed("b", "2")).audit == jobs.started[1]
        else:
            assert first.result().audit == jobs.started[0]
            with pytest.raises(TooMany):
                receiver.receive(*signed("b", "2"))


def test_an_event_that_is_delivered_twice_at_once_is_submitted_once(hooked: Settings) -> None:
    jobs = SlowClient(hooked.storage)
    receiver = receiver_of(hooked, jobs)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(receiver.receive, *signed("a", "1"))
        assert jobs.begun.wait(30)
        second = pool.submit(receiver.receive, *signed("b", "1"))
        try:
            with pytest.raises(TimeoutError):
                second.result(timeout=0.5)
        finally:
            jobs.go_on.set()
        assert first.result() == second.result(timeout=10)
    assert jobs.active() == set(jobs.started)


def test_what_is_signed_and_starts_nothing(session: Session) -> None:
    for event, data, reason in (
        (ALIAS_SET, {"name": "other", "version": "3", "alias": "candidate"}, "no fleet for this model"),
        (ALIAS_SET, {"name": "digits", "version": "3", "alias": "champion"}, "this alias"),
        (TAGGED, {"name": "digits", "version": "3", "key": "k", "value": "v"}, "another kind"),
    ):
        answer = send(session, event, **data)
        assert answer.status_code == 200 and reason in answer.json()["ignored"] and not answer.json()["audit"]
    lost = send(session, ALIAS_SET, name="broken", version="3", alias="candidate")
    assert lost.status_code == 503 and "none.yaml" not in lost.text
    assert session.again().status_code == 503, "a delivery that met a fault may come again"
    assert send(session, ALIAS_SET, name="digits", version="x", alias="candidate").status_code == 422


def test_what_is_not_signed_now_by_mlflow_is_refused(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    event = {"name": "digits", "version": "3", "alias": "candidate"}
    assert send(session, ALIAS_SET, "another secret, just as long", **event).status_code == 401
    assert send(session, ALIAS_SET, "", **event).status_code == 401
    body, headers = session.sent
    at = headers["X-MLflow-Timestamp"]
    signed = {
        **headers,
        "X-MLflow-Signature": _generate_hmac_signature(SECRET, headers["X-MLflow-Delivery-Id"], at, "{}"),
    }
    assert session.client.post(PATH, content=body, headers=signed).status_code == 401
    old = str(int(time.time()) - 301)
    signature = _generate_hmac_signature(SECRET, "d", old, body.decode())
    past = {"X-MLflow-Signature": signature, "X-MLflow-Timestamp": old, "X-MLflow-Delivery-Id": "d"}
    answer = session.client.post(PATH, content=body, headers=past)
    assert answer.status_code == 401 and "clocks" in answer.text
    assert session.client.post(PATH, content=body).status_code == 401
    assert session.client.post(PATH, content=b"x" * 300_000).status_code == 413
    session.client.headers["authorization"] = f"Bearer {TOKEN}"
    assert session.client.post(PATH, content=body).status_code == 401, "a caller's token is no signature"
    assert session.client.get("/v1/audits").json() == {"audits": []}


def test_the_version_stands_in_the_fleet_that_asks_for_it(hooked: Settings, session: Session) -> None:
    file = Path(hooked.hooks.mlflow.fleets["digits"]) if hooked.hooks.mlflow else Path()
    data = yaml.safe_load(file.read_text())
    data["models"] = [{"name": "new", "uri": "mlflow:models:/digits/{version}"}, *data["models"]]
    file.write_text(yaml.safe_dump(data))
    answer = send(session, REGISTERED, name="digits", version="17")
    assert answer.status_code == 202
    submitted = Path(hooked.storage) / "submissions" / answer.json()["audit"] / "fleet.json"
    uris = [model["uri"] for model in json.loads(submitted.read_text())["fleet"]["models"]]
    assert uris[0] == "mlflow:models:/digits/17" and uris[1].startswith("factory:")
    session.client.headers["authorization"] = f"Bearer {TOKEN}"
    ended(session.client, answer.json()["audit"])


def test_it_is_off_by_default(caller: TestClient) -> None:
    assert caller.post(PATH, content=b"{}").status_code == 404
    assert PATH not in caller.get("/v1/openapi.json").json()["paths"]
    del caller.headers["authorization"]
    assert caller.post(PATH, content=b"{}").status_code == 401


def test_keys_are_ascii_whatever_the_model() -> None:
    body = json.dumps({"entity": "model_version", "action": "created", "data": {"name": "Ärger", "version": "1"}})
    event = event_of(body.encode())
    assert event is not None and event.key.startswith("mlflow ") and event.key.isascii()
    assert event.key != Event(event.kind, "Ärger", "2", "").key
    for broken in (b"{", b"[]", b'{"entity": "model_version", "action": "created"}', b"\xff", b"[" * 100_000):
        with pytest.raises(ConfigError, match="an event of MLflow's registry"):
            event_of(broken)


def test_deliveries_are_remembered_within_bounds(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "REMEMBERED", 1)
    assert send(session, TAGGED, name="digits", version="3").status_code == 200
    first = session.sent
    send(session, TAGGED, name="digits", version="3")
    session.sent = first
    assert session.again().status_code == 200


@pytest.mark.parametrize(("secret", "found"), [("", "nothing"), ("short", "5 characters")])
def test_a_secret_that_is_missing_or_short_is_told_at_the_start(secret: str, found: str) -> None:
    settings = MlflowHookSettings(secret_env="HOOK", fleets={"m": "/f.yaml"})
    with pytest.raises(ConfigError, match=found):
        secret_of(settings, {"HOOK": secret})
    with pytest.raises(ValueError, match="absolute paths"):
        MlflowHookSettings(secret_env="HOOK", fleets={"m": "f.yaml"})
