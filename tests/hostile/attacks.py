"""Hostile files by name: each is made on the fly, opened through its door, and told with time, memory and outcome.

Run as a script in a process of its own, whose address space is limited: ``python attacks.py FOLDER``. One line of JSON
an attack: what came of it (a ClasswiseError, a value, or anything else), seconds, and the growth of the peak memory.
"""

from __future__ import annotations

import json
import random
import resource
import signal
import string
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parent), str(HERE.parents[2])]

import doors  # noqa: E402
from forged import (  # noqa: E402
    Bomb,
    colliding_csv,
    deep,
    deflated,
    dense_header,
    export_config,
    export_graph,
    export_inputs,
    export_pickle,
    export_twice,
    flat_pickle,
    laughs,
    long_header,
    many_keys,
    many_members,
    merges,
    metadata,
    nan_progress,
    npy_header,
    npz_claim,
    onnx_claim,
    onnx_external,
    parquet_bomb,
    parquet_of,
    png_claim,
    png_text,
    protocol_0,
    pt_pickle,
    raw,
    zeros,
)

MEMORY = 6 << 30
SECONDS = 30
Attack = tuple[str, Callable[[Path], Any]]
"""The door, and what writes the file."""


def attacks(trace: Path) -> dict[str, Attack]:
    """All attacks by name; `trace` appears when code runs."""
    word = "".join(random.Random(0).choices(string.ascii_letters, k=10_000))
    html = "<!doctype html><script>alert(1)</script>"
    result: dict[str, Attack] = {
        "weights: a pickle that runs code": ("legacy weights", raw(flat_pickle(trace))),
        "weights: an archive whose pickle runs code": ("weights", lambda path: pt_pickle(path, trace)),
        "weights: protocol 0": ("legacy weights", raw(protocol_0(trace))),
        "weights: half a file": ("weights", raw(doors.weights_seed()[:-200])),
        "weights: 50,000 members": ("weights", many_members),
        "weights: 1.1 GB of zeros": ("weights", lambda path: deflated("a/data.pkl", zeros(1100 << 20), path)),
        "weights: 900 megabytes under the bomb floor": (
            "weights",
            lambda path: deflated("archive/data.pkl", zeros(900 << 20), path),
        ),
        "safetensors: a header of 5 GB": ("safetensors", lambda path: long_header(path, 5 << 30)),
        "safetensors: a header of 99 MB": ("safetensors", lambda path: long_header(path, 99_000_000)),
        "safetensors: a header of 90 MB of entries": ("safetensors", dense_header),
        "safetensors: nested": (
            "safetensors",
            lambda path: path.write_bytes(struct.pack("<Q", 200_000) + deep("[", "]").encode()),
        ),
        "torchscript: a pickle that runs code": ("torchscript", lambda path: pt_pickle(path, trace)),
        "export: pickles that run code": ("export", lambda path: export_pickle(path, trace)),
        "export: two members of one name": ("export", lambda path: export_twice(path, trace)),
        "export: two members of one name in other letters": (
            "export",
            lambda path: export_twice(path, trace, lambda name: name.replace("sample", "SAMPLE")),
        ),
        "export: inputs of protocol 0": ("export", lambda path: export_inputs(path, protocol_0(trace))),
        "export: inputs behind a byte of nothing": (
            "export",
            lambda path: export_inputs(path, b"N0" + flat_pickle(trace)),
        ),
        "export: a size that is code": ("export", lambda path: export_graph(path, "size", trace)),
        "export: a guard that is code": ("export", lambda path: export_graph(path, "guard", trace)),
        "export: an operator of the system": ("export", lambda path: export_graph(path, "operator", trace)),
        "export: inputs that a configuration calls plain": (
            "export",
            lambda path: export_inputs(
                path,
                flat_pickle(trace),
                b'{"config": {"w": {"path_name": "model.pt", "use_pickle": false, "is_param": true}}}',
            ),
        ),
        "export: a configuration that is a list": ("export", lambda path: export_config(path, b"[]")),
        "export: a configuration that is nested": (
            "export",
            lambda path: export_config(path, deep("[", "]").encode()),
        ),
        "export: a configuration with huge numbers": (
            "export",
            lambda path: export_config(path, b'{"config": {"a": {"path_name": 1, "use_pickle": 0}, "b": 9e999}}'),
        ),
        "export: 900 megabytes of zeros": ("export", lambda path: deflated("m/data/weights/w", zeros(900 << 20), path)),
        "onnx: a graph that asks for ten gigabytes": ("onnx", raw(onnx_claim())),
        "onnx: weights in another file": ("onnx", raw(onnx_external("../../../../etc/passwd"))),
        "npz: Python objects": (
            "npz",
            lambda path: np.savez(path, images=np.array([Bomb(trace)], dtype=object), labels=np.zeros(1, int)),
        ),
        "npz: a shape of 10^12 bytes": ("npz", lambda path: npz_claim(path, (1000, 1000, 1000, 1000))),
        "npz: a shape of 4 GB that passes as plausible": ("npz", lambda path: npz_claim(path, (4, 1000, 1000, 1000))),
        "npz: a member that is no array": ("npz", lambda path: deflated("images.npy", iter([b"text"]), path)),
        "npz: a negative shape": ("npz", lambda path: npz_claim(path, (4, -1, 2))),
        "npz: a shape that overflows": ("npz", lambda path: npz_claim(path, (2**62, 2**62))),
        "npz: 900 megabytes of zeros": ("npz", lambda path: deflated("images.npy", zeros(900 << 20), path)),
        "npz: a header that is code": (
            "npz",
            lambda path: deflated(
                "images.npy", iter([b"\x93NUMPY\x01\x00\x46\x00" + b"__import__('os').getpid()".ljust(70)]), path
            ),
        ),
        "npz: 10 million class names": (
            "npz",
            lambda path: path.write_bytes(
                doors.npz(images=np.zeros((4, 2, 2), np.uint8), labels=np.array([0, 1, 2, 10**7]))
            ),
        ),
        "npz: a label of 2^63": (
            "npz",
            lambda path: path.write_bytes(
                doors.npz(images=np.zeros((4, 2, 2), np.uint8), labels=np.array([0, 1, 2, 2**63], np.uint64))
            ),
        ),
        "npz: dates for labels": (
            "npz",
            lambda path: path.write_bytes(doors.npz(images=np.zeros((4, 2, 2), np.uint8), labels=np.zeros(4, "M8[s]"))),
        ),
        "npz: complex pixels": (
            "npz",
            lambda path: path.write_bytes(doors.npz(images=np.zeros((4, 2, 2), complex), labels=np.zeros(4, int))),
        ),
        "npz: no images": (
            "npz",
            lambda path: path.write_bytes(doors.npz(images=np.zeros((0, 2, 2), np.uint8), labels=np.zeros(0, int))),
        ),
        "npz: class names in 50,000 copies": (
            "npz",
            lambda path: path.write_bytes(
                doors.npz(
                    images=np.zeros((4, 2, 2), np.uint8), labels=np.arange(4), classes=np.arange(60_000).astype(str)
                )
            ),
        ),
        "logits: no numbers": ("logits npz", raw(doors.npz(logits=np.array([["a", "b"]])))),
        "logits: a shape of 10^12 bytes": ("logits npz", lambda path: npz_claim(path, (10**6, 10**6))),
        "logits: ids of 2^63": (
            "logits npz",
            raw(doors.npz(logits=np.zeros((2, 2), np.float32), ids=np.array([0, 2**63], np.uint64))),
        ),
        "logits: ragged lists": ("logits parquet", raw(parquet_of(logits=[[0.0], [0.0, 1.0]]))),
        "logits: text": ("logits parquet", raw(parquet_of(logits=["a", "b"]))),
        "logits: a column logits_x": ("logits parquet", raw(parquet_of(logits_x=[0.0, 1.0]))),
        "logits: numbered columns of text": ("logits parquet", raw(parquet_of(logits_0=["a"], logits_1=["b"]))),
        "parquet: half a gigabyte in kilobytes": ("parquet", raw(parquet_bomb())),
        "parquet: no image column": ("parquet", raw(parquet_of(label=[0, 1]))),
        "parquet: images of text": ("parquet", raw(parquet_of(image=["a", "b"], label=[0, 1]))),
        "parquet: labels of lists": ("parquet", raw(parquet_of(image=[doors.png()] * 2, label=[[0], [0, 1]]))),
        "parquet: labels of structs": ("parquet", raw(parquet_of(image=[doors.png()] * 2, label=[{"a": 1}] * 2))),
        "parquet: metadata that is no JSON": ("parquet", lambda path: metadata(path, b"{")),
        "parquet: metadata that is a list": ("parquet", lambda path: metadata(path, b"[1]")),
        "parquet: metadata nested": ("parquet", lambda path: metadata(path, deep("[", "]").encode())),
        "parquet: names that are numbers": (
            "parquet",
            lambda path: metadata(path, b'{"info": {"features": {"label": {"names": [1, {}]}}}}'),
        ),
        "parquet: features that are a list": ("parquet", lambda path: metadata(path, b'{"info": {"features": []}}')),
        "image: 10^9 pixels": ("image", raw(png_claim(40_000, 25_000))),
        "image: 2^31 pixels wide": ("image", raw(png_claim(2**31 - 1, 2**31 - 1))),
        "image: 63 million pixels of nothing": ("image", raw(png_claim(7_900, 7_900))),
        "image: no pixels": ("image", raw(png_claim(0, 0))),
        "image: a comment of 500 MB": ("image", raw(png_text(500 << 20))),
        "image: a page": ("image", raw(html)),
        "metadata: a field of 200,000 characters": ("metadata", raw(colliding_csv())),
        "metadata: no UTF-8": ("metadata", raw(b"file_name,ink\na/0.png,\xff\n")),
        "metadata: a NUL": ("metadata", raw(b"file_name,ink\na/0.png,\0\n")),
        "metadata: rows of another length": ("metadata", raw("file_name,ink\na/0.png\na/0.png,1,2,3\n")),
        "metadata: an open quote": ("metadata", raw('file_name,ink\na/0.png,"dark\n')),
        "celeba: no UTF-8": ("celeba", raw(b"\xff\xfe")),
        "celeba: a count of 10^5000": ("celeba", raw("9" * 5000 + "\nSmiling\n")),
        "celeba: a count in other digits": ("celeba", raw("²\nSmiling\n")),
        "celeba: the split in no UTF-8": ("celeba split", raw(b"\xff\xfe")),
    }
    for name in ("fleet", "sweep", "settings", "yaml body"):
        result |= {
            f"{name}: a billion laughs": (name, raw(laughs(10))),
            f"{name}: merges that double": (name, raw(merges(26))),
            f"{name}: nested": (name, raw(deep("[", "]", 20_000))),
            f"{name}: huge numbers": (name, raw(f"seed: {'9' * 100_000}\nfleet: 1e999999\nstorage: .nan\n")),
            f"{name}: sexagesimal": (name, raw("seed: " + ":".join(["59"] * 10_000) + "\nfleet: 1:2:3.5\n")),
            f"{name}: python tags": (name, raw("fleet: !!python/object/apply:os.system ['true']\n")),
            f"{name}: an alias to itself": (name, raw("&a [*a]")),
            f"{name}: a key that is a mapping": (name, raw("? {a: 1}\n: b\n? [1]\n: c\n")),
            f"{name}: NUL and lone surrogates": (name, raw(b'fleet: "\\ud800\\0"\nstorage: "\\udfff"\n')),
            f"{name}: a word of 10,000 characters": (name, raw(f"{word}: {word}\nfleet: {word}\nsweep: {word}\n")),
            f"{name}: 60,000 short lines": (name, raw("a:\n" + "- b\n" * 60_000)),
            f"{name}: a long scalar that backtracks": (name, raw("a: " + "1" * 200_000 + "x: ! & * \n")),
        }
    sources = (
        "export:..\\0",
        "npz:\\0",
        f"factory:{'a.' * 5000}b:c",
        "factory:os:system?command=true",
        "onnx:" + word,
        "logits:/dev/zero",
        "npz:/proc/self/mem",
        "imagefolder:/proc/self/fd",
    )
    for source in sources:
        content = doors.FLEET.replace("logits:a.npz", source)
        result[f"fleet: a model at {source[:30]}"] = ("fleet", raw(content))
    for name in (
        "json body",
        "published",
        "bundle",
        "sweep result",
        "trial",
        "marker",
        "ending",
        "submission",
        "process",
    ):
        result |= {
            f"{name}: nested": (name, raw(deep("[", "]"))),
            f"{name}: objects nested": (name, raw(deep('{"a":', "", 50_000))),
            f"{name}: a number of 100,000 digits": (name, raw('{"schema_version": ' + "9" * 100_000 + "}")),
            f"{name}: NaN": (name, raw('{"schema_version": NaN, "fleet": Infinity}')),
            f"{name}: a version of true": (name, raw('{"schema_version": true}')),
            f"{name}: a version of -10^300": (name, raw('{"schema_version": -1' + "0" * 300 + "}")),
            f"{name}: a list": (name, raw("[]")),
            f"{name}: null": (name, raw("null")),
            f"{name}: no UTF-8": (name, raw(b'{"fleet": "\xff\xfe"}')),
            f"{name}: UTF-16": (name, raw('{"schema_version": 1}'.encode("utf-16"))),
            f"{name}: 200,000 keys, one twice": (name, raw(many_keys(200_000))),
            f"{name}: a lone surrogate": (name, raw('{"schema_version": 1, "fleet": "\\ud800"}')),
            f"{name}: an empty file": (name, raw("")),
        }
    for name in ("shard", "curves", "parquet", "logits parquet"):
        result |= {
            f"{name}: a page": (name, raw(html)),
            f"{name}: another table": (name, raw(parquet_of(a=[1, 2], b=["x", "y"]))),
            f"{name}: only the ends": (name, raw(b"PAR1" + b"\xff" * 64 + struct.pack("<I", 64) + b"PAR1")),
        }
    result |= {
        "shard: a version that is no number": ("shard", lambda path: metadata(path, b"x", key="schema_version")),
        "progress: records that are none": ("progress", nan_progress),
        "progress: a header of 5 GB": ("progress", raw(struct.pack("<Q", 5 << 30) + b"{}")),
        "progress: a header that is a list": ("progress", raw(struct.pack("<Q", 2) + b"[]")),
        "progress: nested": ("progress", raw(struct.pack("<Q", 200_000) + deep("[", "]").encode())),
        "traversals: a shape of 10^12 bytes": ("traversals", lambda path: npz_claim(path, (1000, 1000, 1000, 1000))),
        "traversals: an npy": ("traversals", raw(npy_header((10**12,), "|u1"))),
        "cron: every year but none": ("cron", raw("0 0 30 2 *")),
        "cron: a range of 10^18": ("cron", raw("0-999999999999999999 * * * *")),
        "cron: a step of 0": ("cron", raw("*/0 * * * *")),
        "cron: 10,000 commas": ("cron", raw("0 0 * * " + ",".join(["1"] * 90))),
        "cron: other digits": ("cron", raw("² ³ * * *")),
        "cron: a zone that climbs": ("cron", raw("0 0 * * *@../../etc/passwd")),
        "cron: a zone that is a NUL": ("cron", raw(b"0 0 * * *@\0")),
        "cron: a zone of 10,000 characters": ("cron", raw("0 0 * * *@" + word)),
        "cron: a zone that is a folder": ("cron", raw("0 0 * * *@Europe")),
        "uri: a NUL": ("uri", raw(b"npz:\0?a=%00")),
        "uri: 10,000 options": ("uri", raw("npz:a?" + "&".join(f"a{k}={k}" for k in range(10_000)))),
        "uri: 10,000 characters": ("uri", raw(word)),
    }
    return result


def attempt(name: str, attack: Attack, folder: Path) -> dict[str, Any]:
    """Make the file, open it, and say what came of it."""
    from services.errors import ClasswiseError

    door = doors.DOORS[attack[0]]
    folder.mkdir()
    attack[1](folder / door.file)
    before, start = peak(), time.process_time()
    message: dict[str, Any] = {"name": name}
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        door.open(folder)
        message["outcome"] = "value"
    except ClasswiseError as error:
        message |= {"outcome": "told", "kind": type(error).__name__, "text": str(error)}
    except BaseException as error:
        message |= {"outcome": "broken", "kind": type(error).__name__, "text": str(error)[:300]}
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return {**message, "seconds": time.process_time() - start, "bytes": peak() - before}


def peak() -> int:
    """Bytes of the process at most so far, since it was last asked where the kernel can start afresh."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            Path("/proc/self/clear_refs").write_text("5")
            return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def too_long(*_: Any) -> None:
    raise TimeoutError(f"more than {SECONDS} s of CPU")


def main(folder: Path, only: str = "", first: str = "0") -> None:
    """All attacks, or those whose name holds a text, or those from a number on."""
    import shutil

    import torch

    import jobs.cli  # noqa: F401

    torch.set_num_threads(1)
    for door in ("export", "onnx", "npz", "parquet"):  # imports count to no attack
        warm(doors.DOORS[door], folder / f"warm {door}")
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
    signal.signal(signal.SIGPROF, too_long)
    trace = folder / "code ran"
    for index, (name, attack) in enumerate(attacks(trace).items()):
        if only not in name or index < int(first):
            continue
        place = folder / str(index)
        output = attempt(name, attack, place)
        output["ran"] = trace.exists()
        trace.unlink(missing_ok=True)
        shutil.rmtree(place)
        sys.stdout.write(json.dumps(output) + "\n")
        sys.stdout.flush()


def warm(door: doors.Door, folder: Path) -> None:
    folder.mkdir()
    (folder / door.file).write_bytes(door.seed())
    door.open(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:4])
