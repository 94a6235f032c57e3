"""Reaching a tracking store within a bounded time, and saying in classwise's words why it was not reached.

MLflow retries for minutes by default, and a fresh database is migrated by the first client. Nothing here imports
MLflow: the environment variables below are its only switch for time-outs, so they are set for the time of a call and
put back, and what the user set is left alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock

from services.errors import Interrupted, Problem, TrackingError
from tracking.bundle import marker
from tracking.names import file_name

PROBE_SECONDS = 5
CALL_SECONDS = 60
ACCEPTS = "an MLflow store that accepts the audit"
SYNC_LATER = "the audit is complete on disk; run `classwise sync` once the server answers"

_LOCK = RLock()
_MANAGED: set[str] = set()
"""Environment variables that this module has set for the time of a call; what the user set is never among them."""


@contextmanager
def bounded_calls(seconds: int, retries: int = 2) -> Iterator[None]:
    """MLflow's HTTP time-out and retries, for the block; what the user set in the environment stays.

    The environment belongs to the process, so threads take turns.
    """
    with _LOCK:
        yield from _bounded(seconds, retries)


def _bounded(seconds: int, retries: int) -> Iterator[None]:
    ours = {
        "MLFLOW_HTTP_REQUEST_TIMEOUT": str(seconds),
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": str(retries),
        "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
        "MLFLOW_ENABLE_ASYNC_LOGGING": "false",
        "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    }
    before = {key: os.environ.get(key) for key in ours if key not in os.environ or key in _MANAGED}
    os.environ.update({key: ours[key] for key in before})
    _MANAGED.update(before)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
                _MANAGED.discard(key)
            else:
                os.environ[key] = value


@contextmanager
def translated(tracking_uri: str, expected: str = ACCEPTS, remedy: str = SYNC_LATER) -> Iterator[None]:
    """Turn whatever MLflow and its transports raise into a `TrackingError` that says how to go on."""
    try:
        yield
    except (TrackingError, Interrupted):
        raise
    except Exception as error:
        if not is_foreign(error):
            raise
        where = marker.without_secret(tracking_uri)
        detail = " ".join(str(error).split())[:500] or type(error).__name__
        raise TrackingError(Problem(where, expected, detail, remedy)) from error


def is_foreign(error: Exception) -> bool:
    """Whether an error comes of the store or of the way to it."""
    names = {base.__module__.partition(".")[0] for base in type(error).__mro__}
    return isinstance(error, OSError | TimeoutError) or bool(names & {"mlflow", "sqlalchemy", "requests", "urllib3"})


def sqlite_path(tracking_uri: str) -> str:
    """The file of a ``sqlite:///`` URI."""
    return tracking_uri.partition(":///")[2].partition("?")[0]


def probe_database(tracking_uri: str) -> None:
    """Fail in seconds where MLflow itself would retry for minutes."""
    import sqlalchemy

    timeout = {"connect_timeout": PROBE_SECONDS} if not tracking_uri.startswith("mssql") else {}
    engine = sqlalchemy.create_engine(tracking_uri, connect_args=timeout)
    try:
        engine.connect().close()
    finally:
        engine.dispose()


def artifact_location(tracking_uri: str, name: str) -> str | None:
    """Beside a SQLite file, not in whatever folder the driver runs in; a server knows its own place (None)."""
    if not tracking_uri.startswith("sqlite"):
        return None
    home = Path(sqlite_path(tracking_uri)).resolve().parent
    return (home / "mlartifacts" / file_name(name)).as_uri()


def run_url(tracking_uri: str, experiment_id: str, run_id: str) -> str:
    """Page of the run in MLflow's UI, "" for a local database."""
    if not tracking_uri.startswith("http"):
        return ""
    return f"{tracking_uri.rstrip('/')}/#/experiments/{experiment_id}/runs/{run_id}?workflowType=machine_learning"
