"""The routes of version 1: what each does, and how OpenAPI describes it."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse
from fastapi.security import HTTPBearer
from pydantic import TypeAdapter

from jobs.api import downloads
from jobs.api.admission import admitted
from jobs.api.answers import AuditBody, AuditList, audit_body
from jobs.api.bodies import JSON, YAML, fleet_data
from jobs.api.changes import ChangeLog
from jobs.api.settings import Settings
from jobs.fleetfile.reading import Fleet, json_schema
from jobs.submission.client import AuditClient
from jobs.submission.dispatcher import Dispatcher
from jobs.submission.status import AuditStatus, State
from jobs.submission.submission import ID_FORM, KEY_FORM, fleet_in, submission_of
from jobs.web.access import Caller, Right, Who, unknown_audit
from jobs.web.problems import refused
from jobs.web.shares import Once, Places, TooMany, Turns, UntilSent
from services.errors import ClasswiseError, Problem, StorageError, UnknownAudit
from services.records import AuditResult
from services.storage import files
from tracking.bundle.bundle import BUNDLE, fleet_folder, read_bundle

READERS = 2
"""Bodies that are read and checked at the same time."""
SUBMITTERS = 32
"""Submissions that are stored at the same time."""
PACKERS = 2
"""Results, reports and archives that are read and packed at the same time: megabytes each, and all of them compute."""
UNSENT = 4
"""Of these, ones of a caller that are packed and not sent yet: they lie in memory or on disk while a caller reads."""
LOOKERS = 16
"""Requests for how audits stand, which wait for the storage."""
ASKERS = 16
"""Requests that wait for the job server (logs, stopping), in threads of their own: reading results has others."""

_log = logging.getLogger("classwise.api")
_RESULT: TypeAdapter[AuditResult] = TypeAdapter(AuditResult)

AuditId = Annotated[str, Path(alias="id", pattern=ID_FORM, description="FLEET-DIGEST", max_length=120)]
Key = Annotated[
    str | None,
    Header(alias="Idempotency-Key", pattern=KEY_FORM, max_length=200, description="Tells audits of one fleet apart."),
]


SERVER = Caller("", priority=0)
"""Who submits when nobody called: the server itself, at an event."""


def share_of(settings: Settings) -> Callable[[int], int]:
    """How many of what there are so many one caller may hold: half, and all where nobody else calls."""
    alone = len(settings.tokens) == 1 and settings.identity is None
    return lambda most: most if alone else (most + 1) // 2


class Service:
    """What the routes do, without HTTP.

    Args:
        settings: of the server.
        client: watches audits, within the settings' storage.
        dispatcher: hands over to the job server what was accepted.
        changes: the audit log.
    """

    def __init__(
        self, settings: Settings, client: AuditClient, dispatcher: Dispatcher, changes: ChangeLog | None = None
    ) -> None:
        self.settings = settings
        self.client = client
        self.dispatcher = dispatcher
        self.changes = changes or ChangeLog()
        share = share_of(settings)
        self.followers = Places(settings.limits.followers, share(settings.limits.followers))
        self.reading = Turns(share(READERS))
        self.packing, self.unsent = Turns(share(PACKERS)), Turns(UNSENT)
        self.readers, self.submitters = CapacityLimiter(READERS), CapacityLimiter(SUBMITTERS)
        self.askers, self.packers = CapacityLimiter(ASKERS), CapacityLimiter(PACKERS)
        self.lookers = CapacityLimiter(LOOKERS)
        self._submitting: dict[str, str] = {}
        self._changed = threading.Condition()

    def admit(self, body: bytes, content_type: str, caller: Caller) -> Fleet:
        """The fleet of a request, checked; it costs the interpreter's time, not waiting."""
        caller.require(Right.SUBMIT)
        allow = self.settings.allow_of(caller)
        fleet = admitted(fleet_data(body, content_type), self.settings, allow, of_all=caller.sees_all)
        caller.require_fleet(fleet.config.fleet)
        return fleet

    def start(
        self, fleet: Fleet, key: str, allow: Mapping[str, Any] | None = None, caller: Caller = SERVER
    ) -> AuditStatus:
        """Accept a fleet, when there is room for it, with the allow-list that admitted it; None for the server's own.

        It is stored and waits for its turn; the job server is not asked. Others may be submitted meanwhile; the same
        fleet and key waits for the first.
        """
        with self._place(submission_of(fleet, key).id, caller):
            status = self.client.enqueue(fleet, key, allow=allow, caller=caller.name, priority=caller.priority)
        self.dispatcher.wake()
        return status

    @contextmanager
    def _place(self, name: str, caller: Caller) -> Iterator[None]:
        """A place for the audit while it is submitted; afterwards it is active, or the place is free again."""
        with self._changed:  # one by one, else simultaneous requests all see the same room
            self._changed.wait_for(lambda: name not in self._submitting)
            self._require_room(name, caller)
            self._submitting[name] = caller.name
        try:
            yield
        finally:
            with self._changed:
                self._submitting.pop(name, None)
                self._changed.notify_all()

    def _require_room(self, name: str, caller: Caller) -> None:
        active = self.client.active_callers()
        taken, most = {**self._submitting, **active}, self.settings.limits.submissions
        own, quota = Counter(taken.values())[caller.name], caller.submissions
        if quota is None and caller is not SERVER:  # one that submits without an end keeps only itself out
            quota = share_of(self.settings)(most)
        if name in active:
            return
        if len(taken) >= most:
            raise TooMany(Problem("submissions", f"at most {most} that wait or run", str(len(taken)), "submit later"))
        if quota is not None and own >= quota:
            raise TooMany(Problem("submissions", f"at most {quota} of {caller.name}", str(own), "submit later"))

    def status(self, name: str) -> AuditStatus:
        """As of the client; an id that is not known is refused in the words for one that is not the caller's."""
        try:
            return self.client.status(name)
        except UnknownAudit:
            raise unknown_audit(name) from None

    def stop(self, name: str) -> AuditStatus:
        self.status(name)
        return self.client.request_stop(name)

    def finished(self, name: str) -> AuditStatus:
        """Of an audit with its bundle among those of its fleet, wherever the ending says: workers can write endings.

        Raises:
            StorageError: there is none of that name.
        """
        self.status(name)
        status = self.client.finished(name)
        home, audit = fleet_folder(self.settings.storage, fleet_in(name)), status.bundle.rstrip("/").rpartition("/")[2]
        bundle = files.join(home, audit)
        if audit in ("", ".", "..") or not files.exists(files.join(bundle, BUNDLE)):
            raise StorageError(Problem(name, f"a bundle in {home}", repr(status.bundle)[:200], "audit it again"))
        return replace(status, bundle=bundle)

    def result(self, name: str) -> AuditResult:
        return read_bundle(self.finished(name).bundle)

    def tail(self, name: str) -> str:
        self.status(name)
        return self.client.logs(name)[-self.settings.limits.log :]

    def follower(self, caller: Caller) -> Callable[[], None]:
        """Take a place for a log stream; what is returned gives it back."""
        if not self.followers.take(caller.name):
            most = self.settings.limits.followers
            expected = f"at most {most} log streams, and {share_of(self.settings)(most)} of one caller"
            raise TooMany(Problem("followers", expected, "more", "close one"))
        return partial(self.followers.give_back, caller.name)

    async def packed(self, caller: Caller, make: Callable[[], Response]) -> Response:
        """An answer of megabytes: made by few threads, in turn, and of one caller only so many that are not sent."""
        sent = await self.unsent.begin(caller.name)
        try:
            packed = await self.packing.begin(caller.name)
            try:
                answer = await to_thread.run_sync(make, limiter=self.packers)
            finally:
                packed()
        except BaseException:
            sent()
            raise
        return UntilSent(answer, sent)

    async def follow(self, name: str) -> AsyncIterator[str]:
        """As `AuditClient.follow`, without a thread that waits; an empty line now and then while nothing is printed."""
        sent, last = 0, time.monotonic()
        while True:
            over = (await to_thread.run_sync(self.client.status, name, limiter=self.askers)).state.over
            text = await to_thread.run_sync(self.client.logs, name, limiter=self.askers)
            if len(text) > sent:
                yield text[max(sent, len(text) - self.settings.limits.log) :]
                sent, last = len(text), time.monotonic()
            if over:
                return
            if time.monotonic() - last > self.settings.limits.silence:
                yield "\n"
                last = time.monotonic()
            await asyncio.sleep(0.5)


def audit_routes(service: Service) -> APIRouter:
    """All routes that need a token."""
    token = HTTPBearer(auto_error=False, description="A token of the server's settings; checked before the route.")
    router = APIRouter(prefix="/v1", dependencies=[Depends(token)], responses=refused(401, 413, 429))

    written = Once(lambda: json.dumps(json_schema()).encode())  # it takes a third of a second

    @router.get("/schema", summary="The JSON Schema of the fleet file", response_class=JSONResponse)
    async def schema() -> Response:
        return Response(await written.get(), media_type="application/json")

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
    async def submit(request: Request, response: Response, caller: Who, key: Key = None) -> AuditBody:
        content_type = request.headers.get("content-type", "")
        # Few at a time: many threads that compute keep the loop, and so the liveness probe, from its turn.
        body, readers = await request.body(), service.readers
        noted = {"address": request.client.host if request.client else "", "key": key or ""}
        try:
            read = await service.reading.begin(caller.name)
            try:
                fleet = await to_thread.run_sync(service.admit, body, content_type, caller, limiter=readers)
            finally:
                read()
            allow = service.settings.allow_of(caller).model_dump(mode="json")
            status = await to_thread.run_sync(
                service.start, fleet, key or "", allow, caller, limiter=service.submitters
            )
        except ClasswiseError as error:
            service.changes.record("submit refused", caller.name, **noted, why=type(error).__name__)
            raise
        service.changes.record("submit", caller.name, **noted, audit=status.id, state=status.state, job=status.attempt)
        _log.info("submitted %s by %s: %s", status.id, caller.name, status.state)
        response.status_code = 200 if status.state.over else 202
        response.headers["location"] = f"/v1/audits/{status.id}"
        return audit_body(status)


def _add_watching(router: APIRouter, service: Service) -> None:
    @router.get(
        "/audits",
        summary="Submitted audits, the latest first",
        response_model=AuditList,
        responses=refused(403, 422, 503),
    )
    async def audits(
        caller: Who,
        fleet: Annotated[str, Query(max_length=100)] = "",
        state: Annotated[State | None, Query()] = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    ) -> Response:
        caller.require(Right.READ)

        def look() -> Response:
            known = [status for status in service.client.list(fleet) if caller.sees(fleet_in(status.id))]
            statuses = [status for status in known if state in (None, status.state)]
            body = AuditList(audits=[audit_body(status) for status in statuses[:limit]])
            return Response(body.model_dump_json(), media_type="application/json")

        return await to_thread.run_sync(look, limiter=service.lookers)

    @router.get("/audits/{id}", summary="How an audit stands", responses=refused(403, 404, 422, 503))
    async def audit(name: AuditId, caller: Who) -> AuditBody:
        caller.require_audit(name, Right.READ)
        return audit_body(await to_thread.run_sync(service.status, name, limiter=service.lookers))

    @router.post(
        "/audits/{id}/cancel",
        summary="Stop an audit; its finished shards are kept",
        status_code=202,
        responses=refused(403, 404, 422, 503),
    )
    async def cancel(name: AuditId, caller: Who, request: Request) -> AuditBody:
        caller.require_audit(name, Right.CANCEL)
        status = await to_thread.run_sync(service.stop, name, limiter=service.askers)
        address = request.client.host if request.client else ""
        service.changes.record("cancel", caller.name, address=address, audit=name, state=status.state)
        _log.info("cancelled %s by %s: %s", name, caller.name, status.state)
        return audit_body(status)


def _add_results(router: APIRouter, service: Service) -> None:
    @router.get(
        "/audits/{id}/result",
        summary="The whole result of a finished audit",
        response_class=JSONResponse,
        responses={
            200: {"content": {"application/json": {"schema": {"type": "object"}}}},
            **refused(403, 404, 409, 410, 422, 503),
        },
    )
    async def result(name: AuditId, caller: Who) -> Response:
        caller.require_audit(name, Right.READ)
        return await service.packed(
            caller, lambda: Response(_RESULT.dump_json(service.result(name)), media_type="application/json")
        )

    @router.get(
        "/audits/{id}/report",
        summary="The report of a finished audit: one HTML page that works offline",
        response_class=Response,
        responses={200: {"content": {"text/html": {}}}, **refused(403, 404, 409, 410, 422, 503)},
    )
    async def report(name: AuditId, caller: Who) -> Response:
        caller.require_audit(name, Right.READ)
        return await service.packed(caller, lambda: downloads.report(service.finished(name)))

    @router.get(
        "/audits/{id}/bundle",
        summary="All files of a finished audit, as a zip archive",
        response_class=Response,
        responses={200: {"content": {"application/zip": {}}}, **refused(403, 404, 409, 410, 422, 503)},
    )
    async def bundle(name: AuditId, caller: Who) -> Response:
        caller.require_audit(name, Right.READ)
        return await service.packed(caller, lambda: downloads.bundle(service.finished(name)))

    @router.get(
        "/audits/{id}/logs",
        summary="What an audit printed, or prints",
        response_class=Response,  # without a media type, so that errors are described as JSON
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **refused(403, 404, 422, 503)},
    )
    async def logs(
        name: AuditId, caller: Who, follow: Annotated[bool, Query(description="Stream until the audit ends.")] = False
    ) -> Response:
        caller.require_audit(name, Right.READ)
        if not follow:
            return PlainTextResponse(await to_thread.run_sync(service.tail, name, limiter=service.askers))
        await to_thread.run_sync(service.status, name, limiter=service.askers)
        done = service.follower(caller)
        return UntilSent(StreamingResponse(service.follow(name), media_type="text/plain; charset=utf-8"), done)


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
