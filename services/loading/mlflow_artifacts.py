"""Artifacts of MLflow, by the addresses that models and samples give."""

from __future__ import annotations

import os
import re
from pathlib import Path

from services.errors import Problem, SourceError, one_line
from services.loading.confined import trust


def fetch(address: str, where: str, folder: Path | None = None) -> Path:
    """Download an artifact of MLflow (a `models:/`, `runs:/` or `mlflow-artifacts:/` address); returns its local path.

    Into `folder`, or where MLflow puts it: artifacts in a local folder then stay where they are.

    Raises:
        SourceError: it is not there, is none of the run or model that it names, or the server cannot be reached.
    """
    if address.startswith(("models:/", "runs:/")) and re.search(r"%|\\|/\.\.(/|$)", address):
        expected = "a path below a run or model without '..' or '%', which MLflow decodes to leave its folder"
        raise SourceError(Problem(where, expected, repr(address)[:200]))
    try:
        from mlflow import artifacts

        target = None if folder is None else str(folder)
        path = Path(
            artifacts.download_artifacts(artifact_uri=_located(address), tracking_uri=_store(), dst_path=target)
        )
    except Exception as error:
        raise SourceError(Problem(where, f"an MLflow artifact {address}", _message(error))) from error
    trust(path)
    return path


def _store() -> str | None:
    """The store that the environment names, as an audit sets it; None leaves the choice to MLflow.

    MLflow alone would prefer what the process gave to `mlflow.set_tracking_uri`, perhaps for something else.
    """
    return os.environ.get("MLFLOW_TRACKING_URI") or None


def _located(address: str) -> str:
    """A `models:/` address as the place of its files, where MLflow would look it up in another store than `_store`.

    `download_artifacts` looks models up in the process's own store whatever store is named (MLflow 3.17).
    """
    from mlflow import MlflowClient, get_tracking_uri

    named = re.fullmatch(r"models:/(?:(m-[0-9a-f]{32})|([^/@]+)(?:@([^/@]+)|/(\d+)))(/.*)?", address)
    if named is None or _store() in (None, get_tracking_uri()):
        return address
    client, (logged, name, alias, number, below) = MlflowClient(_store()), named.groups()
    if logged:
        place = client.get_logged_model(logged).artifact_location
    else:
        version = number or client.get_model_version_by_alias(name, alias).version
        place = client.get_model_version_download_uri(name, version)
    return f"{place}{below or ''}"


def _message(error: Exception) -> str:
    return f"{type(error).__name__}: {one_line(error)}"
