"""MLflow's own evaluation through the entry point: the numbers of an audit, in MLflow's run."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
import torch

from jobs.audit.audit import run_audit
from jobs.fleetfile.reading import validate_fleet
from jobs.terminal.progress import Quiet
from services.errors import ClasswiseError, ConfigError
from services.loading.samples.source import open_samples
from services.records import SampleSpec
from services.training.architectures import small_cnn
from services.training.epochs.checkpoints import load_weights
from tests.conftest import ROOT
from tracking.mlflow.layout import child_content

pytestmark = [pytest.mark.filterwarnings("default")]
MEASURES = ["clean", {"name": "great", "activation": "softmax"}, {"name": "pgd", "steps": 3, "epsilons": [0.05]}]
GATES = [{"measure": "clean", "metric": "wcr", "at_least": 0.5}]


def _registry() -> Any:
    # It warns when it is imported.
    from mlflow.models.evaluation.evaluator_registry import _model_evaluation_registry  # noqa: PLC2701

    return _model_evaluation_registry


@pytest.fixture(scope="module", autouse=True)
def registered() -> Iterator[None]:
    """The entry point that pyproject.toml declares, loaded as MLflow loads it: tests run without installation too."""
    registry = _registry()
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["mlflow.model_evaluator"]
    for name, value in declared.items():
        registry.register(name, EntryPoint(name, value, "mlflow.model_evaluator").load())
    yield


@pytest.fixture
def store(tmp_path: Path, migrated_store: Callable[[Path], str]) -> Iterator[str]:
    uri = migrated_store(tmp_path)
    mlflow.set_tracking_uri(uri)
    mlflow.set_experiment(experiment_id=mlflow.create_experiment("digits", (tmp_path / "artifacts").as_uri()))
    yield uri
    mlflow.set_tracking_uri(None)  # the default as a value would stay in the environment


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray]:
    samples = open_samples(SampleSpec("sklearn:digits?split=test", per_class=12))
    return samples.images(0, len(samples)), samples.labels


@pytest.fixture
def network(digit_weights: dict[str, str]) -> torch.nn.Module:
    found = small_cnn(width=8)
    found.load_state_dict(load_weights(digit_weights["good"]))
    return found.eval()


def logged(network: torch.nn.Module, images: np.ndarray) -> str:
    """The network as MLflow logs it by default, a graph; its URI."""
    info = mlflow.pytorch.log_model(network, name="network", input_example=images[:2], pip_requirements=["torch"])
    return str(info.model_uri)


def audited(uri: str, images: np.ndarray, labels: np.ndarray, folder: Path, **more: Any) -> dict[str, float]:
    """Metrics of an audit of the same model on the same images."""
    np.savez(folder / "same.npz", images=images, labels=labels)
    fleet = {
        "fleet": "same",
        "models": [{"name": "same", "uri": f"mlflow:{uri}"}],
        "samples": {"uri": f"npz:{folder / 'same.npz'}?layout=NCHW&scale=1"},
        "measures": MEASURES,
        "storage": str(folder / "runs"),
        "tracking": {"enabled": False},
        "resources": {"runner": "local"},
        **more,
    }
    result = run_audit(validate_fleet(fleet), Quiet()).result
    return {key: value for key, value in child_content(result, 0).metrics.items() if key != "seconds"}


def test_a_logged_network_gets_the_numbers_of_an_audit(
    store: str, digits: tuple[np.ndarray, np.ndarray], network: torch.nn.Module, tmp_path: Path
) -> None:
    images, labels = digits
    halves = np.where(np.arange(len(labels)) % 2, "odd", "even")
    config = {"measures": MEASURES, "gates": GATES, "groups": {"half": halves}}
    with mlflow.start_run() as run:
        mlflow.log_param("model", "the caller's own")
        uri = logged(network, images)
        evaluation = mlflow.models.evaluate(
            uri,
            images.reshape(len(images), -1),
            targets=labels,
            model_type="classifier",
            evaluators="classwise",
            evaluator_config=config,
        )
    same = audited(uri, images, labels, tmp_path)
    stored = mlflow.MlflowClient().get_run(run.info.run_id)
    for metrics in (evaluation.metrics, stored.data.metrics):
        assert {key: metrics[key] for key in same} == pytest.approx(same)
    assert "clean/by-half/rdi" in evaluation.metrics
    assert "pgd3/linf-0.05000/wcr_low" in evaluation.metrics
    tags = stored.data.tags
    assert (tags["classwise.role"], tags["classwise.outcome"]) == ("evaluation", "pass")
    assert stored.data.params["model"] == "the caller's own"
    assert stored.info.status == "FINISHED"
    paths = {file.path for file in mlflow.MlflowClient().list_artifacts(run.info.run_id)}
    assert {"per_class.parquet", "per_class.json", "verdict.json", "report.html", "figures"} <= paths
    assert evaluation.artifacts["verdict"].content["outcome"] == "pass"
    assert len(evaluation.artifacts["per_class"].content) == 3 * (10 + 2)
    assert "<html" in evaluation.artifacts["report"].content


def test_mlflow_s_own_default_store_serves_where_none_is_named(
    store: str,
    digits: tuple[np.ndarray, np.ndarray],
    network: torch.nn.Module,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    images, labels = digits
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    monkeypatch.setattr("mlflow.tracking._tracking_service.utils._tracking_uri", None)
    call = {"targets": labels, "model_type": "classifier", "evaluators": "classwise"}
    with mlflow.start_run():
        uri, rows = logged(network, images), images.reshape(len(images), -1)
        evaluation = mlflow.models.evaluate(uri, rows, evaluator_config={"measures": ["clean"]}, **call)
    assert evaluation.metrics["clean/aggregate"] > 0.8 and mlflow.get_tracking_uri() == store


def test_predictions_alone_give_measures_of_logits_and_refuse_attacks(
    store: str, digits: tuple[np.ndarray, np.ndarray], network: torch.nn.Module
) -> None:
    images, labels = digits
    with torch.no_grad():
        scores = network(torch.from_numpy(images)).numpy()
    frame = pd.DataFrame({"scores": list(scores), "label": labels})
    call = {"targets": "label", "predictions": "scores", "model_type": "classifier", "evaluators": "classwise"}
    with mlflow.start_run():
        evaluation = mlflow.models.evaluate(data=frame, **call)
        with pytest.raises(ClasswiseError, match="a network to run, found a table of logits; leave pgd out"):
            mlflow.models.evaluate(data=frame, evaluator_config={"measures": MEASURES}, **call)
    assert evaluation.metrics["clean/aggregate"] == pytest.approx((scores.argmax(1) == labels).mean())
    assert "great/rdi" in evaluation.metrics


def test_any_model_that_predicts_scores_is_measured(
    store: str, digits: tuple[np.ndarray, np.ndarray], network: torch.nn.Module
) -> None:
    images, labels = digits

    def predict(batch: Any) -> np.ndarray:
        with torch.no_grad():
            return network(torch.from_numpy(np.asarray(batch, dtype=np.float32))).softmax(1).numpy()

    config = {"shape": [1, 8, 8], "outputs": "probabilities", "measures": ["clean"]}
    call = {"targets": labels, "model_type": "classifier", "evaluators": "classwise"}
    with mlflow.start_run():
        evaluation = mlflow.models.evaluate(predict, images.reshape(-1, 64), evaluator_config=config, **call)
        with pytest.raises(ConfigError, match=r"the \(C, H, W\) of an image, found shape not given for rows of 64"):
            mlflow.models.evaluate(predict, images.reshape(-1, 64), **call)
    assert evaluation.metrics["clean/aggregate"] > 0.8


def test_mistakes_in_the_configuration_are_told_at_once(store: str, digits: tuple[np.ndarray, np.ndarray]) -> None:
    images, labels = digits
    config = {"meassures": ["clean"], "gate": []}
    with mlflow.start_run(), pytest.raises(ConfigError) as caught:
        mlflow.models.evaluate(
            lambda batch: batch,
            images.reshape(-1, 64),
            targets=labels,
            model_type="classifier",
            evaluators="classwise",
            evaluator_config=config,
        )
    assert len(caught.value.problems) == 2
    assert "measures" in str(caught.value)


def test_a_regressor_is_not_ours() -> None:
    evaluator = _registry().get_evaluator("classwise")
    assert not evaluator.can_evaluate(model_type="regressor", evaluator_config={})
