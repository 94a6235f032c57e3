"""Makes hostile files: see `attacks`, which says what each is for."""

from __future__ import annotations

import io
import json
import pickle
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import doors
import numpy as np


class Bomb:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.trace,)


def deflated(name: str, content: Iterator[bytes], path: Path) -> None:
    """An archive whose one member is this long."""
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open(name, "w", force_zip64=True) as member,
    ):
        for block in content:
            member.write(block)


def npy_header(shape: tuple[int, ...], kind: str) -> bytes:
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


def npz_claim(path: Path, shape: tuple[int, ...], kind: str = "|u1") -> None:
    """An array that claims a shape and holds nothing."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("images.npy", npy_header(shape, kind))
        archive.writestr("labels.npy", (lambda page: (np.save(page, np.arange(4)), page.getvalue())[1])(io.BytesIO()))


def zeros(count: int) -> Iterator[bytes]:
    block = bytes(1 << 20)
    for _ in range(count >> 20):
        yield block


def png_claim(width: int, height: int) -> bytes:
    """A PNG that claims a size and holds a row's worth of nothing."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    )


def png_text(count: int) -> bytes:
    """A PNG with a compressed comment that unpacks to `count` bytes."""
    body = b"c\0\0" + zlib.compress(bytes(count), 1)
    chunk = struct.pack(">I", len(body)) + b"zTXt" + body + struct.pack(">I", zlib.crc32(b"zTXt" + body))
    small = doors.png()
    return small[:33] + chunk + small[33:]


def long_header(path: Path, length: int) -> None:
    """A sparse safetensors file whose header is that long."""
    with path.open("wb") as file:
        file.write(struct.pack("<Q", length) + b"{")
        file.truncate(8 + length)


def dense_header(path: Path) -> None:
    """A safetensors header of 90 MB of real, nested JSON: what passes a limit on its length alone."""
    entry = b'"%d":{"dtype":"F32","shape":[],"data_offsets":[0,0]},'
    with path.open("wb") as file:
        file.write(bytes(8) + b"{")
        while file.tell() < 90_000_000:
            start = file.tell()
            file.write(b"".join(entry % (start + k) for k in range(20_000)))
        file.write(b'"x":{}}')
        length = file.tell() - 8
        file.seek(0)
        file.write(struct.pack("<Q", length))


def laughs(levels: int) -> str:
    """YAML whose aliases multiply tenfold a level."""
    lines = ["a0: &a0 [lol]"]
    lines += [f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 10)}]" for k in range(1, levels)]
    return "\n".join(lines)


def merges(levels: int) -> str:
    """YAML whose merge keys double a level."""
    lines = ["m0: &m0 {a: 1}"]
    lines += [f"m{k}: &m{k} {{<<: [*m{k - 1}, *m{k - 1}]}}" for k in range(1, levels)]
    return "\n".join(lines)


def flat_pickle(trace: Path, protocol: int = 2) -> bytes:
    return pickle.dumps({"state_dict": Bomb(trace)}, protocol)


def protocol_0(trace: Path) -> bytes:
    """A pickle of the oldest protocol: text without a mark at its start."""
    return b"cos\nsystem\n(S'touch \"" + bytes(trace) + b"\"'\ntR."


def pt_pickle(path: Path, trace: Path) -> None:
    """A PyTorch archive whose pickle runs code."""
    source = zipfile.ZipFile(io.BytesIO(doors.weights_seed()))
    replaced(source, path, {"data.pkl": flat_pickle(trace)})


def replaced(source: zipfile.ZipFile, path: Path, changes: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name in source.namelist():
            ending = name.rsplit("/", 1)[-1]
            archive.writestr(name, changes.get(ending, source.read(name)))


def export_pickle(path: Path, trace: Path) -> None:
    """An exported graph with a pickle of code among its members, whatever they are called."""
    with zipfile.ZipFile(io.BytesIO(doors.export_seed())) as source, zipfile.ZipFile(path, "w") as archive:
        for name in source.namelist():
            bad = name.endswith((".pt", "weight_0", "sample_inputs/model.pt"))
            archive.writestr(name, flat_pickle(trace) if bad else source.read(name))


def export_twice(path: Path, trace: Path, spell: Callable[[str], str] = str) -> None:
    """Two members of one name: a checker that reads the last is shown another than a loader that reads the first."""
    import warnings

    with zipfile.ZipFile(io.BytesIO(doors.export_seed())) as source, zipfile.ZipFile(path, "w") as archive:
        warnings.simplefilter("ignore")
        for name in [name for name in source.namelist() if "sample_inputs" in name] * 3:
            archive.writestr(spell(name), flat_pickle(trace))
        for name in source.namelist():
            archive.writestr(name, source.read(name))


def export_inputs(path: Path, content: bytes, config: bytes = b"") -> None:
    """Sample inputs of this content, unpickled whatever they are, and perhaps a configuration that hides them."""
    with zipfile.ZipFile(io.BytesIO(doors.export_seed())) as source, zipfile.ZipFile(path, "w") as archive:
        for name in source.namelist():
            hidden = content if "sample_inputs" in name else source.read(name)
            archive.writestr(name, config if config and name.endswith("constants_config.json") else hidden)


def export_graph(path: Path, place: str, trace: Path) -> None:
    """A graph without any pickle whose sizes, guards or operators are Python."""
    code = json.dumps(f"__import__('os').system('touch {trace.as_posix().replace(' ', '?')}')")
    with zipfile.ZipFile(io.BytesIO(doors.export_seed())) as source, zipfile.ZipFile(path, "w") as archive:
        for name in source.namelist():
            text = source.read(name)
            if name.endswith("models/model.json"):
                text = _with_code(text.decode(), place, code).encode()
                assert text != source.read(name)
            archive.writestr(name, text)


def _with_code(graph: str, place: str, code: str) -> str:
    if place == "size":
        start = graph.index('"Symbol(')
        return graph.replace(graph[start : graph.index(')"', start) + 2], code)
    if place == "guard":
        return graph.replace('"guards_code": []', f'"guards_code": [{code}]')
    return graph.replace("torch.ops.aten.flatten.using_ints", "torch.os.system")


def export_config(path: Path, config: bytes) -> None:
    with zipfile.ZipFile(io.BytesIO(doors.export_seed())) as source, zipfile.ZipFile(path, "w") as archive:
        for name in source.namelist():
            archive.writestr(name, config if name.endswith("_config.json") else source.read(name))


def many_members(path: Path, count: int = 50_000) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for index in range(count):
            archive.writestr(str(index), b"")


def parquet_bomb() -> bytes:
    """Half a gigabyte of one value in a few kilobytes."""
    import pyarrow as pa

    table = pa.table({"image": pa.array([b"x" * (1 << 20)] * 512), "label": pa.array([0] * 512)})
    return doors.parquet(table)


def parquet_of(**columns: Any) -> bytes:
    import pyarrow as pa

    return doors.parquet(pa.table(columns))


def onnx_claim() -> bytes:
    """A graph that makes ten gigabytes of zeros out of a shape when its constants are folded."""
    from onnx import TensorProto, helper

    shape = helper.make_tensor("s", TensorProto.INT64, [2], [100_000, 25_000])
    nodes = [helper.make_node("ConstantOfShape", ["s"], ["big"]), helper.make_node("ReduceMax", ["big"], ["m"])]
    nodes += [helper.make_node("Flatten", ["x"], ["f"]), helper.make_node("Add", ["f", "m"], ["y"])]
    inputs = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 1, 2, 2])
    taken = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    made = helper.make_model(helper.make_graph(nodes, "g", [inputs], [taken], [shape]), ir_version=8)
    made.opset_import[0].version = 17
    content: bytes = made.SerializeToString()
    return content


def onnx_external(target: str) -> bytes:
    """A graph whose weights are said to lie in another file of the machine."""
    import onnx

    model = onnx.load_model_from_string(doors.onnx_seed())
    weight = model.graph.initializer[0]
    weight.ClearField("float_data")
    weight.ClearField("raw_data")
    weight.data_location = onnx.TensorProto.EXTERNAL
    for key, value in {"location": target, "offset": "0", "length": "32"}.items():
        entry = weight.external_data.add()
        entry.key, entry.value = key, value
    content: bytes = model.SerializeToString()
    return content


def deep(opening: str, closing: str, levels: int = 100_000) -> str:
    return opening * levels + closing * levels


def nan_progress(path: Path) -> None:
    """Progress whose records are no records."""
    import torch
    from safetensors.torch import save

    facts = {"identity": 1, "state": [], "records": [1], "stopped": "", "reason": ""}
    path.write_bytes(save({"model.w": torch.zeros(1)}, {"facts": json.dumps(facts)}))


def raw(content: bytes | str) -> Callable[[Path], Any]:
    return lambda path: path.write_bytes(content.encode() if isinstance(content, str) else content)


def many_keys(count: int) -> str:
    return "{" + ",".join(f'"k{index}":0' for index in range(count)) + ',"k0":1}'


def colliding_csv() -> str:
    return "file_name,ink\n" + "a/0.png," + "x" * 200_000 + "\n"


def metadata(path: Path, content: bytes, key: str = "huggingface") -> None:
    import pyarrow as pa

    table = pa.table({"image": [doors.png()] * 2, "label": [0, 1]})
    path.write_bytes(doors.parquet(table.replace_schema_metadata({key: content})))
