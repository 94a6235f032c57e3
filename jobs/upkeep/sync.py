"""Uploads a bundle or a sweep to MLflow, when the server could not be reached before."""

from __future__ import annotations

from typing import Any

from jobs.fleetfile.mlflow_uri import tracking_uri
from services.storage import files
from tracking.bundle.bundle import read_bundle
from tracking.bundle.marker import without_secret
from tracking.bundle.training_bundle import is_sweep, read_sweep


def sync_bundle(folder: str, uri: str | None) -> str:
    """Upload a bundle, or a sweep, and say what was done.

    Raises:
        TrackingError: the server is unreachable or refuses.
        StorageError: it cannot be read, or a link in it leads elsewhere.
    """
    files.keep_within(folder)
    read, upload = (read_sweep, _sync_sweep) if is_sweep(folder) else (read_bundle, _sync_audit)
    config = read(folder).config
    target = tracking_uri(config.get("storage", "."), uri or config.get("tracking", {}).get("uri"))
    done = upload(folder, target, config)
    shown = without_secret(target)
    return f"uploaded {folder} to {shown}" if done else f"{folder} is already at {shown}"


def _sync_audit(folder: str, target: str, config: dict[str, Any]) -> bool:
    from tracking.mlflow.audits import sync

    tracking = config.get("tracking", {})
    tag = bool(tracking.get("tag_registry", True))
    return bool(sync(folder, target, experiment=tracking.get("experiment") or "", registry_models=tag))


def _sync_sweep(folder: str, target: str, config: dict[str, Any]) -> bool:
    from jobs.training.mlflow_trials import training_log
    from tracking.mlflow.training import sync_training

    return sync_training(folder, training_log(config, target), target)
