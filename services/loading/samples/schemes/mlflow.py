"""`mlflow:runs:/RUN/PATH`: an npz or Parquet artifact of MLflow; options as for `npz:` and `parquet:`."""

from __future__ import annotations

from dataclasses import replace

from services.loading.fingerprint import file_kind
from services.loading.mlflow_artifacts import fetch
from services.loading.samples.schemes.npz import open_npz
from services.loading.samples.schemes.parquet import open_parquet
from services.loading.samples.source import Source
from services.loading.uris import SourceUri


def open_mlflow(uri: SourceUri, *, allowed_factories: tuple[str, ...]) -> Source:
    """Download the artifact and open it by what it is."""
    path = fetch(uri.rest, uri.text)
    local = replace(uri, rest=str(path))
    is_table = path.is_dir() or file_kind(path, uri.text) == "parquet"
    opener = open_parquet if is_table else open_npz
    return opener(local, allowed_factories=allowed_factories)
