"""Where MLflow is."""

from __future__ import annotations

import os
from pathlib import Path

from services import storage
from services.errors import Problem, TrackingError


def tracking_uri(storage_url: str, configured: str | None) -> str:
    """The MLflow tracking URI: the fleet file's, else the environment's, else SQLite in the storage."""
    if configured or os.environ.get("MLFLOW_TRACKING_URI"):
        return configured or os.environ["MLFLOW_TRACKING_URI"]
    _, path = storage.filesystem(storage_url)
    if not storage.is_local(storage_url):
        remedy = "set tracking.uri or MLFLOW_TRACKING_URI"
        raise TrackingError(Problem("tracking.uri", "an MLflow server for remote storage", "nothing", remedy))
    return f"sqlite:///{Path(path) / 'mlflow.db'}"
