"""Logs trained networks to MLflow as graphs, and registers them when that is asked for.

The graph takes float32 images in [0, 1] of any batch size, normalisation inside, and holds no pickled object; an audit
of ``mlflow:models:/m-...`` needs no input contract and gives the logits of the `factory:` source.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from services.records.trials import TrialResult
from tracking.mlflow.connection import quoted
from tracking.mlflow.runs import RunWriter

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import LoggedModel
    from torch import nn

NAME = "model"
EXAMPLE = 2
"""Images of the input example: a graph traced with one image would take one for ever."""


def log_network(
    runs: RunWriter, run_id: str, result: TrialResult, network: Callable[[TrialResult], nn.Module]
) -> LoggedModel:
    """Log the network of a trial, unless it is there."""
    from mlflow.entities import LoggedModelOutput, LoggedModelStatus
    from mlflow.models import Model

    client = runs.client
    models = client.search_logged_models([runs.experiment], filter_string=f"source_run_id = '{run_id}'")
    for known in models:
        if known.name == NAME and known.status == LoggedModelStatus.READY:
            return known
    model = client.create_logged_model(runs.experiment, NAME, source_run_id=run_id, tags={"classwise.uri": result.uri})
    try:
        client.log_outputs(run_id, [LoggedModelOutput(model.model_id, step=result.selected or 0)])
        place = model.artifact_location
        described = Model(artifact_path=place, model_uuid=model.model_id, run_id=run_id, model_id=model.model_id)
        with TemporaryDirectory() as folder:
            _save(network(result), Path(folder) / NAME, described, result)
            client.log_model_artifacts(model.model_id, str(Path(folder) / NAME))
    except BaseException:
        client.finalize_logged_model(model.model_id, LoggedModelStatus.FAILED)
        raise
    return client.finalize_logged_model(model.model_id, LoggedModelStatus.READY)


def register_network(client: MlflowClient, run_id: str, model: LoggedModel, name: str, result: TrialResult) -> str:
    """Register a logged model as a version of `name`, unless it is one; returns the version.

    Its source is where its files lie: a `models:/` source would be looked up in the process's default store.
    """
    known = client.search_model_versions(f"name = '{quoted(name)}' and run_id = '{run_id}'")
    if known:
        return str(known[0].version)
    if not client.search_registered_models(f"name = '{quoted(name)}'"):
        client.create_registered_model(name)
    tags = {f"classwise.{key}": value for key, value in result.tags.items()}
    place = model.artifact_location
    made = client.create_model_version(name, place, run_id=run_id, model_id=model.model_id, tags=tags)
    return str(made.version)


def _save(network: nn.Module, path: Path, described: object, result: TrialResult) -> None:
    import mlflow.pytorch
    import numpy as np
    from mlflow.models import ModelSignature
    from mlflow.types import Schema, TensorSpec

    shape = result.data.shape
    taken = TensorSpec(np.dtype(np.float32), (-1, *shape), name=None)
    logits = TensorSpec(np.dtype(np.float32), (-1, len(result.data.classes)), name=None)
    with _quiet():
        mlflow.pytorch.save_model(
            network,
            path=str(path),
            mlflow_model=described,
            signature=ModelSignature(inputs=Schema([taken]), outputs=Schema([logits])),
            input_example=np.full((EXAMPLE, *shape), 0.5, dtype=np.float32),
            pip_requirements=requirements(),
            metadata={"input": "float32 images in [0, 1]; the network normalises", "factory": result.uri},
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
