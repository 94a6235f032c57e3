"""``mlflow.models.evaluate(..., evaluators="classwise")``: MLflow's own evaluation, judged class by class.

The model and the data that MLflow hands over become a fleet of one model, audited in this process by the same code as
any other, so the numbers are those of an audit. Models with a PyTorch or ONNX flavour are opened as networks. Of any
other model, and of a column of predictions, only the scores are known: measures of logits work, attacks are refused.

MLflow imports this module whenever it evaluates anything, so nothing heavy is imported before it is needed.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from mlflow.models.evaluation.artifacts import (
    JsonEvaluationArtifact,
    ParquetEvaluationArtifact,
    TextEvaluationArtifact,
)
from mlflow.models.evaluation.base import EvaluationResult, ModelEvaluator
from numpy.typing import NDArray

from services.errors import ConfigError, Problem
from services.registry import did_you_mean

if TYPE_CHECKING:
    from jobs.audit.audit import Finished

NETWORKS = ("pytorch", "onnx")
"""Flavours that classwise runs itself, with gradients where they have them."""
OF_FLEET = ("measures", "gates", "temperature", "intervals", "fp_lambda", "seed", "resources", "factories")
OF_MODEL = ("name", "input", "outputs", "output", "classes", "allow_unpickling", "stochastic", "threat_model", "tags")
OWN = ("shape", "scale", "groups")
MODEL_TYPES = ("classifier", None)
ARTIFACTS: dict[str, Any] = {
    "per_class": (ParquetEvaluationArtifact, "per_class.parquet"),
    "verdict": (JsonEvaluationArtifact, "verdict.json"),
    "report": (TextEvaluationArtifact, "report.html"),
}

_log = logging.getLogger("classwise.evaluator")


class ClasswiseEvaluator(ModelEvaluator):
    """An audit of one model, logged into the run of `mlflow.models.evaluate`."""

    @classmethod
    def can_evaluate(cls, *, model_type: str | None, evaluator_config: dict[str, Any], **kwargs: Any) -> bool:
        """Classifiers."""
        return model_type in MODEL_TYPES

    def evaluate(
        self,
        *,
        model_type: str | None,
        dataset: Any,
        run_id: str,
        evaluator_config: dict[str, Any],
        model: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Audit and log.

        Args:
            evaluator_config: `measures`, `gates`, `temperature`, `intervals`, `fp_lambda`, `seed`, `resources` and
                `factories` as in a fleet file; `input`, `outputs`, `output`, `classes`, `allow_unpickling` ... as of a
                model in one; and `shape` (C, H, W) of an image, `scale` (255 for floating pixels up to 255; default 1),
                and `groups`: a mapping of names to N values, or columns of the data frame.

        Raises:
            ClasswiseError: what an audit would refuse, or data that are no labelled images or scores.
        """
        import mlflow

        from tracking.mlflow.open_run import log_evaluation

        _check(evaluator_config)
        with TemporaryDirectory(prefix="classwise-") as folder:
            done = _audited(model, dataset, evaluator_config, Path(folder))
            metrics, place = log_evaluation(done.result, done.folder, run_id, mlflow.get_tracking_uri())
        artifacts = {name: kind(uri=f"{place.rstrip('/')}/{file}") for name, (kind, file) in ARTIFACTS.items()}
        return EvaluationResult(metrics=metrics, artifacts=artifacts, run_id=run_id)  # type: ignore[no-untyped-call]


def _check(config: dict[str, Any]) -> None:
    known = [*OF_FLEET, *OF_MODEL, *OWN]
    problems = [
        Problem(f"evaluator_config.{key}", "a field of the classwise evaluator", repr(key), did_you_mean(key, known))
        for key in config
        if key not in known
    ]
    if problems:
        raise ConfigError(problems)


def _audited(model: Any, dataset: Any, config: dict[str, Any], folder: Path) -> Finished:
    """Lay the data down as files, and audit."""
    from jobs.audit.audit import run_audit
    from jobs.fleetfile.reading import validate_fleet
    from jobs.terminal.progress import Logged

    labels, groups = _labels(dataset), _groups(dataset, config)
    uri = _network_uri(model)
    images = None if model is None else _images(dataset.features_data, tuple(groups), model, config)
    if uri is None:
        uri = _scores_uri(_scores(model, dataset, images), folder)
        _log.warning("only scores of the model are known: measures that need its network or gradients are refused")
    arrays: dict[str, Any] = {"labels": labels, **groups, **({} if images is None else {"images": images})}
    np.savez(folder / "samples.npz", **arrays)
    floating = images is not None and images.dtype.kind == "f"
    scale = f"&scale={config.get('scale', 1)}" if floating or "scale" in config else ""
    fleet = {
        "fleet": "evaluation",
        "models": [{"name": "model", "uri": uri, **{key: config[key] for key in OF_MODEL if key in config}}],
        "samples": {"uri": f"npz:{folder / 'samples.npz'}?layout=NCHW{scale}"},
        "groups": list(groups),
        "storage": str(folder / "runs"),
        "tracking": {"enabled": False, **_store()},
        **{key: config[key] for key in OF_FLEET if key in config},
    }
    fleet["resources"] = {**fleet.get("resources", {}), "runner": "local"}
    return run_audit(validate_fleet(fleet, source="evaluator_config"), Logged())


def _store() -> dict[str, str]:
    """MLflow's own default where nothing names a store; a named one is in the environment, maybe with a password."""
    import mlflow

    from jobs.fleetfile.mlflow_uri import VARIABLE

    return {} if os.environ.get(VARIABLE) else {"uri": mlflow.get_tracking_uri()}


def _network_uri(model: Any) -> str | None:
    """The model as classwise opens it itself; None when MLflow alone can run it."""
    metadata = getattr(model, "metadata", None)
    if metadata is None or not set(NETWORKS) & set(metadata.flavors):
        return None
    if model_id := getattr(model, "model_id", None) or getattr(metadata, "model_id", None):
        return f"mlflow:models:/{model_id}"
    return f"mlflow:runs:/{metadata.run_id}/{metadata.artifact_path}" if metadata.run_id else None


def _labels(dataset: Any) -> NDArray[Any]:
    if dataset.labels_data is None:
        raise ConfigError(Problem("targets", "the label of every image", "none", "give targets to evaluate"))
    labels = np.asarray(dataset.labels_data)
    return labels.astype(str) if labels.dtype == object else labels


def _groups(dataset: Any, config: dict[str, Any]) -> dict[str, NDArray[Any]]:
    wanted = config.get("groups", {})
    if isinstance(wanted, dict):
        return {name: np.asarray(values).astype(str) for name, values in wanted.items()}
    columns = list(getattr(dataset.features_data, "columns", ()))
    if missing := [name for name in wanted if name not in columns]:
        remedy = did_you_mean(str(missing[0]), columns) if columns else "give a mapping of names to values"
        raise ConfigError(Problem("evaluator_config.groups", "columns of the data frame", repr(missing[0]), remedy))
    return {name: np.asarray(dataset.features_data[name]).astype(str) for name in wanted}


def _images(features: Any, groups: tuple[str, ...], model: Any, config: dict[str, Any]) -> NDArray[Any]:
    """Rows of pixels, or a column of arrays, as (N, C, H, W)."""
    if hasattr(features, "columns"):
        features = features.drop(columns=[name for name in groups if name in features.columns]).to_numpy()
    rows = np.asarray(features)
    if rows.dtype == object:  # a column of arrays, or columns of mixed kinds
        cells = [np.stack([np.asarray(cell).ravel() for cell in row]).ravel() for row in rows]
        rows = np.stack(cells)
    shape = tuple(config.get("shape") or _signature_shape(model) or ())
    if len(shape) != 3 or int(np.prod(shape)) != int(np.prod(rows.shape[1:])):
        actual = f"shape {shape or 'not given'} for rows of {int(np.prod(rows.shape[1:]))} values"
        remedy = "give evaluator_config={'shape': [channels, height, width]}"
        raise ConfigError(Problem("evaluator_config.shape", "the (C, H, W) of an image", actual, remedy))
    return np.ascontiguousarray(rows.reshape(len(rows), *shape))


def _signature_shape(model: Any) -> tuple[int, ...] | None:
    """(C, H, W) where the model was logged with a signature of tensors."""
    signature = getattr(getattr(model, "metadata", None), "signature", None)
    inputs = getattr(getattr(signature, "inputs", None), "inputs", None) or []
    shape = getattr(inputs[0], "shape", None) if len(inputs) == 1 else None
    return tuple(int(side) for side in shape[1:]) if shape is not None and len(shape) == 4 else None


def _scores(model: Any, dataset: Any, images: NDArray[Any] | None) -> NDArray[np.float32]:
    """Scores (N, K): what the model predicts, or the column of predictions."""
    raw = dataset.predictions_data if model is None else model.predict(images)
    if raw is None:
        raise ConfigError(Problem("predictions", "a model, or a column of scores", "neither", "name the column"))
    if isinstance(raw, dict) and len(raw) == 1:
        raw = next(iter(raw.values()))
    scores = np.asarray(raw.to_numpy() if hasattr(raw, "to_numpy") else raw)
    if scores.dtype == object and scores.ndim == 1:
        scores = np.stack([np.asarray(row, dtype=np.float32) for row in scores])
    if scores.ndim != 2 or scores.dtype.kind != "f":
        remedy = "give logits, or probabilities with evaluator_config={'outputs': 'probabilities'}"
        raise ConfigError(Problem("predictions", "scores (N, K)", f"{scores.dtype} {scores.shape}", remedy))
    return scores.astype(np.float32)


def _scores_uri(scores: NDArray[np.float32], folder: Path) -> str:
    np.savez(folder / "scores.npz", logits=scores)
    return f"logits:{folder / 'scores.npz'}"
