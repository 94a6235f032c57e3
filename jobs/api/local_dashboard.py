"""The dashboard alone, for one user of this machine: bound to 127.0.0.1, with a token that lives as long as it does."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable
from hashlib import sha256
from typing import TYPE_CHECKING

from services.errors import ConfigError, Problem
from services.storage import files

if TYPE_CHECKING:
    from fastapi import FastAPI

    from jobs.dashboard.stores import Places

HOST = "127.0.0.1"
PER_MINUTE = 6000
"""Requests that one user of their own machine cannot make by hand."""


def local_app(places: Places, token: str) -> FastAPI:
    """The page and its data, guarded by one token, over processes of this machine."""
    from fastapi import FastAPI

    from jobs.api.app import add_errors
    from jobs.dashboard.page import PAGE_PATHS, page_routes
    from jobs.dashboard.routes import dashboard_routes
    from jobs.dashboard.stores import Stores
    from jobs.submission.client import AuditClient
    from jobs.submission.local_jobs import LocalJobs
    from jobs.web.guard import Guard, Rates

    jobs = LocalJobs(places.storage if files.is_local(places.storage) else "classwise-runs")
    stores = Stores(places, AuditClient(jobs, storage=places.storage))
    app = FastAPI(title="classwise dashboard", version="1", docs_url=None, redoc_url=None, openapi_url=None)
    add_errors(app)
    app.include_router(dashboard_routes(stores))
    app.include_router(page_routes())
    digests = {"user": sha256(token.encode()).digest()}
    app.add_middleware(Guard, digests=digests, rates=Rates(PER_MINUTE), body=1024, open_paths=PAGE_PATHS)
    return app


def serve_local(places: Places, port: int, say: Callable[[str], None]) -> None:
    """Serve until Ctrl-C; says what it reads and its address, once it listens.

    Raises:
        ConfigError: the port is taken.
    """
    import uvicorn

    token = secrets.token_urlsafe(32)
    app = local_app(places, token)
    with _listening(port) as listener:
        for line in described(places):
            say(line)
        say(f"dashboard  http://{HOST}:{listener.getsockname()[1]}/#token={token}")
        say("It reads, and writes nothing. Ctrl-C ends it.")
        config = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False, proxy_headers=False)
        config.timeout_graceful_shutdown = 2
        uvicorn.Server(config).run(sockets=[listener])


def described(places: Places) -> list[str]:
    """What is read, a line each."""
    from jobs.dashboard.bundles import Bundles
    from jobs.dashboard.stores import is_made
    from tracking.bundle.marker import without_secret

    bundles = Bundles(places.storage)
    fleets = bundles.fleets()
    audits = sum(len(bundles.known(fleet).audits) for fleet in fleets)
    counted = f"{audits} audit{'' if audits == 1 else 's'} of {len(fleets)} fleet{'' if len(fleets) == 1 else 's'}"
    lines = [f"storage    {places.storage}: {counted}"]
    for name, uri in {"MLflow": places.tracking, "schedules": places.schedules}.items():
        lines.append(f"{name:<10} {without_secret(uri) if is_made(uri) else 'none yet'}")
    return lines


def _listening(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
        listener.listen(128)  # a client that connects early waits for the server, and is not refused
    except OSError as error:
        listener.close()
        raise ConfigError(
            Problem("--port", "a free port", f"{port}: {error.strerror}", "name another; 0 takes any")
        ) from None
    return listener
