"""A name is given to another file between the look at it and its opening by a library, and back again afterwards.

Who writes to a granted folder can wait for the first look (inotify) and win this race in one of six tries; here the
swap is made at the very moment. What is read and what is hashed is the file that was judged, and nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file

from services.errors import SourceError
from services.loading.confined import OPEN_FILES, confined_to, held, open_granted
from services.loading.fingerprint import existing, sha256
from services.loading.models.source import fingerprint, load_model
from services.loading.samples.source import open_samples
from services.records import ModelSpec, SampleSpec
from services.training.architectures import small_cnn

pytestmark = pytest.mark.skipif(not OPEN_FILES.is_dir(), reason="only Linux names open files")


@pytest.fixture
def granted(tmp_path: Path) -> Path:
    """A granted folder, in which `set` is a link to a folder of it; and somebody else's folder `private` beside it."""
    (tmp_path / "private").mkdir()
    (tmp_path / "granted" / "mine").mkdir(parents=True)
    (tmp_path / "granted" / "set").symlink_to(tmp_path / "granted" / "mine")
    return tmp_path / "granted"


def point(link: Path, target: Path) -> None:
    link.with_name("new").symlink_to(target)
    link.with_name("new").replace(link)


def swap_while(monkeypatch: pytest.MonkeyPatch, owner: Any, function: str, granted: Path) -> list[int]:
    """While the library's function runs, the link leads to the private folder; the files themselves are not touched."""
    called: list[int] = []
    real = getattr(owner, function)

    def at_the_moment(*args: Any, **options: Any) -> Any:
        called.append(1)
        point(granted / "set", granted.parent / "private")
        try:
            return real(*args, **options)
        finally:
            point(granted / "set", granted / "mine")

    monkeypatch.setattr(owner, function, at_the_moment)
    return called


def write_npz(path: Path, value: int) -> None:
    np.savez(path, images=np.full((4, 8, 8), value, dtype=np.uint8), labels=np.array([0, 1, 0, 1]))


def write_parquet(path: Path, value: int) -> None:
    pixels = pa.FixedSizeListArray.from_arrays(pa.array(np.full(4 * 64, value, dtype=np.uint8)), 64)
    pq.write_table(pa.table({"image": pixels, "label": [0, 1, 0, 1]}), path)


@pytest.mark.parametrize(
    ("scheme", "write", "owner", "function"),
    [
        ("npz", write_npz, np, "load"),
        ("parquet", write_parquet, pq, "ParquetFile"),
    ],
)
def test_samples_are_those_that_were_judged(
    scheme: str,
    write: Callable[[Path, int], None],
    owner: Any,
    function: str,
    granted: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path, private = granted / "set" / f"s.{scheme}", granted.parent / "private" / f"s.{scheme}"
    write(path, 10)
    write(private, 200)
    uri = f"{scheme}:{path}?" + ("shape=8x8" if scheme == "parquet" else "scale=255")
    with confined_to([str(granted)]):
        digest = open_samples(SampleSpec(uri, duplicates="all")).digest
        swaps = swap_while(monkeypatch, owner, function, granted)
        read = open_samples(SampleSpec(uri, duplicates="all"))
    assert swaps and (read.images(0, 4) * 255).round().max() == 10 and read.digest == digest


def write_weights(path: Path, seed: int) -> None:
    torch.manual_seed(seed)
    state = small_cnn().state_dict()
    save_file(state, path) if path.suffix == ".safetensors" else torch.save(state, path)


def write_export(path: Path, seed: int) -> None:
    torch.manual_seed(seed)
    torch.export.save(torch.export.export(small_cnn().eval(), (torch.rand(2, 1, 8, 8),)), path)


def write_onnx(path: Path, seed: int) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    weights = np.random.default_rng(seed).random((64, 10), dtype=np.float32)
    shape = onnx.helper.make_tensor("shape", onnx.TensorProto.INT64, [2], [-1, 64])
    nodes = [
        onnx.helper.make_node("Reshape", ["x", "shape"], ["flat"]),
        onnx.helper.make_node("MatMul", ["flat", "w"], ["y"]),
    ]
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 1, 8, 8])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", 10])
    inits = [shape, onnx.numpy_helper.from_array(weights, "w")]
    graph = onnx.helper.make_graph(nodes, "g", [x], [y], inits)
    opset = [onnx.helper.make_opsetid("", 17)]
    path.write_bytes(onnx.helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString())


SMALL = "factory:services.training.architectures:small_cnn?weights="
MODELS = [
    (SMALL, "w.safetensors", write_weights, "safetensors.torch", "load_file"),
    (SMALL, "w.pt", write_weights, "torch", "load"),
    ("export:", "m.pt2", write_export, "zipfile", "ZipFile"),
    ("onnx:", "m.onnx", write_onnx, "onnxruntime", "InferenceSession"),
]


@pytest.mark.parametrize(("scheme", "name", "write", "library", "function"), MODELS)
def test_a_model_is_the_one_that_is_fingerprinted(
    scheme: str,
    name: str,
    write: Callable[[Path, int], None],
    library: str,
    function: str,
    granted: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else shards of one model would enter the cache as those of another, which other people's audits read."""
    path = granted / "set" / name
    write(path, 1)
    write(granted.parent / "private" / name, 2)
    spec, images = ModelSpec("m", f"{scheme}{path}"), torch.rand(2, 1, 8, 8)
    with confined_to([str(granted)]):
        honest = load_model(spec)
        assert honest.network is not None
        swaps = swap_while(monkeypatch, pytest.importorskip(library), function, granted)
        loaded = load_model(spec)
        assert swaps and loaded.network is not None
        assert loaded.digest == honest.digest == fingerprint(spec)
        assert torch.equal(loaded.network(images), honest.network(images))


def test_a_file_is_one_while_it_is_held(granted: Path) -> None:
    path = granted / "set" / "a"
    path.write_bytes(b"first")
    (granted.parent / "private" / "a").write_bytes(b"other")
    with confined_to([str(granted)]), held(), held():
        before = sha256(existing(path, "x"))
        point(granted / "set", granted.parent / "private")
        assert existing(path, "x").read_bytes() == b"first" and sha256(existing(path, "x")) == before
    with confined_to([str(granted)]):
        with held(), pytest.raises(SourceError, match="leads out of"):
            existing(path, "x")
        point(granted / "set", granted / "mine")
        with pytest.raises(SourceError, match="written meanwhile"), held():
            existing(path, "x")
            path.write_bytes(b"OTHER")


def test_a_pipe_is_not_waited_for(granted: Path) -> None:
    os.mkfifo(granted / "pipe")
    with confined_to([str(granted)]), pytest.raises(SourceError, match="a regular file"):
        open_granted(granted / "pipe", "x")


def test_two_files_of_one_size_and_time_have_a_hash_each(granted: Path) -> None:
    """The memory of hashes knows a file by itself, and not by what its name led to once."""
    path, hashes = granted / "f", []
    for content in (b"1", b"2"):
        fresh = granted / "fresh"
        fresh.write_bytes(content)
        os.utime(fresh, ns=(1, 1))
        fresh.replace(path)
        hashes.append(sha256(path))
    assert hashes[0] != hashes[1]


def test_samples_that_changed_since_the_audit_began_are_refused(granted: Path) -> None:
    """Without any race: the file is another one when workers open it, and their numbers would enter the cache."""
    path = granted / "s.npz"
    write_npz(path, 10)
    began = open_samples(SampleSpec(f"npz:{path}", duplicates="all"))
    same = SampleSpec(f"npz:{path}", duplicates="all", digest=began.digest)
    assert open_samples(same).digest == began.digest
    write_npz(path, 200)
    with pytest.raises(SourceError, match=r"the samples that the audit began with, found others"):
        open_samples(same)
