"""Files beside an ONNX graph that it reads weights from, found in its protocol buffer; the onnx package may be absent.

The message is walked by field numbers (onnx.proto3, IR version 11), for the names decide what is hashed and granted:
a search for their usual bytes misses long names and entries that another program wrote in another order. What two
readers may read differently is refused: ONNX Runtime drops bits of a tag beyond 32, and so finds a file that is not
found here.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path

Message = dict[int, str]

DEPTH = 100
"""Levels of nested messages, as protocol buffers have them at most."""
KEY, VALUE = 1, 2
FIXED = {1: 8, 5: 4}
"""Bytes of fields without a length."""
FIELDS: dict[str, Message] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {13: "entry"},
}
"""Of each message the fields that lead to the entries of a tensor's `external_data`."""


def external_files(path: Path) -> list[str]:
    """Names of files with external weights, sorted: the values of `location` in all tensors of the graph.

    Raises:
        ValueError: the file is damaged, no protocol buffer, or names an address of memory, as ONNX Runtime notes
            tensors of its own.
    """
    with path.open("rb") as file:
        graph = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    names = sorted({name.decode(errors="replace") for name in _locations(graph, "model", DEPTH)})
    if marked := [name for name in names if "*" in name]:
        raise ValueError(f"no file but a mark of the library: {marked[0][:80]}")
    return names


def _locations(data: memoryview, kind: str, depth: int) -> Iterator[bytes]:
    if kind == "entry":
        entry = {number: bytes(value) for number, value in _fields(data) if number in (KEY, VALUE)}
        if entry.get(KEY) == b"location" and VALUE in entry:
            yield entry[VALUE]
        return
    for number, value in _fields(data):
        if (inner := FIELDS[kind].get(number)) and depth:
            yield from _locations(value, inner, depth - 1)


def _fields(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Numbers and contents of fields with a length."""
    place = 0
    while place < len(data):
        tag, place = _varint(data, place, 32)
        kind, number = tag & 7, tag >> 3
        if kind == 0:
            _, place = _varint(data, place, 64)
            continue
        if (kind not in FIXED and kind != 2) or not number:  # marks of a group are not among those of ONNX
            raise ValueError("a field of another kind than a graph has")
        size, place = _varint(data, place, 31) if kind == 2 else (FIXED[kind], place)
        if place + size > len(data):
            raise ValueError("a field that is longer than what holds it")
        if kind == 2:
            yield number, data[place : place + size]
        place += size


def _varint(data: memoryview, place: int, bits: int) -> tuple[int, int]:
    """A number of so many bits, and where it ends."""
    number = 0
    for shift in range(0, bits, 7):
        if place >= len(data):
            raise ValueError("a number that is cut off")
        byte = data[place]
        number, place = number | (byte & 0x7F) << shift, place + 1
        if byte < 0x80 and number < 1 << bits:
            return number, place
    raise ValueError(f"a number of more than {bits} bits")
