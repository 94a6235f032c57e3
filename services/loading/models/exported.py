"""What an exported graph would run besides tensor operators: looked for before `torch.export.load` sees the file.

That function was made for one's own files. It unpickles weights, constants and sample inputs; it evaluates the text of
symbolic sizes and guards; it calls whatever ``torch.X.Y`` a node names, and torch holds `os`. So every member is read
once and judged, and torch is given a copy of what was judged: two readers of one archive need not see the same.
"""

from __future__ import annotations

import io
import os
import re
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from services.storage import plainjson

OPERATOR = re.compile(
    r"torch\.ops(\.\w+)+|math\.\w+|torch\.(_?sym_\w+)|"
    r"_operator\.(add|sub|mul|truediv|floordiv|mod|pow|neg|pos|abs|eq|ne|lt|le|gt|ge|and_|or_|not_|xor|getitem)"
)
"""Targets of nodes: registered operators, and arithmetic on sizes."""

SYMBOL = re.compile(r"Symbol\('[A-Za-z_]\w*'(, \w+=(True|False))*\)|\b[LG]\['\w+'\]|(?<=[\])\w])\.(size|stride)\(\)")
ARITHMETIC = re.compile(r"[\w\s+\-*/%(),.<>=!&|~\[\]]*")
WORD = re.compile(r"\.?\s*[A-Za-z_]\w*")
_NAMES = """
Max Min Mod PythonMod FloorDiv CeilDiv CleanDiv IntTrueDiv FloatTrueDiv ModularIndexing Where
PowByNatural FloatPow Pow LShift RShift TruncToInt TruncToFloat RoundToInt RoundDecimal FloorToInt
CeilToInt ToFloat Identity Add Mul Integer Float Eq Ne Lt Le Gt Ge And Or Not True False oo int_oo
and or not max min floor ceiling
"""
WORDS = frozenset(_NAMES.split())
PLAIN = re.compile(rb"[\w.\-]{0,64}\s?")
RAW = ("weight_", "tensor_")
"""Beginnings of the names of members that torch reads as bytes where their configuration says so."""


def members(path: Path) -> dict[str, bytes]:
    """The members of an archive, each once.

    Raises:
        zipfile.BadZipFile: two have one name, whatever the case of its letters.
    """
    with zipfile.ZipFile(path) as archive:
        entries = [entry for entry in archive.infolist() if not entry.is_dir()]
        if len({entry.filename.casefold() for entry in entries}) < len(entries):
            raise zipfile.BadZipFile("two members of one name")
        return {entry.filename: archive.read(entry) for entry in entries}


def code_in(found: Mapping[str, bytes]) -> list[str]:
    """What in the members would run code when the graph is loaded or called; empty for a graph of tensors only."""
    raw = _raw(found)
    pickles = [name for name, data in found.items() if name not in raw and not _harmless(name, data)]
    return [*pickles, *(text for name, data in found.items() if name.endswith(".json") for text in _texts(data))]


def archive_of(found: Mapping[str, bytes]) -> io.BytesIO:
    """The members as an archive."""
    page = io.BytesIO()
    with zipfile.ZipFile(page, "w") as archive:
        for name, data in found.items():
            archive.writestr(name, data)
    page.seek(0)
    return page


@contextmanager
def tensors_only() -> Iterator[None]:
    """For the block `torch.load` unpickles tensors alone, whatever its caller says: torch's own switch for that."""
    switch = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
    before = os.environ.get(switch)
    os.environ[switch] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[switch]
        else:
            os.environ[switch] = before


def _raw(found: Mapping[str, bytes]) -> set[str]:
    """Members that their configuration declares to be the bytes of a tensor, and no other to be a pickle."""
    declared: dict[bool, set[str]] = {True: set(), False: set()}
    for name, data in found.items():
        if not name.endswith("_config.json"):
            continue
        folder = name.rpartition("/")[0]
        for entry in plainjson.parsed(data)["config"].values():
            pickled = bool(entry.get("use_pickle", True)) or not str(entry["path_name"]).startswith(RAW)
            declared[pickled].add(f"{folder}/{entry['path_name']}")
    return declared[False] - declared[True]


def _harmless(name: str, data: bytes) -> bool:
    """JSON, a word, or what loads as tensors and plain containers; a compiled library is none of them."""
    import torch

    if PLAIN.fullmatch(data):
        return True
    if name.endswith(".json"):
        plainjson.parsed(data)  # no text is JSON and a pickle both
        return True
    try:
        torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except Exception:
        return False
    return True


def _texts(data: bytes) -> Iterator[str]:
    """Targets and expressions of a graph that are more than tensor operators and arithmetic."""
    todo = [plainjson.parsed(data)]
    while todo:
        value = todo.pop()
        if isinstance(value, list):
            todo += value
        elif isinstance(value, dict):
            todo += value.values()
            yield from _texts_of(value)
        elif isinstance(value, str) and "__enum__" in value:  # a module to import
            yield "an enumeration"


def _texts_of(value: dict[str, Any]) -> Iterator[str]:
    target, size, guards = value.get("target"), value.get("expr_str"), value.get("guards_code") or []
    if "inputs" in value and isinstance(target, str) and not OPERATOR.fullmatch(target):
        yield target
    for text in [*([size] if size is not None else []), *(guards if isinstance(guards, list) else [guards])]:
        if not isinstance(text, str) or not arithmetic(text):
            yield str(text)[:100]


def arithmetic(text: str) -> bool:
    """Whether an expression is numbers, symbols and the functions of sizes."""
    rest = SYMBOL.sub("0", text)
    words = [word.strip() for word in WORD.findall(rest)]
    return bool(ARITHMETIC.fullmatch(rest)) and all(word in WORDS or re.fullmatch(r"[a-z]+\d+", word) for word in words)
