"""Changed bytes anywhere under a source change its digest, and with it the key of all that was computed from it."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from services.loading.models.source import fingerprint
from services.records import ModelSpec

BINARY = b"\x80\x02 weights"
FACTORY = "factory:digest_of_this.nets:build"


def field(number: int, content: bytes) -> bytes:
    """A field of a protocol buffer with a length."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(value: int) -> bytes:
    return bytes([value & 0x7F | 0x80]) + varint(value >> 7) if value > 0x7F else bytes([value])


KEY = field(1, b"location")


def onnx_graph(entry: bytes) -> bytes:
    """A model whose only initializer has this entry of external data."""
    return b"\x08\x08" + field(7, field(2, b"g") + field(5, b"\x10\x01" + field(9, BINARY) + field(13, entry)))


def single(uri: str) -> Callable[[Path], tuple[str, Path]]:
    """A source of one file."""

    def make(folder: Path) -> tuple[str, Path]:
        (folder / "file.bin").write_bytes(BINARY)
        return uri.format(folder / "file.bin"), folder / "file.bin"

    return make


def package(folder: Path) -> None:
    (folder / "digest_of_this").mkdir()
    (folder / "digest_of_this" / "__init__.py").touch()
    (folder / "digest_of_this" / "nets.py").write_text("def build(data=''): ...\n")
    (folder / "digest_of_this" / "table.csv").write_bytes(b"1,2,3")


def package_data(folder: Path) -> tuple[str, Path]:
    package(folder)
    return FACTORY, folder / "digest_of_this" / "table.csv"


def folder_argument(folder: Path) -> tuple[str, Path]:
    package(folder)
    (folder / "given" / "inner").mkdir(parents=True)
    (folder / "given" / "inner" / "part.bin").write_bytes(BINARY)
    return f"{FACTORY}?data={folder / 'given'}", folder / "given" / "inner" / "part.bin"


def external(folder: Path) -> tuple[str, Path]:
    return external_as(folder, "weights.bin", KEY + field(2, b"weights.bin"))


def external_as(folder: Path, name: str, entry: bytes) -> tuple[str, Path]:
    (folder / "graph.onnx").write_bytes(onnx_graph(entry))
    (folder / name).write_bytes(BINARY)
    return f"onnx:{folder / 'graph.onnx'}", folder / name


LONG = "encoder." * 20 + "bin"
UNUSUAL: dict[str, Callable[[Path], tuple[str, Path]]] = {
    "a long name": lambda folder: external_as(folder, LONG, KEY + field(2, LONG.encode())),
    "the value first": lambda folder: external_as(folder, "w.bin", field(2, b"w.bin") + KEY),
    "a length in two bytes": lambda folder: external_as(folder, "w.bin", b"\x0a\x88\x00location" + field(2, b"w.bin")),
    "a field that nobody knows": lambda folder: external_as(folder, "w.bin", KEY + b"\x18\x05" + field(2, b"w.bin")),
}
"""Entries that ONNX Runtime reads as well; changed bytes of such files left the digest as it was."""


def zoo(folder: Path) -> tuple[str, Path]:
    weights = folder / "cifar10" / "Linf" / "Standard.pt"
    weights.parent.mkdir(parents=True)
    weights.write_bytes(BINARY)
    return f"robustbench:Standard?model_dir={folder}", weights


def table(folder: Path) -> tuple[str, Path]:
    np.savez(folder / "z.npz", logits=np.zeros((3, 2), np.float32))
    return f"logits:{folder / 'z.npz'}", folder / "z.npz"


SOURCES: dict[str, Callable[[Path], tuple[str, Path]]] = {
    "factory, weights": single("factory:services.training.architectures:cifar_resnet?n=1&weights={}"),
    "factory, data file of its package": package_data,
    "factory, a folder as argument": folder_argument,
    "timm": single("timm:resnet18?weights={}"),
    "torchvision": single("torchvision:resnet18?weights={}"),
    "export": single("export:{}"),
    "torchscript": single("torchscript:{}"),
    "onnx": single("onnx:{}"),
    "onnx, external data": external,
    **{f"onnx, external data, {how}": make for how, make in UNUSUAL.items()},
    "robustbench, model_dir": zoo,
    "logits": table,
}


@pytest.mark.parametrize("source", SOURCES)
def test_changed_bytes_change_the_digest(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file keeps its size, and gets its content back in the end."""
    monkeypatch.syspath_prepend(str(tmp_path))
    uri, file = SOURCES[source](tmp_path)
    first = fingerprint(ModelSpec("m", uri))
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert fingerprint(ModelSpec("m", uri)) != first
    file.write_bytes(content)
    assert fingerprint(ModelSpec("m", uri)) == first


def test_a_refilled_folder_and_a_moved_file_change_the_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    uri, file = folder_argument(tmp_path)
    digests = [fingerprint(ModelSpec("m", uri))]
    shutil.move(file, file.with_name("other.bin"))
    digests.append(fingerprint(ModelSpec("m", uri)))
    (file.parent / "more.bin").write_bytes(BINARY)
    digests.append(fingerprint(ModelSpec("m", uri)))
    assert len(set(digests)) == 3


def test_which_weights_of_a_file_is_part_of_the_digest(tmp_path: Path) -> None:
    uri, _ = SOURCES["factory, weights"](tmp_path)
    options = ("", "&key=state_dict_ema", "&key=state_dict", "&drop_keys=aux.")
    assert len({fingerprint(ModelSpec("m", uri + option)) for option in options}) == 4


@pytest.mark.long
def test_weights_beside_a_real_graph_are_found(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    path = tmp_path / "m.onnx"
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 10)).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(network, (torch.zeros(1, 3, 8, 8),), path, verbose=False, dynamo=True)
    one_file = {"all_tensors_to_one_file": True, "location": "all.w", "size_threshold": 0}
    onnx.save_model(onnx.load(path), path, save_as_external_data=True, **one_file)
    first = fingerprint(ModelSpec("m", f"onnx:{path}"))
    content = (tmp_path / "all.w").read_bytes()
    (tmp_path / "all.w").write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert fingerprint(ModelSpec("m", f"onnx:{path}")) != first


def test_modules_beside_a_module_of_no_package_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the module imports from there changes its network: 0.1.0 gave the network of before."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "lonely_factory.py").write_text("import lonely_helper\ndef build(): ...\n")
    (tmp_path / "lonely_helper.py").write_text("SIGN = 1\n")
    spec = ModelSpec("m", "factory:lonely_factory:build")
    first = fingerprint(spec)
    (tmp_path / "lonely_helper.py").write_text("SIGN = -1\n")
    assert fingerprint(spec) != first
