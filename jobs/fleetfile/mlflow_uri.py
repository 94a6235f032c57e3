"""Where MLflow is: one store for what an audit reads of it and what it writes."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from services.errors import Problem, SourceError, TrackingError
from services.storage import files
from tracking.mlflow.reach import sqlite_path

if TYPE_CHECKING:
    from jobs.fleetfile.tree import FleetConfig

VARIABLE = "MLFLOW_TRACKING_URI"


def tracking_uri(storage_url: str, configured: str | None) -> str:
    """The MLflow tracking URI: the fleet file's, else the environment's, else SQLite in the storage."""
    if configured or os.environ.get(VARIABLE):
        return configured or os.environ[VARIABLE]
    _, path = files.filesystem(storage_url)
    if not files.is_local(storage_url):
        remedy = f"set tracking.uri or {VARIABLE}"
        raise TrackingError(Problem("tracking.uri", "an MLflow server for remote storage", "nothing", remedy))
    return f"sqlite:///{Path(path) / 'mlflow.db'}"


def reads_mlflow(config: FleetConfig) -> bool:
    """Whether the fleet names an `mlflow:` source: of a model, of samples, or in a measure."""
    samples = [part.uri for part in (config.samples, config.generated) if part is not None]
    options = [value for measure in config.measures if isinstance(measure, dict) for value in measure.values()]
    return any(str(text).startswith("mlflow:") for text in (*samples, *options, *(m.uri for m in config.models)))


@contextmanager
def mlflow_sources(config: FleetConfig) -> Iterator[None]:
    """For the block, `mlflow:` sources are found in the store that `tracking_uri` names, here and by new workers.

    The environment is where they look, before what `mlflow.set_tracking_uri` set; it is left alone when the fleet has
    no such source, and put back afterwards. A process has only one: concurrent audits must name the same store.

    Raises:
        SourceError: that store was never made, so that it holds nothing.
        TrackingError: the storage is remote, and no server is named.
    """
    with mlflow_store(config.storage, config.tracking.uri, needed=reads_mlflow(config)):
        yield


@contextmanager
def mlflow_store(storage_url: str, configured: str | None, *, needed: bool) -> Iterator[None]:
    """The same for a file of another kind, where it names such a source."""
    if not needed:
        yield
        return
    uri = tracking_uri(storage_url, configured)
    if uri.startswith("sqlite") and not Path(sqlite_path(uri)).exists():  # MLflow would make one
        remedy = f"set tracking.uri or {VARIABLE} to the store that has the models"
        raise SourceError(Problem("tracking.uri", "the MLflow store of the mlflow: sources", f"none at {uri}", remedy))
    mine = _begin(uri)
    try:
        yield
    finally:
        _end(mine)


@dataclass(eq=False)
class _Block:
    """A block under way, and the variable's value before it."""

    before: str | None


_blocks: list[_Block] = []
_lock = threading.Lock()


def _begin(uri: str) -> _Block:
    with _lock:
        block = _Block(os.environ.get(VARIABLE))
        os.environ[VARIABLE] = uri
        _blocks.append(block)
    return block


def _end(block: _Block) -> None:
    """Put the variable back; where a later block is still under way, leave that to it."""
    with _lock:
        place = _blocks.index(block)
        del _blocks[place]
        if place < len(_blocks):
            _blocks[place].before = block.before
        elif block.before is None:
            os.environ.pop(VARIABLE, None)
        else:
            os.environ[VARIABLE] = block.before
