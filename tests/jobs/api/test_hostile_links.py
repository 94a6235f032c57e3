"""A caller with a token and write access to one granted folder, who puts links into it that lead elsewhere.

What lies there are other people's files that the audit's process can read: nothing of them reaches the caller, by no
message, log, report, result, score or picture.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from jobs.api.serve import build
from jobs.api.settings import Settings, digests, plain
from services.loading.samples.source import open_samples
from services.records import SampleSpec

from .conftest import TOKEN
from .test_api import ended

SECRET = "swordfish-0123456789abcdef"


@pytest.fixture
def private(tmp_path: Path) -> Path:
    """Somebody else's folder: a secret, images, samples, weights."""
    folder = tmp_path / "private"
    for name in ("cats", "dogs"):
        (folder / "images" / name).mkdir(parents=True)
        for number in range(3):
            pixels = np.random.default_rng(number).integers(0, 255, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / "images" / name / f"{number}.png")
    (folder / "secret.csv").write_text(f"{SECRET},other\n1,2\n")
    np.savez(folder / "samples.npz", images=np.zeros((4, 8, 8), dtype=np.uint8), labels=np.array([0, 1, 0, 1]))
    return folder


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """The granted folder."""
    folder = tmp_path / "granted" / "mine"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def eve(settings: Settings, mine: Path, digit_weights: dict[str, str]) -> TestClient:
    data = plain(settings)
    data["allow"]["samples"] = ["npz", "imagefolder", "parquet", "sklearn"]
    data["allow"]["models"] = ["factory", "onnx", "logits", "export"]
    data["allow"]["paths"] = [str(mine.parent), str(Path(digit_weights["good"]).parent)]
    app = build(data, digests(settings, {"CI_TOKEN": TOKEN}))
    return TestClient(app, headers={"authorization": f"Bearer {TOKEN}"}, raise_server_exceptions=False)


def folder_of_images(mine: Path) -> Path:
    """Images of her own: the digits' size, two classes."""
    root = mine / "set"
    for name in ("a", "b"):
        (root / name).mkdir(parents=True)
        for number in range(3):
            Image.fromarray(np.full((8, 8), 50 * number, dtype=np.uint8)).save(root / name / f"{number}.png")
    return root


def link_metadata(mine: Path, private: Path) -> dict[str, Any]:
    root = folder_of_images(mine)
    (root / "metadata.csv").symlink_to(private / "secret.csv")
    return {"samples": {"uri": f"imagefolder:{root}?mode=L"}}


def link_image(mine: Path, private: Path) -> dict[str, Any]:
    root = folder_of_images(mine)
    (root / "a" / "9.png").symlink_to(private / "images" / "cats" / "0.png")
    return {"samples": {"uri": f"imagefolder:{root}?mode=L"}}


def link_class(mine: Path, private: Path) -> dict[str, Any]:
    root = folder_of_images(mine)
    (root / "c").symlink_to(private / "images" / "cats")
    return {"samples": {"uri": f"imagefolder:{root}?mode=L"}}


def link_archive(mine: Path, private: Path) -> dict[str, Any]:
    (mine / "s.npz").symlink_to(private / "samples.npz")
    return {"samples": {"uri": f"npz:{mine}/s.npz"}}


def link_table(mine: Path, private: Path) -> dict[str, Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"image": [[0.0] * 64] * 4, "label": [0, 1, 0, 1]}), private / "t.parquet")
    (mine / "tables").mkdir()
    (mine / "tables" / "t.parquet").symlink_to(private / "t.parquet")
    return {"samples": {"uri": f"parquet:{mine}/tables?shape=8x8"}}


def onnx_of(mine: Path, location: str, length: int) -> str:
    """A graph whose weights are bytes of another file."""
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper

    weights = onnx.TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[64, 10])
    weights.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", "0"), ("length", str(length))):
        weights.external_data.add(key=key, value=value)
    shape = helper.make_tensor("shape", TensorProto.INT64, [2], [-1, 64])
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 1, 8, 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 10])
    graph = helper.make_graph(nodes, "g", [x], [y], [shape, weights])
    (mine / "m.onnx").write_bytes(helper.make_model(graph).SerializeToString())
    return f"onnx:{mine}/m.onnx"


def link_weights_of_onnx(mine: Path, private: Path) -> dict[str, Any]:
    (private / "raw.bin").write_bytes(np.ones((64, 10), dtype=np.float32).tobytes())
    (mine / "raw.bin").symlink_to(private / "raw.bin")
    return {"models": [{"name": "m", "uri": onnx_of(mine, "raw.bin", 2560)}]}


def weights_of_onnx_above(mine: Path, private: Path) -> dict[str, Any]:
    (private / "raw.bin").write_bytes(np.ones((64, 10), dtype=np.float32).tobytes())
    return {"models": [{"name": "m", "uri": onnx_of(mine, "../../private/raw.bin", 2560)}]}


def link_weights(mine: Path, private: Path) -> dict[str, Any]:
    (mine / "w.safetensors").symlink_to(private / "secret.csv")
    uri = f"factory:services.training.architectures:small_cnn?width=8&weights={mine}/w.safetensors"
    return {"models": [{"name": "m", "uri": uri}]}


ATTACKS = (
    link_metadata,
    link_image,
    link_class,
    link_archive,
    link_table,
    link_weights_of_onnx,
    weights_of_onnx_above,
    link_weights,
)


@pytest.mark.parametrize("attack", ATTACKS)
def test_nothing_behind_a_link_is_read(
    attack: Callable[[Path, Path], dict[str, Any]], eve: TestClient, fleet: dict[str, Any], mine: Path, private: Path
) -> None:
    data = {**fleet, **attack(mine, private), "resources": {"workers": 1}}
    with eve:
        sent = eve.post("/v1/audits", json=data)
        if sent.status_code == 403:
            assert SECRET not in sent.text
            return
        assert sent.status_code == 202, sent.text
        name = sent.json()["id"]
        body = ended(eve, name)
        assert body["outcome"] == "error", body
        log = eve.get(f"/v1/audits/{name}/logs").text
        assert "leads out of" in str(body["problems"]) + log
        for text in (str(body), log, eve.get("/v1/failures").text):
            assert SECRET not in text
        assert eve.get(f"/v1/audits/{name}/result").status_code == 409
        assert eve.get(f"/v1/audits/{name}/bundle").status_code == 409


def test_links_within_what_is_granted_are_read(eve: TestClient, fleet: dict[str, Any], mine: Path) -> None:
    """Data sets are often folders of links."""
    other = mine.parent / "shared"
    other.mkdir()
    digits = open_samples(SampleSpec("sklearn:digits?split=test"))
    np.savez(other / "s.npz", images=digits.images(0, 300), labels=digits.labels[:300])
    (mine / "s.npz").symlink_to(other / "s.npz")
    with eve:
        sent = eve.post("/v1/audits", json={**fleet, "samples": {"uri": f"npz:{mine}/s.npz?scale=1"}})
        assert sent.status_code == 202, sent.text
        name = sent.json()["id"]
        assert ended(eve, name)["bundle"], eve.get(f"/v1/audits/{name}").text
        archive = zipfile.ZipFile(io.BytesIO(eve.get(f"/v1/audits/{name}/bundle").content))
        assert any(member.endswith("bundle.json") for member in archive.namelist())
