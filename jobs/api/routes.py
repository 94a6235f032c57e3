"""The routes of version 1: what each does, and how OpenAPI describes it."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse
from fastapi.security import HTTPBearer
from pydantic import TypeAdapter

from jobs.api.admission import admitted
from jobs.api.answers import AuditBody, AuditList, audit_body
from jobs.api.bodies import JSON, YAML, fleet_data
from jobs.api.settings import Settings
from jobs.fleetfile.reading import Fleet, json_schema
from jobs.submission.client import AuditClient
from jobs.submission.status import AuditStatus, State
from jobs.submission.submission import ID_FORM, KEY_FORM, submission_of
from jobs.web.problems import refused
from services.errors import Problem, ServiceError
from services.records import AuditResult

READERS = 2
"""Bodies that are read and checked at the same time."""
SUBMITTERS = 32
"""Submissions that wait for the job server at the same time, in threads of their own: reading results has others."""

_log = logging.getLogger("classwise.api")
_RESULT: TypeAdapter[AuditResult] = TypeAdapter(AuditResult)

AuditId = Annotated[str, Path(alias="id", pattern=ID_FORM, description="FLEET-DIGEST", max_length=120)]
Key = Annotated[
    str | None,
    Header(alias="Idempotency-Key", pattern=KEY_FORM, max_length=200, description="Tells audits of one fleet apart."),
]


class TooMany(ServiceError):
    """The server has as many audits or streams as its settings allow."""


class Service:
    """What the routes do, without HTTP."""

    def __init__(self, settings: Settings, client: AuditClient) -> None:
        self.settings = settings
        self.client = client
        self.followers = 0
        self.readers, self.submitters = CapacityLimiter(READERS), CapacityLimiter(SUBMITTERS)
        self._submitting: set[str] = set()
        self._changed = threading.Condition()

    def admit(self, body: bytes, content_type: str) -> Fleet:
        """The fleet of a request, checked; it costs the interpreter's time, not waiting."""
        return admitted(fleet_data(body, content_type), self.settings)

    def start(self, fleet: Fleet, key: str, allow: Mapping[str, Any] | None = None) -> AuditStatus:
        """Submit a fleet, when there is room for it, with the allow-list that admitted it; None for the server's own.

        Others may be submitted meanwhile; the same fleet and key waits for the first.
        """
        with self._place(submission_of(fleet, key).id):
            return self.client.submit(fleet, key, allow=allow)

    @contextmanager
    def _place(self, name: str) -> Iterator[None]:
        """A place for the audit while it is submitted; afterwards it is active, or the place is free again."""
        with self._changed:  # one by one, else simultaneous requests all see the same room
            self._changed.wait_for(lambda: name not in self._submitting)
            self._require_room(name)
            self._submitting.add(name)
        try:
            yield
        finally:
            with self._changed:
                self._submitting.discard(name)
                self._changed.notify_all()

    def _require_room(self, name: str) -> None:
        active = self.client.active()
        taken, most = active | self._submitting, self.settings.limits.submissions
        if len(taken) >= most and name not in active:
            raise TooMany(Problem("submissions", f"at most {most} that wait or run", str(len(taken)), "submit later"))

    def tail(self, name: str) -> str:
        return self.client.logs(name)[-self.settings.limits.log :]

    def admit_follower(self) -> None:
        if self.followers >= self.settings.limits.followers:
            raise TooMany(Problem("followers", f"at most {self.settings.limits.followers} log streams", "more"))
        self.followers += 1

    async def follow(self, name: str) -> AsyncIterator[str]:
        """As `AuditClient.follow`, without a thread that waits."""
        sent = 0
        try:
            while True:
                over = (await run_in_threadpool(self.client.status, name)).state.over
                text = await run_in_threadpool(self.client.logs, name)
                if len(text) > sent:
                    yield text[max(sent, len(text) - self.settings.limits.log) :]
                    sent = len(text)
                if over:
                    return
                await asyncio.sleep(0.5)
        finally:
            self.followers -= 1


def audit_routes(service: Service) -> APIRouter:
    """All routes that need a token."""
    token = HTTPBearer(auto_error=False, description="A token of the server's settings; checked before the route.")
    router = APIRouter(prefix="/v1", dependencies=[Depends(token)], responses=refused(401, 413, 429))

    @router.get("/schema", summary="The JSON Schema of the fleet file", response_class=JSONResponse)
    def schema() -> dict[str, Any]:
        return json_schema()

    _add_submission(router, service)
    _add_watching(router, service)
    _add_results(router, service)
    return router


def _add_submission(router: APIRouter, service: Service) -> None:
    @router.post(
        "/audits",
        summary="Submit an audit; the same fleet and key is one audit",
        status_code=202,
        response_model=AuditBody,
        responses={200: {"model": AuditBody, "description": "It has ended."}, **refused(403, 415, 422, 503)},
        openapi_extra={"requestBody": _body()},
    )
    async def submit(request: Request, response: Response, key: Key = None) -> AuditBody:
        content_type = request.headers.get("content-type", "")
        # Few at a time: many threads that compute keep the loop, and so the liveness probe, from its turn.
        fleet = await to_thread.run_sync(service.admit, await request.body(), content_type, limiter=service.readers)
        allow = service.settings.allow.model_dump(mode="json")
        status = await to_thread.run_sync(service.start, fleet, key or "", allow, limiter=service.submitters)
        _log.info("submitted %s by %s: %s", status.id, request.scope["state"]["caller"], status.state)
        response.status_code = 200 if status.state.over else 202
        response.headers["location"] = f"/v1/audits/{status.id}"
        return audit_body(status)


def _add_watching(router: APIRouter, service: Service) -> None:
    @router.get("/audits", summary="Submitted audits, the latest first", responses=refused(422, 503))
    def audits(
        fleet: Annotated[str, Query(max_length=100)] = "",
        state: Annotated[State | None, Query()] = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    ) -> AuditList:
        statuses = [status for status in service.client.list(fleet) if state in (None, status.state)]
        return AuditList(audits=[audit_body(status) for status in statuses[:limit]])

    @router.get("/audits/{id}", summary="How an audit stands", responses=refused(404, 422, 503))
    def audit(name: AuditId) -> AuditBody:
        return audit_body(service.client.status(name))

    @router.post(
        "/audits/{id}/cancel",
        summary="Stop an audit; its finished shards are kept",
        status_code=202,
        responses=refused(404, 422, 503),
    )
    def cancel(name: AuditId) -> AuditBody:
        return audit_body(service.client.request_stop(name))


def _add_results(router: APIRouter, service: Service) -> None:
    @router.get(
        "/audits/{id}/result",
        summary="The whole result of a finished audit",
        response_class=JSONResponse,
        responses={
            200: {"content": {"application/json": {"schema": {"type": "object"}}}},
            **refused(404, 409, 422, 503),
        },
    )
    def result(name: AuditId) -> Response:
        return Response(_RESULT.dump_json(service.client.result(name)), media_type="application/json")

    @router.get(
        "/audits/{id}/logs",
        summary="What an audit printed, or prints",
        response_class=Response,  # without a media type, so that errors are described as JSON
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **refused(404, 422, 503)},
    )
    async def logs(
        name: AuditId, follow: Annotated[bool, Query(description="Stream until the audit ends.")] = False
    ) -> Response:
        if not follow:
            return PlainTextResponse(await run_in_threadpool(service.tail, name))
        await run_in_threadpool(service.client.status, name)
        service.admit_follower()
        return StreamingResponse(service.follow(name), media_type="text/plain; charset=utf-8")


def _body() -> dict[str, Any]:
    schema = {
        "type": "object",
        "description": "A fleet file; its whole schema is at /v1/schema. The server decides on storage, tracking, "
        "cluster and factories.",
        "required": ["fleet", "models", "samples"],
        "properties": {
            "fleet": {"type": "string"},
            "models": {"type": "array", "items": {"type": "object"}, "minItems": 1},
            "samples": {"type": "object"},
        },
    }
    return {"required": True, "content": {kind: {"schema": schema} for kind in sorted(JSON | YAML)}}
