"""The REST API: version 1, over the same client that the command line uses.

Errors have one shape, `ErrorBody`, wherever they are raised. Nothing of a request reaches a worker but through
`jobs.submission.allow`, and nothing outside the server's storage is shown.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError, version

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from jobs.api.answers import HealthBody
from jobs.api.backlog import Backlog
from jobs.api.bodies import UnsupportedType
from jobs.api.changes import ChangeLog
from jobs.api.hooks import CALLER as HOOK_CALLER
from jobs.api.hooks import PATH, Receiver, Replayed, Unsigned, hook_routes
from jobs.api.prometheus import PATH as METRICS
from jobs.api.prometheus import Measured, add_metrics
from jobs.api.routes import Service, audit_routes, share_of
from jobs.api.settings import Settings
from jobs.dashboard.page import PAGE_PATHS, page_routes
from jobs.dashboard.places import tracking_of
from jobs.dashboard.routes import dashboard_routes
from jobs.dashboard.stores import Places, Stores
from jobs.schedules.place import schedules_uri
from jobs.submission.client import AuditClient
from jobs.terminal.remembered import Remembered
from jobs.web.access_log import AccessLog
from jobs.web.guard import Guard, Rates
from jobs.web.problems import error_body, refused
from jobs.web.shares import Once, TooMany
from jobs.web.signed_in import Identity
from services.errors import (
    ClasswiseError,
    ConfigError,
    Crashed,
    NotAllowed,
    NotFinished,
    Problem,
    Pruned,
    ServiceError,
    StorageError,
    TrackingError,
    UnknownAudit,
)

READY_SECONDS = 5.0
"""How long an answer of the job server counts."""
DESCRIPTION = "/v1/openapi.json"
OPEN_PATHS = frozenset({"/health", "/ready", "/ready/results", DESCRIPTION}) | PAGE_PATHS
STATUS: tuple[tuple[type[ClasswiseError], int], ...] = (
    (UnsupportedType, 415),
    (Unsigned, 401),
    (Replayed, 409),
    (TooMany, 429),
    (NotAllowed, 403),
    (UnknownAudit, 404),
    (Pruned, 410),
    (NotFinished, 409),
    (Crashed, 409),
    (ConfigError, 422),
    (ServiceError, 503),
    (StorageError, 503),
    (TrackingError, 503),
)
"""HTTP status by error; the first that fits."""

_log = logging.getLogger("classwise.api")


def create_app(settings: Settings, digests: Mapping[str, bytes], client: AuditClient, hook_secret: str = "") -> FastAPI:
    """The application.

    Args:
        settings: the server's settings.
        digests: callers' names and the SHA-256 of their tokens (`jobs.api.settings.digests`).
        client: submits and watches, within the settings' storage.
        hook_secret: of MLflow's webhook, when the settings have one.
    """
    dispatcher = client.dispatcher()
    service = Service(settings, client, dispatcher, ChangeLog(settings.audit_log or ""))
    hook = settings.hooks.mlflow

    @asynccontextmanager
    async def dispatching(app: FastAPI) -> AsyncIterator[None]:
        dispatcher.start()
        yield
        await to_thread.run_sync(dispatcher.stop)

    app = FastAPI(
        lifespan=dispatching,
        title="classwise",
        version="1",
        description="Audits of image classifier fleets: submit, watch, read, compare. Errors have one shape.",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )
    _add_description(app)
    app.state.service = service
    add_errors(app)
    _add(app, audit_routes(service))
    if hook is not None:
        _add(app, hook_routes(Receiver(hook, hook_secret, service)))
    places = places_in(settings)
    _add(app, dashboard_routes(Stores(places, client), share_of(settings)))
    _add(app, page_routes())
    _add_health(app, client)
    metrics = add_metrics(app, client, places.schedules, Backlog(settings.storage, tracked=settings.tracking.enabled))
    app.add_middleware(
        Guard,
        digests=digests,
        rates=Rates(settings.limits.per_minute),
        body=settings.limits.body,
        open_paths=OPEN_PATHS,
        signed_paths=frozenset({PATH} if hook is not None else ()),
        callers=settings.callers(),
    )
    app.add_middleware(Measured, metrics=metrics)
    app.add_middleware(AccessLog, quiet=OPEN_PATHS | {METRICS})
    if settings.trusted_proxies:
        app.add_middleware(ProxyHeadersMiddleware, trusted_hosts=[str(proxy) for proxy in settings.trusted_proxies])
    if settings.identity is not None:  # outermost, where the connection's own address is seen
        app.add_middleware(
            Identity,
            header=settings.identity.header,
            proxies=settings.trusted_proxies,
            callers=[each.caller(each.name) for each in settings.identity.callers],
            taken=[*settings.callers(), HOOK_CALLER],
        )
    return app


def _add(app: FastAPI, router: APIRouter) -> None:
    """The router's routes as they are: `include_router` builds each again, for a prefix that none is given."""
    app.router.routes.extend(router.routes)


def _add_description(app: FastAPI) -> None:
    """The OpenAPI document, which needs no token: put together and written once, not for each who asks."""
    written = Once(lambda: json.dumps(app.openapi()).encode())

    @app.get(DESCRIPTION, include_in_schema=False)
    async def description() -> Response:
        return Response(await written.get(), media_type="application/json")


def _add_health(app: FastAPI, client: AuditClient) -> None:
    try:
        installed = version("classwise")
    except PackageNotFoundError:
        installed = ""

    @app.get("/health", summary="Whether the server is alive")
    async def health() -> HealthBody:  # without a thread of the pool, which requests that wait may hold
        return HealthBody(status="alive", version=installed)

    # Callers need no token here, so the cluster and the storage are asked seldom.
    readiness = Remembered(client.check, READY_SECONDS)

    storage, own = Remembered(client.check_storage, READY_SECONDS), CapacityLimiter(2)
    waiting = CapacityLimiter(2)

    @app.get("/ready/results", summary="Whether results can be read, whatever the cluster does", responses=refused(503))
    async def readable() -> HealthBody:
        await to_thread.run_sync(storage.get, limiter=own)
        return HealthBody(status="ready", version=installed)

    @app.get("/ready", summary="Whether audits can be started", responses=refused(503))
    async def ready() -> HealthBody:
        await to_thread.run_sync(readiness.get, limiter=waiting)
        return HealthBody(status="ready", version=installed)


def add_errors(app: FastAPI) -> None:
    """Every error in the one shape, `ErrorBody`; without a thread of the pool, which requests that wait may hold."""

    @app.exception_handler(ClasswiseError)
    async def refusal(request: Request, error: ClasswiseError) -> JSONResponse:
        status = _status(error)
        headers = {"retry-after": "10"} if status in (429, 503) else None
        return JSONResponse(error_body(error).model_dump(), status, headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        problems = [
            Problem(".".join(map(str, each["loc"])), str(each["msg"]), repr(each.get("input"))[:120])
            for each in error.errors()
        ]
        return JSONResponse(error_body(ConfigError(problems)).model_dump(), 422)

    @app.exception_handler(HTTPException)
    async def unknown_path(request: Request, error: HTTPException) -> JSONResponse:
        problem = Problem(f"{request.method} {request.url.path}"[:200], "a path of /v1/openapi.json", error.detail)
        body = error_body(UnknownAudit(problem)).model_copy(update={"error": "HTTPError"})
        return JSONResponse(body.model_dump(), error.status_code, error.headers)

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> JSONResponse:
        _log.error("unforeseen", exc_info=error)
        problem = Problem("classwise", "no unexpected error", type(error).__name__, "report this defect of classwise")
        return JSONResponse(error_body(ClasswiseError(problem)).model_dump(), 500)


def _status(error: ClasswiseError) -> int:
    return next((status for kind, status in STATUS if isinstance(error, kind)), 500)


def places_in(settings: Settings) -> Places:
    """Where the dashboard of an API with these settings reads from."""
    tracked = settings.tracking.enabled
    tracking = tracking_of(settings.storage, settings.tracking.uri) if tracked else ""
    return Places(settings.storage, tracking, schedules_uri(settings.schedules))
