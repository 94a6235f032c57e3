"""Logs networks to MLflow as graphs, and registers them when that is asked for.

The graph takes float32 images in [0, 1] of any batch size, normalisation inside, and holds no pickled object; an audit
of ``mlflow:models:/m-...`` needs no input contract and gives the logits of the `factory:` source.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tracking.mlflow.connection import connect, quoted
from tracking.mlflow.reach import CALL_SECONDS, bounded_calls, translated

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import LoggedModel
    from torch import nn

NAME = "model"
EXAMPLE = 2
"""Images of the input example: a graph traced with one image would take one for ever."""


@dataclass(frozen=True)
class Graph:
    """A network that is to be logged.

    Attributes:
        uri: its source.
        shape: (C, H, W) of its images.
        classes: K.
        build: makes it, images in [0, 1] to logits.
        step: epoch of its weights.
    """

    uri: str
    shape: tuple[int, ...]
    classes: int
    build: Callable[[], nn.Module]
    step: int = 0


def log_network(client: MlflowClient, experiment: str, run_id: str, graph: Graph) -> LoggedModel:
    """Log the network of a run, unless it is there."""
    from mlflow.entities import LoggedModelOutput, LoggedModelStatus
    from mlflow.models import Model

    models = client.search_logged_models([experiment], filter_string=f"source_run_id = '{run_id}'")
    for known in models:
        if known.name == NAME and known.status == LoggedModelStatus.READY:
            return known
    model = client.create_logged_model(experiment, NAME, source_run_id=run_id, tags={"classwise.uri": graph.uri})
    try:
        client.log_outputs(run_id, [LoggedModelOutput(model.model_id, step=graph.step)])
        place = model.artifact_location
        described = Model(artifact_path=place, model_uuid=model.model_id, run_id=run_id, model_id=model.model_id)
        with TemporaryDirectory() as folder:
            _save(graph, Path(folder) / NAME, described)
            client.log_model_artifacts(model.model_id, str(Path(folder) / NAME))
    except BaseException:
        client.finalize_logged_model(model.model_id, LoggedModelStatus.FAILED)
        raise
    return client.finalize_logged_model(model.model_id, LoggedModelStatus.READY)


def register_network(client: MlflowClient, run_id: str, model: LoggedModel, name: str, tags: Mapping[str, str]) -> str:
    """Register a logged model as a version of `name`, unless it is one; returns the version.

    Its source is where its files lie: a `models:/` source would be looked up in the process's default store.
    """
    known = client.search_model_versions(f"name = '{quoted(name)}' and run_id = '{run_id}'")
    if known:
        return str(known[0].version)
    if not client.search_registered_models(f"name = '{quoted(name)}'"):
        client.create_registered_model(name)
    own = {f"classwise.{key}": value for key, value in tags.items()}
    place = model.artifact_location
    made = client.create_model_version(name, place, run_id=run_id, model_id=model.model_id, tags=own)
    return str(made.version)


def register_audited(tracking_uri: str, run_id: str, graph: Graph, name: str, tags: Mapping[str, str]) -> str:
    """Log the network of an audited model's run, and register it; returns the version. No alias is moved.

    Raises:
        TrackingError: the server is unreachable or refuses.
    """
    with translated(tracking_uri, "an MLflow registry that takes the network"), bounded_calls(CALL_SECONDS):
        client = connect(tracking_uri)
        experiment = str(client.get_run(run_id).info.experiment_id)
        model = log_network(client, experiment, run_id, graph)
        return register_network(client, run_id, model, name, {**tags, "run_id": run_id})


def _save(graph: Graph, path: Path, described: object) -> None:
    import mlflow.pytorch
    import numpy as np
    from mlflow.models import ModelSignature
    from mlflow.types import Schema, TensorSpec

    taken = TensorSpec(np.dtype(np.float32), (-1, *graph.shape), name=None)
    logits = TensorSpec(np.dtype(np.float32), (-1, graph.classes), name=None)
    with _quiet():
        mlflow.pytorch.save_model(
            graph.build(),
            path=str(path),
            mlflow_model=described,
            signature=ModelSignature(inputs=Schema([taken]), outputs=Schema([logits])),
            input_example=np.full((EXAMPLE, *graph.shape), 0.5, dtype=np.float32),
            pip_requirements=requirements(),
            metadata={"input": "float32 images in [0, 1]; the network normalises", "factory": graph.uri},
            serialization_format="pt2",
        )


def requirements() -> list[str]:
    """What serving the graph needs: the minor version of torch that wrote it, and the major ones of the rest."""
    from importlib.metadata import version

    pins = []
    for name, parts in {"torch": 2, "numpy": 1, "mlflow": 1}.items():
        numbers = [int(number) for number in version(name).partition("+")[0].split(".")[:2]]
        upper = f"{numbers[0]}.{numbers[1] + 1}" if parts == 2 else f"{numbers[0] + 1}"
        pins.append(f"{name}>={numbers[0]}.{numbers[1]},<{upper}")
    return pins


@contextmanager
def _quiet() -> Iterator[None]:
    """Exporting a graph warns of what concerns its authors, not ours."""
    loggers = [logging.getLogger(name) for name in ("mlflow", "torch.export", "torch._export", "torch._dynamo")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
