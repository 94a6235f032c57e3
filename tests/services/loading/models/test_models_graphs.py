"""Graphs: TorchScript, torch.export and ONNX, written by the test and read back, with their traps."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from services.errors import SourceError
from services.loading import packages
from services.loading.models.fixed_batch import FixedBatch
from services.loading.models.source import fingerprint, load_model
from services.loading.preflight.look import preflight
from services.loading.samples.source import open_samples
from services.records import InputContract, ModelSpec, SampleSpec

IMAGES = torch.rand(7, 1, 8, 8, generator=torch.Generator().manual_seed(0))


def network(*, dropout: float = 0.0, norm: bool = False) -> nn.Module:
    torch.manual_seed(0)
    middle = [nn.BatchNorm2d(4)] if norm else []
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), *middle, nn.ReLU(), nn.Flatten(), nn.Dropout(dropout), nn.Linear(144, 10)
    ).eval()


def export(model: nn.Module, path: Path, *, batch: int | None) -> str:
    example = torch.rand(batch or 2, 1, 8, 8)
    shapes = None if batch else ({0: torch.export.Dim.DYNAMIC},)
    torch.export.save(torch.export.export(model, (example,), dynamic_shapes=shapes), path)
    return f"export:{path}"


def script(model: nn.Module, path: Path) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.trace(model, IMAGES[:2]), path)
    return f"torchscript:{path}"


def onnx(model: nn.Module, path: Path, *, batch: int | None) -> str:
    shapes = None if batch else {"input": {0: torch.export.Dim.DYNAMIC}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model, (torch.rand(batch or 2, 1, 8, 8),), path, dynamic_shapes=shapes, verbose=False, dynamo=True
        )
    return f"onnx:{path}"


WRITERS: dict[str, Callable[[nn.Module, Path], str]] = {
    "torchscript": script,
    "export": lambda model, path: export(model, path, batch=None),
    "export, batch of 1": lambda model, path: export(model, path, batch=1),
    "export, batch of 3": lambda model, path: export(model, path, batch=3),
    "onnx": lambda model, path: onnx(model, path, batch=None),
    "onnx, batch of 3": lambda model, path: onnx(model, path, batch=3),
}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """The same network by each writer, written once: URIs by kind."""

    @cache
    def uri(kind: str) -> str:
        return WRITERS[kind](network(norm=True), tmp_path_factory.mktemp("graphs") / "m.bin")

    return uri


@pytest.mark.parametrize("kind", list(WRITERS))
def test_the_same_logits_at_any_batch(kind: str, written: Callable[[str], str]) -> None:
    model = network(norm=True)
    loaded = load_model(ModelSpec("m", written(kind)))
    assert loaded.network is not None
    for count in (1, 2, 7):
        assert torch.allclose(loaded.network(IMAGES[:count]), model(IMAGES[:count]), atol=1e-5)
    assert loaded.facts.get("fixed_batch") == (int(kind[-1]) if "batch" in kind else None)
    assert loaded.differentiable == (not kind.startswith("onnx"))
    assert len(loaded.digest) == 32


@pytest.mark.parametrize("kind", ["torchscript", "export", "export, batch of 3"])
def test_gradients_flow(kind: str, written: Callable[[str], str]) -> None:
    model = network(norm=True)
    loaded = load_model(ModelSpec("m", written(kind)))
    mine, theirs = (IMAGES.clone().requires_grad_() for _ in range(2))
    assert loaded.network is not None
    loaded.network(mine)[:, 0].sum().backward()
    model(theirs)[:, 0].sum().backward()
    assert mine.grad is not None and theirs.grad is not None
    assert torch.allclose(mine.grad, theirs.grad, atol=1e-6)


@pytest.mark.parametrize("broken", [{"dropout": 0.5}, {"norm": True}])
def test_training_mode_baked_into_an_export_is_reported(broken: dict[str, Any], tmp_path: Path) -> None:
    uri = export(network(**broken).train(), tmp_path / "m.pt2", batch=None)
    loaded = load_model(ModelSpec("m", uri))
    operator = "dropout" if "dropout" in broken else "batch_norm"
    assert any(operator in name for name in loaded.facts["train_mode"])
    _, problems = preflight(loaded, open_samples(SampleSpec("sklearn:digits", per_class=4)), device="cpu")
    assert any("training mode baked in" in str(problem) for problem in problems)


def test_an_eval_export_has_no_training_mode(tmp_path: Path) -> None:
    uri = export(network(dropout=0.5, norm=True), tmp_path / "m.pt2", batch=None)
    assert "train_mode" not in load_model(ModelSpec("m", uri)).facts


def test_onnx_without_its_runtime(written: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    uri = written("onnx")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(SourceError, match=r"it is not installed; install the extra classwise\[onnx\]"):
        load_model(ModelSpec("m", uri))


@pytest.mark.parametrize("scheme", ["torchscript", "export", "onnx"])
def test_other_files_are_named(scheme: str, tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(b"<html>")
    with pytest.raises(SourceError, match="an HTML page"):
        load_model(ModelSpec("m", f"{scheme}:{tmp_path / 'm'}"))
    torch.save({"w": torch.zeros(2)}, tmp_path / "m")
    with pytest.raises(SourceError, match=r"^m: expected"):
        load_model(ModelSpec("m", f"{scheme}:{tmp_path / 'm'}"))


class Custom:
    """An object that only unpickling could make."""


class Normalised(nn.Module):
    """Mean and spread in the code: constants of the graph, and not weights."""

    def __init__(self) -> None:
        super().__init__()
        self.body = network()

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        mean, std = torch.tensor([0.3]), torch.tensor([0.35])
        logits: torch.Tensor = self.body((images - mean) / std)
        return logits


def test_an_export_with_constants_is_one_of_tensors(tmp_path: Path) -> None:
    uri = export(Normalised().eval(), tmp_path / "m.pt2", batch=None)
    loaded = load_model(ModelSpec("m", uri))
    with torch.no_grad():
        torch.testing.assert_close(loaded.network(IMAGES), Normalised().eval()(IMAGES))


def test_an_export_that_needs_unpickling_is_refused(tmp_path: Path) -> None:
    import io
    import zipfile

    path = tmp_path / "m.pt2"
    uri = export(network(), path, batch=None)
    payload = io.BytesIO()
    torch.save({"x": Custom()}, payload)
    with zipfile.ZipFile(path) as archive:
        inputs = next(name for name in archive.namelist() if "sample_inputs" in name)
        records = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in records.items():
            archive.writestr(name, payload.getvalue() if name == inputs else content)
    with pytest.raises(SourceError, match=r"an archive of tensors only, found .*sample_inputs"):
        load_model(ModelSpec("m", uri))


def test_fixed_batch_pads_nested_outputs() -> None:
    observed: list[int] = []

    def pair(x: torch.Tensor) -> Any:
        observed.append(len(x))
        return {"a": x.sum(dim=(1, 2, 3)), "b": (x[:, 0],)}

    out = FixedBatch(pair, 4)(IMAGES)
    assert observed == [4, 4]
    assert torch.equal(out["a"], IMAGES.sum(dim=(1, 2, 3)))
    assert torch.equal(out["b"][0], IMAGES[:, 0])


@pytest.mark.long
def test_zoo_networks(tmp_path: Path, torchvision_operators: None) -> None:
    timm, models = packages.package("timm", ""), packages.package("torchvision.models", "")
    images = torch.rand(2, 3, 32, 32)
    for scheme, model in (
        ("timm:resnet10t", timm.create_model("resnet10t", num_classes=5)),
        ("torchvision:shufflenet_v2_x0_5", models.get_model("shufflenet_v2_x0_5", num_classes=5)),
    ):
        torch.save({"state_dict": model.state_dict()}, tmp_path / "w.pt")
        spec = ModelSpec(
            "m", f"{scheme}?num_classes=5&weights={tmp_path / 'w.pt'}", InputContract(mean=(0.5, 0.5, 0.5))
        )
        loaded = load_model(spec)
        assert loaded.network is not None
        with torch.no_grad():
            assert torch.allclose(loaded.network(images), model.eval()(images - 0.5), atol=1e-5)
        assert loaded.facts["checkpoint_keys"] == ["state_dict"]
        torch.save(np.float64(1).item(), tmp_path / "w.pt")
        assert fingerprint(spec) != loaded.digest


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("timm:resnet10t", r"expected weights, found none; add \?weights=FILE or \?pretrained=true"),
        ("torchvision:resnet18", r"add \?weights=FILE"),
        ("timm:resnet10u?pretrained=false", "an architecture of timm, found 'resnet10u'; did you mean"),
        ("torchvision:resnet19?weights=none", "did you mean 'resnet18'|did you mean 'resnet1"),
        ("torchvision:resnet18?weights=IMAGENET1K_V9", "the zoo to build it"),
        ("timm:resnet10t?pretraind=true", "did you mean 'pretrained'"),
    ],
)
def test_zoo_mistakes(uri: str, message: str, torchvision_operators: None) -> None:
    with pytest.raises(SourceError, match=message):
        load_model(ModelSpec("m", uri))
