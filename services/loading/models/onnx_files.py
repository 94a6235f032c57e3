"""What an ONNX graph names: files beside it, and operators. Found in its protocol buffer; onnx may not be installed.

The message is walked by field numbers (onnx.proto3, IR version 11), for the names decide what is hashed and granted:
a search for their usual bytes misses long names and entries that another program wrote in another order. What two
readers may read differently is refused: ONNX Runtime drops bits of a tag beyond 32, and so finds a file that is not
found here.

Operators are a positive list of ONNX's own, as they are of exported graphs. ONNX Runtime has some hundred more
(``com.microsoft`` and others) whose kernels were written for what its own converters make, and any domain may be one of
a library. A graph may define functions; their nodes are judged as all others are.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

Message = dict[int, str]

DEPTH = 100
"""Levels of nested messages, as protocol buffers have them at most."""
KEY, VALUE = 1, 2
OPERATOR, DOMAIN = 4, 7
NAME, OWNER = 1, 10
"""Of a node its operator and domain; of a function its own."""
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
"""Of each message the fields that lead to nodes, and to the entries of a tensor's `external_data`."""

_OPERATORS = """
Abs Acos Acosh Add And ArgMax ArgMin Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast
CastLike Ceil Clip Cos Cosh CumSum Det Div Einsum Equal Erf Exp Floor Gemm Greater GreaterOrEqual IsInf IsNaN Less
LessOrEqual Log MatMul MatMulInteger Max Mean Min Mod Mul Neg Not Or Pow Reciprocal ReduceL1 ReduceL2 ReduceLogSum
ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Round Sign Sin Sinh Sqrt Sub Sum
Tan Tanh Xor

Attention AveragePool BatchNormalization Celu Conv ConvInteger ConvTranspose DepthToSpace DequantizeLinear Dropout
DynamicQuantizeLinear Elu Gelu GlobalAveragePool GlobalLpPool GlobalMaxPool GridSample GroupNormalization HardSigmoid
HardSwish Hardmax InstanceNormalization LRN LSTM LayerNormalization LeakyRelu LogSoftmax LpNormalization LpPool MaxPool
MeanVarianceNormalization Mish PRelu QLinearConv QLinearMatMul QuantizeLinear RMSNormalization Relu Resize Selu Shrink
Sigmoid Softmax Softplus Softsign SpaceToDepth Swish ThresholdedRelu Upsample

AffineGrid CenterCropPad Col2Im Compress Concat Constant ConstantOfShape Expand EyeLike Flatten Gather GatherElements
GatherND Identity NonZero OneHot Pad Range Reshape Scatter ScatterElements ScatterND Shape Size Slice Split Squeeze Tile
TopK Transpose Trilu Unsqueeze Where

If Loop Scan Bernoulli RandomNormal RandomNormalLike RandomUniform RandomUniformLike
"""
OPERATORS = frozenset(_OPERATORS.split())
"""Names of ONNX's own operators: arithmetic, layers, shapes, and those whose subgraphs are judged with the graph. Not
those of texts, sequences, images as files, detection and training."""
OWN = ("", "ai.onnx")
"""Domains of ONNX's own operators."""
BUILT_IN = frozenset({"", "ai", "com", "org"})
"""First parts of domains in which ONNX Runtime has operators, so that a function of a graph might not be what runs."""


@dataclass(frozen=True)
class Named:
    """What a graph names.

    Attributes:
        files: with external weights, sorted: the values of `location` in all tensors.
        operators: off the list, sorted, as ``DOMAIN.NAME``; functions of the graph itself are not.
    """

    files: tuple[str, ...]
    operators: tuple[str, ...]


def named_in(graph: bytes | Path) -> Named:
    """Look through a graph, of which ONNX Runtime should then be given the same bytes.

    Raises:
        ValueError: it is damaged, no protocol buffer, or names an address of memory, as ONNX Runtime notes tensors of
            its own.
    """
    files, nodes, functions = set[str](), set[tuple[str, str]](), set[tuple[str, str]]()
    for kind, message in _messages(_view(graph), "model", DEPTH):
        if kind == "entry":
            entry = {number: bytes(value) for number, value in _fields(message) if number in (KEY, VALUE)}
            files |= {_text(entry[VALUE])} if entry.get(KEY) == b"location" and VALUE in entry else set()
        elif kind == "node":
            nodes |= _titles(message, OPERATOR, DOMAIN)
        elif kind == "function":
            functions |= _titles(message, NAME, OWNER)
    if marked := sorted(name for name in files if "*" in name):
        raise ValueError(f"no file but a mark of the library: {marked[0][:80]}")
    own = {(name, domain) for name, domain in functions if domain.partition(".")[0] not in BUILT_IN}
    strange = (nodes | functions) - own - {(name, domain) for name in OPERATORS for domain in OWN}
    titles = sorted(f"{domain}.{name}" if domain else name for name, domain in strange)
    return Named(tuple(sorted(files)), tuple(titles))


def _view(graph: bytes | Path) -> memoryview:
    if isinstance(graph, bytes):
        return memoryview(graph)
    with graph.open("rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _text(value: memoryview | bytes) -> str:
    return bytes(value).decode(errors="replace")


def _titles(message: memoryview, name: int, domain: int) -> set[tuple[str, str]]:
    """A name with its domain; of fields that are there twice all, for readers differ in which one counts."""
    texts: dict[int, list[str]] = {name: [], domain: []}
    for number, value in _fields(message):
        if number in texts:
            texts[number].append(_text(value))
    return {(each, owner) for each in texts[name] or [""] for owner in texts[domain] or [""]}


def _messages(data: memoryview, kind: str, depth: int) -> Iterator[tuple[str, memoryview]]:
    yield kind, data
    for number, value in _fields(data) if kind in FIELDS else ():
        if (inner := FIELDS[kind].get(number)) and depth:
            yield from _messages(value, inner, depth - 1)


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
