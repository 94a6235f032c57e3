"""Models of an MLflow registry, logged by the test: aliases, graph and pickle serialisation, their traps."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pytest
import torch
from torch import nn

from services.errors import SourceError
from services.loading.mlflow_artifacts import fetch
from services.loading.models.schemes.mlflow import resolve_mlflow
from services.loading.models.source import fingerprint, load_model
from services.loading.samples.source import open_samples
from services.loading.uris import parse_uri
from services.records import ModelSpec, SampleSpec

pytestmark = pytest.mark.filterwarnings("ignore:::sqlalchemy", "ignore:::mlflow", "ignore::DeprecationWarning")

IMAGES = torch.rand(5, 1, 4, 4, generator=torch.Generator().manual_seed(0))


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(16, 3))


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """A registry on SQLite with two versions: a graph as logged by default, and a pickle."""
    folder = tmp_path_factory.mktemp("mlflow")
    mlflow.set_tracking_uri(f"sqlite:///{folder / 'm.db'}")
    experiment = mlflow.create_experiment("e", artifact_location=(folder / "artifacts").as_uri())
    with warnings.catch_warnings(), mlflow.start_run(experiment_id=experiment) as run:
        warnings.simplefilter("ignore")
        example = IMAGES[:1].numpy()
        options: dict[str, Any] = {"registered_model_name": "net", "pip_requirements": ["torch"]}
        mlflow.pytorch.log_model(network(), name="graph", input_example=example, **options)
        mlflow.pytorch.log_model(network().eval(), name="pickle", serialization_format="pickle", **options)
        pixels = (np.arange(5 * 16) * 3).astype(np.uint8).reshape(5, 4, 4)
        np.savez(folder / "s.npz", images=pixels, labels=np.arange(5) % 3)
        mlflow.log_artifact(str(folder / "s.npz"), "data")
    mlflow.MlflowClient().set_registered_model_alias("net", "prod", "1")
    yield {"run": run.info.run_id}
    mlflow.set_tracking_uri(None)  # the default as a value would stay in the environment


def test_the_latest_version_is_resolved_once(registry: dict[str, Any]) -> None:
    """Its address stayed as it was, and the bundle had no id of the logged model."""
    newest = max(int(each.version) for each in mlflow.MlflowClient().search_model_versions("name = 'net'"))
    assert resolve_mlflow("mlflow:models:/net/latest") == resolve_mlflow(f"mlflow:models:/net/{newest}")
    assert "source=m-" in resolve_mlflow("mlflow:models:/net/latest")
    with pytest.raises(SourceError, match=r"a registered model 'absent' with version latest"):
        resolve_mlflow("mlflow:models:/absent/latest")


def test_an_alias_is_resolved_once(registry: dict[str, Any]) -> None:
    resolved = resolve_mlflow("mlflow:models:/net@prod")
    assert resolved.startswith("mlflow:models:/net/1?source=m-")
    assert resolve_mlflow(resolved) == resolved
    assert resolve_mlflow("mlflow:models:/net/1") == resolved
    mlflow.MlflowClient().set_registered_model_alias("net", "moving", "1")
    first = fingerprint(ModelSpec("m", "mlflow:models:/net@moving"))
    mlflow.MlflowClient().set_registered_model_alias("net", "moving", "2")
    assert fingerprint(ModelSpec("m", "mlflow:models:/net@moving")) != first == fingerprint(ModelSpec("m", resolved))


def test_a_graph_logged_by_default_is_served_and_its_traps_told(registry: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loaded = load_model(ModelSpec("m", "mlflow:models:/net@prod"))
    assert loaded.network is not None
    assert loaded.network(IMAGES).shape == (5, 3)
    assert loaded.facts["mlflow"] == "models:/net/1"
    assert loaded.facts["source"].startswith("m-")
    assert any("dropout" in name for name in loaded.facts["train_mode"])


def test_a_pickle_needs_leave(registry: dict[str, Any]) -> None:
    spec = ModelSpec("m", "mlflow:models:/net/2")
    with pytest.raises(SourceError, match=r"a pickled module .* log it with serialization_format='pt2'"):
        load_model(spec)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loaded = load_model(ModelSpec("m", spec.uri, allow_unpickling=True))
    assert loaded.network is not None
    assert loaded.facts["unpickled"] is True
    assert torch.allclose(loaded.network(IMAGES), network().eval()(IMAGES))
    assert np.isfinite(loaded.network(IMAGES).numpy()).all()


def test_what_a_run_serves_now_is_audited(registry: dict[str, Any]) -> None:
    """A model logged a second time under one name: MLflow serves the second, 0.1.0 audited the first from its cache."""
    client = mlflow.MlflowClient()
    experiment = client.get_run(registry["run"]).info.experiment_id
    options: dict[str, Any] = {"name": "twice", "serialization_format": "pickle", "pip_requirements": ["torch"]}
    resolved = []
    with warnings.catch_warnings(), mlflow.start_run(experiment_id=experiment) as run:
        warnings.simplefilter("ignore")
        uri = f"mlflow:runs:/{run.info.run_id}/twice"
        for scale in (1.0, -1.0):
            logged = network().eval()
            logged[2].weight.data *= scale
            info = mlflow.pytorch.log_model(logged, **options)
            resolved.append(resolve_mlflow(uri))
            assert parse_uri(resolved[-1]).query["source"] == info.model_id
            served = mlflow.pytorch.load_model(f"runs:/{run.info.run_id}/twice")
            loaded = load_model(ModelSpec("m", resolved[-1], allow_unpickling=True))
            assert loaded.network is not None and torch.equal(loaded.network(IMAGES), served(IMAGES))
            assert loaded.facts["source"] == info.model_id
    first, second = (fingerprint(ModelSpec("m", text)) for text in resolved)
    assert first != second == fingerprint(ModelSpec("m", uri))
    with pytest.raises(SourceError, match="served when the audit began, found others; audit again"):
        load_model(ModelSpec("m", resolved[0], allow_unpickling=True))


def test_files_written_over_a_logged_model_change_its_digest(registry: dict[str, Any]) -> None:
    before = fingerprint(ModelSpec("m", "mlflow:models:/net/2"))
    folder = fetch("models:/net/2", "m")
    weights = folder / "data" / "model.pth"
    content = weights.read_bytes()
    weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    try:
        assert fingerprint(ModelSpec("m", "mlflow:models:/net/2")) != before
    finally:
        weights.write_bytes(content)
    assert fingerprint(ModelSpec("m", "mlflow:models:/net/2")) == before


def test_samples_that_a_run_logged(registry: dict[str, Any]) -> None:
    samples = open_samples(SampleSpec(f"mlflow:runs:/{registry['run']}/data/s.npz"))
    assert (len(samples), samples.shape) == (5, (1, 4, 4))
    assert np.array_equal(samples.images(1, 2).ravel() * 255, np.arange(16, 32) * 3)


@pytest.mark.parametrize("up", ["%2e%2e", "%2E.", "%252e%252e", "..", "..%2f..", "\\.."])
def test_no_address_leaves_the_folder_of_its_run(registry: dict[str, Any], up: str) -> None:
    """MLflow decodes the path of an address once more: %2e%2e was any file that the audit may read."""
    run = mlflow.get_run(registry["run"])
    folder = Path(run.info.artifact_uri.removeprefix("file://"))
    np.savez(folder.parent / "s.npz", images=np.zeros((4, 4, 4), np.uint8), labels=np.arange(4) % 2)
    with pytest.raises(SourceError, match="a path below a run or model"):
        open_samples(SampleSpec(f"mlflow:runs:/{registry['run']}/{up}/s.npz"))


def test_the_store_that_the_environment_names_goes_before_the_one_that_the_process_set(
    registry: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mlflow.tracking._tracking_service.utils._tracking_uri", f"sqlite:///{tmp_path / 'other.db'}")
    assert resolve_mlflow("mlflow:models:/net@prod").startswith("mlflow:models:/net/1?source=m-")
    assert load_model(ModelSpec("m", "mlflow:models:/net/2", allow_unpickling=True)).facts["mlflow"] == "models:/net/2"
    logged = parse_uri(resolve_mlflow("mlflow:models:/net/2")).query["source"]
    assert load_model(ModelSpec("m", f"mlflow:models:/{logged}", allow_unpickling=True)).network is not None
    assert (fetch("models:/net@prod/MLmodel", "m")).is_file()
    assert len(open_samples(SampleSpec(f"mlflow:runs:/{registry['run']}/data/s.npz"))) == 5
    assert not (tmp_path / "other.db").exists()


LETTERS = "abcdefghi"
BOMB = "a: &a [x]\n" + "\n".join(
    f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("description", "message"),
    [
        ("flavors: {pytorch: {model_data: PRIVATE}}", "parts in the model's own folder"),
        ("flavors: {pytorch: {model_data: UP/PRIVATE}}", "parts in the model's own folder"),
        ("flavors: {onnx: {data: UP/PRIVATE/model.onnx}}", "parts in the model's own folder"),
        ("flavors: {pytorch: {model_data: 3}}", "parts in the model's own folder"),
        (f"{BOMB}\nflavors: {{pytorch: {{x: *i}}}}", "at most 200000 values"),
        ("[" * 3000, "nested"),
        ("flavors: [1]", "a description MLmodel with its flavours"),
        ("flavors: {pytorch: 3}", "a description MLmodel with its flavours"),
        (f"flavors: {{pytorch: {{x: {':'.join(['1'] * 9000)}}}}}", "a number of 17999 characters"),
        ("flavors: !!python/object/apply:os.system [id]", "a description MLmodel with its flavours"),
    ],
    ids=["absolute", "above", "onnx", "number", "bomb", "deep", "list", "flavour", "digits", "object"],
)
def test_a_description_leads_nowhere_and_costs_nothing(
    registry: dict[str, Any], tmp_path: Path, description: str, message: str
) -> None:
    """Who may log a model writes its MLmodel: others' models would be audited in their name."""
    private = tmp_path / "private" / "data"
    private.mkdir(parents=True)
    torch.export.save(torch.export.export(network().eval(), (IMAGES,)), private / "model.pt2")
    text = description.replace("PRIVATE", str(private)).replace("UP", "../" * 30)
    mlflow.MlflowClient().log_text(registry["run"], text, "described/MLmodel")
    with pytest.raises(SourceError, match=message):
        load_model(ModelSpec("m", f"mlflow:runs:/{registry['run']}/described"))


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("mlflow:models:/net@absent", "a registered model 'net' with alias 'absent'"),
        ("mlflow:models:/net/9", "a registered model 'net' with version 9"),
        ("mlflow:net", "expected mlflow:models:/NAME@ALIAS"),
        ("mlflow:runs:/0123/model", "an MLflow artifact runs:/0123/model"),
    ],
)
def test_mistakes(uri: str, message: str, registry: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=message):
        load_model(ModelSpec("m", uri))
