"""Opens a tracking store, for readers and for the writer, and pages through its runs."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tracking.mlflow.reach import PROBE_SECONDS, bounded_calls, probe_database, sqlite_path

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

PAGE = 500


def connect(tracking_uri: str) -> MlflowClient:
    """A client of a store that answers and whose schema is there; a fresh database is migrated once, under a lock."""
    from mlflow import MlflowClient

    # MLflow logs its migrations at INFO; they are not news to a user of classwise.
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    scheme = urlsplit(tracking_uri).scheme.partition("+")[0]
    if scheme == "sqlite":
        return _open_sqlite(tracking_uri)
    if scheme in {"postgresql", "mysql", "mssql"}:
        probe_database(tracking_uri)
    with bounded_calls(PROBE_SECONDS, retries=1):
        client = MlflowClient(tracking_uri)
        client.search_experiments(max_results=1)
    return client


def _open_sqlite(tracking_uri: str) -> MlflowClient:
    from filelock import FileLock
    from mlflow import MlflowClient

    path = Path(sqlite_path(tracking_uri))
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():  # MLflow would try for two minutes
        raise IsADirectoryError(f"{path} is a folder, not a database")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise PermissionError(f"{path} cannot be written")
    with FileLock(f"{path}.lock", timeout=180):
        if not path.exists():
            _migrate(path)
        client = MlflowClient(tracking_uri)
        client.search_experiments(max_results=1)
    return client


def _migrate(path: Path) -> None:
    """Make the schema beside the file and move it there: a store killed half way through its migrations never opens."""
    from mlflow import MlflowClient

    fresh = path.with_name(f".{path.name}.new")
    for left in (fresh, fresh.with_name(f"{fresh.name}-journal")):
        left.unlink(missing_ok=True)
    MlflowClient(f"sqlite:///{fresh}").search_experiments(max_results=1)
    fresh.replace(path)


def search(client: MlflowClient, experiment_ids: Sequence[str], query: str, *, page: int = PAGE) -> Iterator[Run]:
    """All runs, page by page: a search stops at 1,000 in silence. No more than a page is held."""
    token: str | None = None
    while True:
        batch = client.search_runs(list(experiment_ids), filter_string=query, max_results=page, page_token=token)
        yield from batch
        token = batch.token
        if not token:
            return


def quoted(text: str) -> str:
    """The text for a filter between single quotes, which cannot be escaped in one."""
    return text.replace("'", "")
