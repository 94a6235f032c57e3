"""What an exported graph would run besides tensor operators: judged before `torch.export.load` sees the file.

That function was made for one's own files. It unpickles weights, constants, sample inputs and objects; loads compiled
libraries; evaluates the text of symbolic sizes and guards; imports modules that a tree of inputs names; calls whatever
``torch.X.Y`` a node names; and writes every name into Python source that it then runs. So everything here is a positive
list: the members, the operators (`services.loading.models.operators`), the names, the trees, the expressions. Every
member is read once and judged, and torch is given a copy of what was judged: two readers of one archive need not see
the same.
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

from services.loading.models.operators import is_tensor_operator
from services.storage import plainjson

MEMBER = re.compile(
    r"([\w.\-]+/)?("
    r"models/model\.json|data/sample_inputs/model\.pt|data/(weights|constants)/(weight_\d+|tensor_\d+|model[\w.]*)|"
    r"archive_format|archive_version|byteorder|\.format_version|\.data/(version|serialization_id)|"
    r"extra/[\w./\-]+|version|serialized_(exported_program\.json|state_dict\.pt|constants\.pt|example_inputs\.pt))"
)
"""One program and its tensors, as torch 2.8 and later write them or, on the last line, earlier ones. No compiled
library (``data/aotinductor``) and no object (TorchScript unpickles ``custom_obj_0``, pickle ``opaque_obj_0``)."""
RAW = ("weight_", "tensor_")
"""Beginnings of the names of members that torch reads as bytes where their configuration says so."""
PLAIN = re.compile(rb"[\w.\-]{0,64}\s?")

IDENTIFIER = re.compile(r"\w*")
DOTTED = re.compile(r"[\w.\-]*")
DOTTED_KEYS = {"parameter_name", "buffer_name", "tensor_constant_name", "fqn", "path_name"}
QUOTED = {"as_string", "as_strings", "torch_version"}
"""Values that become a Python string as they are, and nothing else."""
OBJECTS = {"as_operator", "as_custom_obj", "custom_obj"}
"""Arguments that are no tensor, number, word or graph."""
TREES = {None, "builtins.tuple", "builtins.list", "builtins.dict", "collections.OrderedDict"}
"""Containers of inputs and outputs; others import a module that they name, or are classes."""

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


def code_in(files: Mapping[str, bytes]) -> list[str]:
    """What in the members would run code when the graph is loaded or called; empty for a graph of tensors only."""
    if strange := [name for name in files if not MEMBER.fullmatch(name)]:
        return strange
    raw = _raw(files)
    pickles = [name for name, data in files.items() if name not in raw and not _harmless(name, data)]
    texts = (text for name, data in files.items() if name.endswith(".json") for text in _texts(plainjson.parsed(data)))
    return [*pickles, *(text[:100] for text in texts)]


def archive_of(files: Mapping[str, bytes]) -> io.BytesIO:
    """The members as an archive."""
    page = io.BytesIO()
    with zipfile.ZipFile(page, "w") as archive:
        for name, data in files.items():
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


def _raw(files: Mapping[str, bytes]) -> set[str]:
    """Members that their configuration declares to be the bytes of a tensor, and no other to be a pickle."""
    declared: dict[bool, set[str]] = {True: set(), False: set()}
    for name, data in files.items():
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


def _texts(root: Any) -> Iterator[str]:
    """Targets, names, trees and expressions below a value that are more than tensor operators and arithmetic."""
    todo = [("", root)]
    while todo:
        key, value = todo.pop()
        if key in ("expr_str", "guards_code"):
            texts = value if isinstance(value, list) else [value] if value is not None else []
            yield from (str(text) for text in texts if not isinstance(text, str) or not arithmetic(text))
        elif isinstance(value, list):
            todo += [(key, inner) for inner in value]
        elif isinstance(value, dict):
            yield from (str(name) for name in value if name in OBJECTS or not _is_key(key, name))
            todo += ((name, inner) for name, inner in value.items() if not _is_note(value, name))
        elif isinstance(value, str) and not _is_harmless_text(key, value):
            yield value


def _is_note(value: dict[str, Any], name: str) -> bool:
    """Whether it is what the exporter noted about a node, such as its place in the source: texts that nothing runs."""
    notes = value[name] if name == "metadata" and isinstance(value.get("target"), str) else None
    return isinstance(notes, dict) and all(isinstance(note, str) for note in notes.values())


def _is_key(key: str, name: str) -> bool:
    return arithmetic(name) if key == "range_constraints" else bool(DOTTED.fullmatch(name))


def _is_harmless_text(key: str, text: str) -> bool:
    if key == "target":
        return is_tensor_operator(text)
    if key in ("in_spec", "out_spec"):
        return _is_tree(text)
    return key in QUOTED or bool((DOTTED if key in DOTTED_KEYS else IDENTIFIER).fullmatch(text))


def _is_tree(text: str) -> bool:
    """Whether the text of a tree of inputs or outputs has containers of Python alone, with names for keys."""
    version, root = plainjson.parsed(text)
    todo = [root]
    while todo:
        node = todo.pop()
        if node["type"] not in TREES:
            return False
        keys = plainjson.parsed(node["context"]) if node["context"] is not None else None
        if not isinstance(keys, list | None):
            return False
        if not all(isinstance(each, int | str) and IDENTIFIER.fullmatch(str(each)) for each in keys or ()):
            return False
        todo += node["children_spec"]
    return bool(version == 1)


def arithmetic(text: str) -> bool:
    """Whether an expression is numbers, symbols and the functions of sizes."""
    rest = SYMBOL.sub("0", text)
    words = [word.strip() for word in WORD.findall(rest)]
    return bool(ARITHMETIC.fullmatch(rest)) and all(word in WORDS or re.fullmatch(r"[a-z]+\d+", word) for word in words)
