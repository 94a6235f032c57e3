"""`POST /v1/hooks/mlflow`: an audit for an event of MLflow's registry.

MLflow signs a delivery with the secret of its webhook: ``X-MLflow-Signature: v1,BASE64`` of the HMAC-SHA256 of
``DELIVERY.TIMESTAMP.BODY``. Who sends an event chooses among the fleet files that the server's settings name, and
nothing else. The same event is one audit, however often it is delivered.
"""

from __future__ import annotations

import base64
import hmac
import logging
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, Field, TypeAdapter

from jobs.api.routes import Service
from jobs.api.settings import MlflowHookSettings
from jobs.fleetfile.reading import KIND, Fleet, validate_fleet
from jobs.fleetfile.yamlfile import read_yaml
from jobs.submission.submission import KEY_FORM
from jobs.web.problems import refused
from services.errors import ClasswiseError, ConfigError, Problem, ServiceError, one_line
from services.records import digest_of
from services.storage import plainjson

PATH = "/v1/hooks/mlflow"
TOLERANCE = 300.0
"""Seconds that a delivery may be old: MLflow tries again for less than that, with the time of its first try."""
REMEMBERED = 10_000
CALLER = "mlflow"
"""In the audit log."""
SECRET_LENGTH = 16

_log = logging.getLogger("classwise.api")


class Unsigned(ClasswiseError):
    """A delivery without a signature that holds, or one that is old."""


class Replayed(ClasswiseError):
    """A delivery that was taken before."""


class _Data(BaseModel):
    name: str = Field(max_length=1000)
    version: str = Field(pattern=r"^[0-9]{1,18}$")
    alias: str = Field("", max_length=1000)


class _Event(BaseModel):
    entity: str = Field(max_length=100)
    action: str = Field(max_length=100)


class HookBody(BaseModel):
    """What became of an event."""

    audit: str = Field("", description="The id of the audit that it started; empty when it was ignored.")
    ignored: str = Field("", description="Why.")


@dataclass(frozen=True)
class Event:
    """A version that was registered, or an alias that was set."""

    kind: str
    model: str
    version: str
    alias: str

    @property
    def key(self) -> str:
        """The key of its audit: the same event is one audit."""
        text = f"mlflow {self.model} {self.version} {self.kind}" + (f" @{self.alias}" if self.alias else "")
        return text if re.fullmatch(KEY_FORM, text) else f"mlflow {digest_of(text)}"


class Receiver:
    """Checks deliveries and turns them into audits.

    Args:
        settings: which models, events and aliases lead to which fleet file.
        secret: of MLflow's webhook.
        service: submits.
        clock: seconds since 1970.
    """

    def __init__(
        self, settings: MlflowHookSettings, secret: str, service: Service, clock: Callable[[], float] = time.time
    ) -> None:
        if len(secret) < SECRET_LENGTH:  # an empty key verifies what anybody signs with it
            raise ConfigError(Problem("secret", f"at least {SECRET_LENGTH} characters", f"{len(secret)}"))
        self._settings = settings
        self._secret = secret
        self._service = service
        self._clock = clock
        self._taken: OrderedDict[str, float] = OrderedDict()
        self._busy: set[str] = set()
        self._lock = threading.Lock()

    def receive(self, body: bytes, headers: Mapping[str, str]) -> HookBody:
        """Submit the audit of an event.

        A delivery is remembered once its audit is submitted, so that one that met a fault may come again.

        Raises:
            Unsigned: the signature does not hold, or the time is not now.
            Replayed: it was taken before.
            ConfigError: it is signed and not an event of MLflow.
            ServiceError: the fleet file is not in order, the job server is down, or the same delivery is being taken.
        """
        with self._once(self._checked(body, headers)):
            return self._answer(body)

    @contextmanager
    def _once(self, delivery: str) -> Iterator[None]:
        """This delivery is handled once: by no other request during the block, nor after it unless the block failed."""
        with self._lock:
            if delivery in self._taken:
                raise Replayed(Problem("x-mlflow-delivery-id", "a delivery that is new", repr(delivery)[:80]))
            if delivery in self._busy:  # not yet taken: it is to come again in case that fails
                actual, remedy = "one that is being submitted", "send it again in a moment"
                raise ServiceError(Problem("x-mlflow-delivery-id", "a delivery in no other request", actual, remedy))
            self._busy.add(delivery)
        try:
            yield
        except BaseException:
            with self._lock:
                self._busy.discard(delivery)
            raise
        with self._lock:
            self._busy.discard(delivery)
            self._taken[delivery] = self._clock()
            while len(self._taken) > REMEMBERED:
                self._taken.popitem(last=False)

    def _checked(self, body: bytes, headers: Mapping[str, str]) -> str:
        """The id of a delivery whose signature holds and whose time is now."""
        delivery, at = headers.get("x-mlflow-delivery-id", ""), headers.get("x-mlflow-timestamp", "")
        signed = f"{delivery}.{at}.".encode("utf-8", "replace") + body
        digest = base64.b64encode(hmac.new(self._secret.encode(), signed, sha256).digest()).decode()
        signature = headers.get("x-mlflow-signature", "").encode("utf-8", "replace")
        if not delivery or not hmac.compare_digest(f"v1,{digest}".encode(), signature):
            remedy = "give MLflow's webhook the secret of the server"
            raise Unsigned(Problem("x-mlflow-signature", "a signature of MLflow that holds", "none or another", remedy))
        if not re.fullmatch(r"\d{1,15}", at, re.ASCII) or abs(self._clock() - int(at)) > TOLERANCE:
            remedy = "compare the clocks of both machines"
            raise Unsigned(Problem("x-mlflow-timestamp", f"a time within {TOLERANCE:g} s", repr(at)[:40], remedy))
        return delivery

    def _answer(self, body: bytes) -> HookBody:
        event = event_of(body)
        reason = "it is of another kind" if event is None else self._reason(event)
        if event is None or reason:
            return HookBody(ignored=reason)
        status = self._service.start(self._fleet(event), event.key)
        self._service.changes.record("hook", CALLER, audit=status.id, key=event.key, state=status.state)
        _log.info("%s: %s", event.key, status.id)
        return HookBody(audit=status.id)

    def _reason(self, event: Event) -> str:
        """Why an event leads to no audit; "" when it does."""
        settings = self._settings
        if event.model not in settings.fleets:
            return "the settings name no fleet for this model"
        if event.kind not in settings.events:
            return f"the settings do not name events {event.kind}"
        if event.alias and settings.aliases and event.alias not in settings.aliases:
            return "the settings do not name this alias"
        return ""

    def _fleet(self, event: Event) -> Fleet:
        """The fleet file as it is now, in the server's storage; ``{version}`` in the model's URI is the event's."""
        path = self._settings.fleets[event.model]
        try:
            data, where = read_yaml(path, KIND)
            if isinstance(data, dict):
                data = {**data, "storage": self._service.settings.storage, "models": _versioned(data, event)}
            return validate_fleet(data, where=where)
        except ConfigError as error:
            _log.error("the fleet file of %s: %s", event.model, error)
            remedy = "look at the server's log"
            raise ServiceError(Problem(event.model, "a fleet file that is in order", "another", remedy)) from None


def event_of(body: bytes) -> Event | None:
    """The event of a delivery; None for one of a kind that starts no audit.

    Raises:
        ConfigError: it is not what MLflow sends.
    """
    try:
        raw = plainjson.parsed(body)
        head = TypeAdapter(_Event).validate_python(raw)
        kind = f"{head.entity}.{head.action}"
        if kind not in ("model_version.created", "model_version_alias.created"):
            return None
        data = TypeAdapter(_Data).validate_python(raw.get("data"))
    except ValueError as error:
        actual = one_line(error)
        raise ConfigError(Problem("body", "an event of MLflow's registry", actual)) from None
    return Event(kind, data.name, data.version, data.alias if head.entity.endswith("alias") else "")


def hook_routes(receiver: Receiver) -> APIRouter:
    """The route, which needs no token: the signature says who calls."""
    router = APIRouter()

    @router.post(
        PATH,
        summary="An event of MLflow's registry, signed by MLflow",
        response_model=HookBody,
        responses={
            202: {"model": HookBody, "description": "An audit was submitted."},
            **refused(401, 409, 413, 422, 429, 503),
        },
    )
    async def mlflow(request: Request, response: Response) -> HookBody:
        body = await run_in_threadpool(receiver.receive, await request.body(), request.headers)
        response.status_code = 202 if body.audit else 200
        return body

    return router


def secret_of(settings: MlflowHookSettings, environment: Mapping[str, str]) -> str:
    """The secret of MLflow's webhook.

    Raises:
        ConfigError: it is not set where the API runs, or short.
    """
    secret = environment.get(settings.secret_env, "")
    if len(secret) < SECRET_LENGTH:
        actual = f"{len(secret)} characters" if secret else "nothing"
        remedy = "set it where the API runs, and give the same to MLflow's webhook"
        where = f"hooks.mlflow.secret_env ({settings.secret_env})"
        raise ConfigError(Problem(where, f"a secret of at least {SECRET_LENGTH} characters", actual, remedy))
    return secret


def _versioned(data: Mapping[str, Any], event: Event) -> Any:
    models = data.get("models")
    if not isinstance(models, list):
        return models
    template, registered = f"mlflow:models:/{event.model}/{{version}}", f"mlflow:models:/{event.model}/{event.version}"
    return [
        {**model, "uri": registered} if isinstance(model, dict) and model.get("uri") == template else model
        for model in models
    ]
