"""Starts the API: as a deployment of Ray Serve on the cluster, or in this process.

A replica gets the settings and the digests of the tokens, never the tokens of callers. The cluster's own token it
finds as every Ray process does: RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH; the secret of MLflow's webhook in the variable
that the settings name.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs.api.settings import Settings, digests, load_settings, plain
from jobs.submission.signing import KEY, KEY_PATH, signing_key
from services.errors import ConfigError, Problem, ServiceError
from services.storage import files
from services.telemetry import logs

if TYPE_CHECKING:
    from fastapi import FastAPI
    from ray.serve import Application

NAME = "classwise"
HEADERS = 1 << 16
"""Bytes of a request's line and headers."""


def build(data: Mapping[str, Any], tokens: Mapping[str, bytes]) -> FastAPI:
    """The application from settings as plain data; what a replica calls."""
    from jobs.api.app import create_app
    from jobs.api.hooks import secret_of
    from jobs.submission.client import AuditClient, backend_for
    from jobs.submission.ray_jobs import token_of
    from jobs.submission.watched import WatchedJobs

    settings = Settings.model_validate(data)
    files.keep_within(settings.storage)  # what lies there is handed out to callers
    backend = backend_for(
        settings.address,
        storage=settings.storage,
        token=token_of(os.environ),
        verify=settings.ca or True,
        python=settings.python,
    )
    hook = settings.hooks.mlflow
    secret = secret_of(hook, os.environ) if hook is not None else ""
    if settings.address != "local":
        backend = WatchedJobs(backend)
    client = AuditClient(backend, storage=settings.storage, environment=_signing(settings.address), offline=True)
    return create_app(settings, tokens, client, secret)


def _signing(address: str) -> dict[str, str]:
    """The variables by which audits check what this server signs: a new key for processes of this machine.

    Raises:
        ConfigError: audits run elsewhere, and there is no key that both could know.
    """
    if signing_key(os.environ):
        return {}
    if address == "local":
        return {KEY: secrets.token_urlsafe(32)}
    remedy = "make one (deploy/README.md), and give it to the API, the scheduler and the cluster's head"
    raise ConfigError(Problem(KEY_PATH, "a file with the key that signs submissions", "none", remedy))


def serve_here(settings: Settings, host: str, port: int) -> None:
    """Serve from this process until a request to stop."""
    import uvicorn

    app = build(plain(settings), digests(settings, os.environ))
    own: dict[str, Any] = {"log_config": None, "access_log": False}  # lines of our own have callers, and no query
    own |= {"proxy_headers": False, "server_header": False}  # `trusted_proxies` says whose headers are believed
    own |= {"http": "h11", "h11_max_incomplete_event_size": HEADERS}  # uvicorn's other parser has no limit
    uvicorn.run(app, host=host, port=port, log_level="info", timeout_graceful_shutdown=5, **own)


def serve_on_ray(settings: Settings, host: str, port: int, replicas: int) -> None:
    """Deploy on the cluster at RAY_ADDRESS, and return once it answers; it stays when this process ends.

    Raises:
        ServiceError: there is no cluster, or the deployment does not come up.
    """
    try:
        from ray import serve

        serve.start(http_options={"host": host, "port": port})
        serve.run(_bound(settings, replicas), name=NAME, route_prefix="/")
    except Exception as error:  # ImportError without the extra; Ray raises RuntimeError, ConnectionError and its own
        remedy = "start Ray, set RAY_ADDRESS, install classwise[service]; or serve here with --here"
        raise ServiceError(Problem("Ray Serve", "a deployment that runs", str(error)[:300], remedy)) from error


def application(arguments: Mapping[str, str]) -> Application:
    """The application for a Serve config file, as a RayService has one: ``import_path: jobs.api.serve:application``.

    Args:
        arguments: `settings`, the path of the settings file on the head node.

    Raises:
        ConfigError: there is no such argument, or the settings are wrong.
    """
    if set(arguments) != {"settings"}:
        raise ConfigError(Problem("args", "settings, the path of the settings file", f"{sorted(arguments)}"))
    return _bound(load_settings(Path(arguments["settings"])), replicas=1)


def _bound(settings: Settings, replicas: int) -> Application:
    from ray import serve

    data, tokens, log = plain(settings), digests(settings, os.environ), logs.inherited() or logs.LogSetting()

    def builder() -> FastAPI:  # Ray takes a function for a builder, and any other callable for the application
        logs.configure(log)
        return build(data, tokens)

    own: dict[str, Any] = {"enable_access_log": False}  # lines of our own have callers, and no query
    ingress = serve.ingress(builder)()
    api = serve.deployment(ingress, name="api", num_replicas=replicas, max_ongoing_requests=64, logging_config=own)
    return api.bind()
