"""Files beside an ONNX graph that it reads weights from, found in its protocol buffer; the onnx package may be absent.

The message is walked by field numbers (onnx.proto3, IR version 11), for the names decide what is hashed and granted:
a search for their usual bytes misses long names and entries that another program wrote in another order.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path

Message = dict[int, str]

DEPTH = 100
"""Levels of nested messages, as protocol buffers have them at most."""
KEY, VALUE = 1, 2
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
    """Names of files with external weights, sorted: the values of `location` in all tensors of the graph."""
    with path.open("rb") as file:
        graph = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    return sorted({name.decode(errors="replace") for name in _locations(graph, "model", DEPTH)})


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
    """Numbers and contents of fields with a length; what follows damage is left out, for the graph does not open."""
    place = 0
    try:
        while place < len(data):
            tag, place = _varint(data, place)
            if tag & 7 == 2:
                size, place = _varint(data, place)
                yield tag >> 3, data[place : place + size]
                place += size
            elif tag & 7 == 0:
                _, place = _varint(data, place)
            elif tag & 7 in (1, 5):
                place += 8 if tag & 7 == 1 else 4
            elif tag & 7 not in (3, 4):  # marks of a group, which ONNX has none of: what is in it counts as well
                return
    except (IndexError, OverflowError):
        return


def _varint(data: memoryview, place: int) -> tuple[int, int]:
    number, shift = 0, 0
    while shift < 70:
        byte = data[place]
        number, shift, place = number | (byte & 0x7F) << shift, shift + 7, place + 1
        if byte < 0x80:
            return number, place
    raise OverflowError("a number of more than 64 bits")
