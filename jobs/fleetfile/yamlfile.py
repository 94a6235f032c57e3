"""Reads the YAML files of users: plain data with the line of every value, and every mistake as a `Problem`.

Files over 1 MiB, documents of more than 50,000 values and keys given twice are refused: the first two are
attacks or accidents, and YAML would take the last of two equal keys in silence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from services import limits
from services.errors import ClasswiseError, ConfigError, Problem
from services.registry import Registry, did_you_mean, nearest
from services.storage import plainyaml

MAX_BYTES = 2**20
MAX_NODES = plainyaml.NODES
MOST_PROBLEMS = 200
"""That are reported of one tree."""
Path_ = tuple[str | int, ...]
M = TypeVar("M", bound=BaseModel)
_QUOTED = re.compile(r"'([^']*)'")
_SAID = re.compile("[,;] found ")
"""Before what a validator found: then that is shown, and not the whole input again."""


@dataclass(frozen=True)
class Kind:
    """What kind of file is read.

    Attributes:
        name: in messages: "fleet file".
        keys: what its mapping holds: "fleet, models and samples".
        command: what takes it, for users who gave it to another command.
        example: where one stands.
    """

    name: str
    keys: str
    command: str = ""
    example: str = "deploy/examples/"


FLEET = Kind("fleet file", "fleet, models and samples", "classwise audit")
SWEEP = Kind("sweep file", "sweep, methods, architectures and datasets", "classwise train")
_BY_KEY = {"fleet": FLEET, "sweep": SWEEP}


@dataclass(frozen=True)
class Locator:
    """Says where a value stands: file, line and field path."""

    source: str
    kind: Kind
    lines: Mapping[Path_, int] = field(default_factory=dict)

    def __call__(self, path: Path_) -> str:
        text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")
        known: Path_ = path
        while known and known not in self.lines:
            known = known[:-1]
        line = self.lines.get(known)
        return f"{self.source}{f':{line}' if line else ''} {text}".rstrip()

    def problem(self, detail: ErrorDetails, tree: type[BaseModel], above: Path_ = ()) -> Problem:
        """One complaint of pydantic about a `tree` that stands at `above`, in the file's terms."""
        path: Path_ = (*above, *detail["loc"])
        kind, context = detail["type"], detail.get("ctx", {})
        actual = str(context["found"]) if "found" in context else _shown(detail.get("input"))  # of what holds secrets
        if kind == "extra_forbidden":
            fields = sorted(_siblings(detail["loc"], tree))
            remedy = did_you_mean(str(path[-1]), fields) if fields else ""
            return Problem(self(path), "no such field", repr(path[-1]), remedy)
        if kind == "missing":
            return Problem(self(path), "this field", "nothing", "add it")
        if kind == "value_error":
            text = str(context.get("error", detail["msg"])).removeprefix("expected ")
            expected, *said = _SAID.split(text, maxsplit=1)
            shown, _, remedy = said[0].partition("; ") if said else (actual, "", "")
            return Problem(self(path), expected, _clipped(shown), remedy)
        expected = _PLAIN.get(kind) or detail["msg"].removeprefix("Input should be ").strip()
        if kind == "literal_error" and isinstance(value := detail.get("input"), str):
            return Problem(self(path), expected, repr(value)[:120], nearest(value, _QUOTED.findall(expected)))
        return Problem(self(path), expected.format(**context), actual)


def read_yaml(path: str | Path, kind: Kind) -> tuple[Any, Locator]:
    """The file as plain data, and where each value stands.

    Raises:
        ConfigError: it is missing, too large, no UTF-8, no YAML, or gives a key twice.
    """
    return parse_yaml(_read(Path(path), kind), Locator(str(path), kind))


def require_kind(data: Any, where: Locator) -> None:
    """Report a file of another kind as such, and not by each of its fields.

    Raises:
        ConfigError: a sweep file where a fleet file is read, or the other way round.
    """
    if not isinstance(data, dict):
        return
    kinds = [kind for key, kind in _BY_KEY.items() if key in data]
    if kinds and where.kind in _BY_KEY.values() and where.kind not in kinds:
        remedy = f"run {kinds[0].command} {where.source}"
        raise ConfigError(Problem(where.source, f"a {where.kind.name}", f"a {kinds[0].name}", remedy))


def require_bounded(data: Any, where: Locator) -> None:
    """Refuse plain data that are too deep, too large or hold a number that is, before anything reads them.

    Raises:
        ConfigError: they exceed one of `services.limits`.
    """
    if problems := [Problem(where(path), expected, actual) for path, expected, actual in limits.excesses(data)]:
        raise ConfigError(problems)


def has_key(path: str | Path, key: str) -> bool:
    """Whether the file is a mapping with that key; its reader reports what is wrong with it."""
    try:
        data, _ = read_yaml(path, Kind("file", "fleet or sweep"))
    except ConfigError:
        return False
    return isinstance(data, dict) and key in data


def validated(data: Any, tree: type[M], where: Locator, path: Path_ = ()) -> tuple[M | None, list[Problem]]:
    """The typed tree of what stands at `path`, or what keeps it from being one."""
    try:
        return tree.model_validate(data), []
    except ValidationError as error:
        details = _causes(error.errors(include_url=False)[:MOST_PROBLEMS])
        return None, [where.problem(detail, tree, path) for detail in details]


def registered(
    item: Any, registry: Registry[type[M]], path: Path_, where: Locator, *, what: str
) -> tuple[M | None, list[Problem]]:
    """An entry that is a registered class's name, or a mapping with name and parameters."""
    fields = {"name": item} if isinstance(item, str) else item
    if not isinstance(fields, dict) or not isinstance(fields.get("name"), str):
        return None, [Problem(where(path), f"a {what}'s name, or a mapping with name", repr(item)[:200])]
    try:
        return validated(fields, registry.get(fields["name"], where=where(path)), where, path)
    except ClasswiseError as error:
        return None, list(error.problems)


def _read(path: Path, kind: Kind) -> str:
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise ConfigError(Problem(str(path), f"a {kind.name} of at most {MAX_BYTES} bytes", f"{size} bytes"))
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(Problem(str(path), f"a {kind.name}", "no such file", f"see {kind.example}")) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(Problem(str(path), "a readable UTF-8 file", str(error))) from None


def parse_yaml(text: str, where: Locator) -> tuple[Any, Locator]:
    """YAML as plain data, and where each value stands.

    Raises:
        ConfigError: it is empty, no YAML, gives a key twice, is nested too deep, or expands to too much.
    """
    source = where.source
    try:
        loader = plainyaml.Loader(text)
        root = loader.get_single_node()
        if root is None:
            raise ConfigError(Problem(source, f"a mapping with {where.kind.keys}", "an empty file"))
        lines: dict[Path_, int] = {}
        locator = Locator(source, where.kind, lines)
        problems: list[Problem] = []
        _walk(root, (), lines, problems, locator)
        if problems:
            raise ConfigError(problems[:MOST_PROBLEMS])
        return loader.construct_document(root), locator
    except plainyaml.TooManyError:
        raise ConfigError(Problem(source, f"at most {MAX_NODES:,} values", "a document of more")) from None
    except yaml.YAMLError as error:
        raise ConfigError(Problem(source, "valid YAML", " ".join(str(error).split()))) from None
    except ValueError as error:  # a date such as 2001-99-99, or a number of thousands of digits
        remedy = "put the value in quotes if it is meant as text"
        raise ConfigError(Problem(source, "values that YAML can read", str(error), remedy)) from None
    except RecursionError:
        raise ConfigError(Problem(source, "YAML nested a few levels deep", "hundreds of levels")) from None


def _walk(node: Any, path: Path_, lines: dict[Path_, int], problems: list[Problem], where: Locator) -> None:
    if len(lines) > MAX_NODES:
        raise ConfigError(Problem(where.source, f"at most {MAX_NODES:,} values", "a document that expands to more"))
    lines[path] = node.start_mark.line + 1
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _walk(item, (*path, index), lines, problems, where)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            inner = (*path, str(key.value))
            if inner in lines:
                place = Locator(where.source, where.kind, {inner: key.start_mark.line + 1})(inner)
                problems.append(Problem(place, "each key once", f"'{key.value}' again (first on line {lines[inner]})"))
            _walk(value, inner, lines, problems, where)


def _causes(details: list[ErrorDetails]) -> list[ErrorDetails]:
    """Without the complaint about a list that is too short only because its items are at fault."""
    return [
        detail
        for detail in details
        if detail["type"] != "too_short" or not any(_inside(other["loc"], detail["loc"]) for other in details)
    ]


def _inside(path: Path_, outer: Path_) -> bool:
    return len(path) > len(outer) and path[: len(outer)] == outer


_PLAIN = {
    "tuple_type": "a list",
    "model_attributes_type": "a mapping of fields to values",
    "union_tag_invalid": "one of {expected_tags}",
    "union_tag_not_found": "a mapping with {discriminator}",
    "model_type": "a mapping of fields to values",
    "invalid_key": "a field's name as text",
    "too_short": "at least {min_length} in the list",
    "too_long": "at most {max_length} in the list",
    "string_too_short": "at least {min_length} characters",
    "string_too_long": "at most {max_length} characters",
    "string_pattern_mismatch": "text of the form {pattern}",
    "finite_number": "a finite number",
}
"""What pydantic says in Python's terms, in the file's."""


def _siblings(path: Path_, tree: Any) -> list[str]:
    """Field names allowed beside the unknown one at `path`."""
    for part in path[:-1]:
        if not isinstance(part, int) and tree is not None:
            tree = _part_model(tree.model_fields[part].annotation) if part in tree.model_fields else None
    if tree is None:
        return []
    refused = getattr(tree, "REFUSED", ())
    return [field.alias or name for name, field in tree.model_fields.items() if name not in refused]


def _part_model(annotation: Any) -> Any:
    if hasattr(annotation, "model_fields"):
        return annotation
    for inner in getattr(annotation, "__args__", ()):
        part = _part_model(inner)
        if part is not None:
            return part
    return None


def _shown(value: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = repr(value)
    return _clipped(text)


def _clipped(text: str) -> str:
    return text if len(text) <= 120 else f"{text[:117]}..."
