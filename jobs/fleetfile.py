"""Reads a fleet file: YAML to `FleetConfig`, with every mistake at once, each with its line.

YAML is read as plain data. Files over 4 MiB, documents that expand to more than 200,000 nodes and keys given twice are
refused: the first two are attacks or accidents, and YAML would take the last of two equal keys in silence.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from jobs.config import FleetConfig, GateConfig
from services.errors import ClasswiseError, ConfigError, Problem
from services.measures.base import Measure
from services.measures.great import Great
from services.measures.minimal import Minimal
from services.measures.registry import MEASURES
from services.records import Series
from services.registry import did_you_mean

MAX_BYTES = 4 * 2**20
MAX_NODES = 200_000
Path_ = tuple[str | int, ...]


@dataclass(frozen=True)
class Fleet:
    """A validated fleet file: the tree, and its measures as objects."""

    config: FleetConfig
    measures: tuple[Measure, ...]

    def series(self) -> dict[str, Series]:
        """All series of the audit by key."""
        return {series.key: series for measure in self.measures for series in measure.series()}


def load_fleet(path: str | Path) -> Fleet:
    """Read and validate a fleet file.

    Raises:
        ConfigError: with all faults of the file, each with line, field path, value and what is allowed.
    """
    text = _read(Path(path))
    data, lines = _parse(text, str(path))
    return validate_fleet(data, source=str(path), lines=lines)


def validate_fleet(data: Any, *, source: str = "fleet", lines: dict[Path_, int] | None = None) -> Fleet:
    """Validate a fleet given as plain data (from YAML, JSON or Python).

    Raises:
        ConfigError: with all faults.
    """
    where = _Locator(source, lines or {})
    if not isinstance(data, dict):
        raise ConfigError(Problem(source, "a mapping with fleet, models and samples", type(data).__name__))
    problems: list[Problem] = []
    config = None
    try:
        config = FleetConfig.model_validate(data)
    except ValidationError as error:
        problems += [_problem(detail, where) for detail in _causes(error.errors())]
    raw = data.get("measures", ("clean", "great"))
    measures, faults = _measures(raw if isinstance(raw, list | tuple) else (), where)
    problems += faults
    if config is not None and not problems:
        problems += _gate_problems(config, measures, where)
    if problems or config is None:
        raise ConfigError(problems)
    return Fleet(config, measures)


def overridden(fleet: Fleet, *, storage: str | None = None, runner: str | None = None, track: bool = True) -> Fleet:
    """The fleet with command line options put over the file's values.

    Raises:
        ConfigError: an option's value is not allowed.
    """
    data = fleet.config.model_dump()
    if storage is not None:
        data["storage"] = storage
    if runner is not None:
        data["resources"]["runner"] = runner
    if not track:
        data["tracking"]["enabled"] = False
    return Fleet(validate_fleet(data, source="command line").config, fleet.measures)


def json_schema() -> dict[str, Any]:
    """JSON Schema of the fleet file, for editors: the tree, and each measure with its parameters."""
    schema = FleetConfig.model_json_schema()
    options: list[dict[str, Any]] = [{"type": "string", "enum": MEASURES.names()}]
    for name in MEASURES.names():
        part = MEASURES.get(name).model_json_schema(ref_template="#/$defs/{model}")
        schema.setdefault("$defs", {}).update(part.pop("$defs", {}))
        part.setdefault("properties", {})["name"] = {"const": name}
        part["required"] = sorted({"name", *part.get("required", [])})
        options.append(part)
    schema["properties"]["measures"]["items"] = {"anyOf": options}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "classwise fleet file"}


@dataclass(frozen=True)
class _Locator:
    source: str
    lines: dict[Path_, int]

    def __call__(self, path: Path_) -> str:
        text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")
        known: Path_ = path
        while known and known not in self.lines:
            known = known[:-1]
        line = self.lines.get(known)
        return f"{self.source}{f':{line}' if line else ''} {text}".rstrip()


def _read(path: Path) -> str:
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise ConfigError(Problem(str(path), f"a fleet file of at most {MAX_BYTES} bytes", f"{size} bytes"))
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(Problem(str(path), "a fleet file", "no such file", "see deploy/examples/")) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(Problem(str(path), "a readable UTF-8 file", str(error))) from None


def _parse(text: str, source: str) -> tuple[Any, dict[Path_, int]]:
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        if root is None:
            raise ConfigError(Problem(source, "a mapping with fleet, models and samples", "an empty file"))
        lines: dict[Path_, int] = {}
        problems: list[Problem] = []
        _walk(root, (), lines, problems, source)
        if problems:
            raise ConfigError(problems)
        return loader.construct_document(root), lines
    except yaml.YAMLError as error:
        raise ConfigError(Problem(source, "valid YAML", " ".join(str(error).split()))) from None
    except ValueError as error:  # a date such as 2001-99-99, or a number of thousands of digits
        remedy = "put the value in quotes if it is meant as text"
        raise ConfigError(Problem(source, "values that YAML can read", str(error), remedy)) from None
    except RecursionError:
        raise ConfigError(Problem(source, "YAML nested a few levels deep", "hundreds of levels")) from None


def _walk(node: Any, path: Path_, lines: dict[Path_, int], problems: list[Problem], source: str) -> None:
    if len(lines) > MAX_NODES:
        raise ConfigError(Problem(source, f"at most {MAX_NODES} values", "a document that expands to more"))
    lines[path] = node.start_mark.line + 1
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _walk(item, (*path, index), lines, problems, source)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            inner = (*path, str(key.value))
            if inner in lines:
                where = _Locator(source, {inner: key.start_mark.line + 1})(inner)
                problems.append(Problem(where, "each key once", f"'{key.value}' again (first on line {lines[inner]})"))
            _walk(value, inner, lines, problems, source)


def _measures(raw: list[Any] | tuple[Any, ...], where: _Locator) -> tuple[tuple[Measure, ...], list[Problem]]:
    measures: list[Measure] = []
    problems: list[Problem] = []
    seen: dict[str, int] = {}
    for index, item in enumerate(raw):
        fields = {"name": item} if isinstance(item, str) else item
        place = where(("measures", index))
        if not isinstance(fields, dict) or not isinstance(fields.get("name"), str):
            problems.append(Problem(place, "a measure's name, or a mapping with name", repr(item)[:200]))
            continue
        try:
            measure = MEASURES.get(fields["name"], where=place).model_validate(fields)
            keys = [series.key for series in measure.series()]
        except ValidationError as error:
            problems += [_problem({**d, "loc": ("measures", index, *d["loc"])}, where) for d in error.errors()]
            continue
        except ClasswiseError as error:
            problems += error.problems
            continue
        twice = [key for key in keys if key in seen]
        if twice:
            problems.append(
                Problem(place, "each series once", f"{twice[0]} again (first in measures[{seen[twice[0]]}])")
            )
        seen.update(dict.fromkeys(keys, index))
        measures.append(measure)
    return tuple(measures), problems


def _gate_problems(config: FleetConfig, measures: tuple[Measure, ...], where: _Locator) -> list[Problem]:
    bounds = {series.key: series.bound for measure in measures for series in measure.series()}
    keys, groupings = list(bounds), ["class", *config.groups]
    problems = []
    for index, gate in enumerate(config.gates):
        if gate.measure not in keys:
            place = where(("gates", index, "measure"))
            problems.append(
                Problem(place, "a series of this audit", repr(gate.measure), did_you_mean(gate.measure, keys))
            )
        if gate.grouping not in groupings:
            place = where(("gates", index, "grouping"))
            remedy = did_you_mean(gate.grouping, groupings)
            problems.append(Problem(place, "class or one of groups", repr(gate.grouping), remedy))
        if gate.metric == "falsified" and gate.measure in keys:
            problems += _falsified_problems(index, gate.measure, measures, where)
        problems += _threshold_problems(gate, bounds.get(gate.measure), where, index)
    return problems


def _falsified_problems(index: int, measure: str, measures: tuple[Measure, ...], where: _Locator) -> Iterator[Problem]:
    """What keeps a gate on the falsified share from being judged: no claim, or nothing to hold it against."""
    claims = [series.key for one in measures if isinstance(one, Great) for series in one.series()]
    if measure not in claims:
        listed = " or ".join(claims) or "which the fleet does not measure"
        remedy = "only a GREAT score makes a claim that an attack can refute"
        place = where(("gates", index, "measure"))
        yield Problem(place, f"a GREAT score ({listed}) for metric falsified", repr(measure), remedy)
    if not any(isinstance(one, Minimal) for one in measures):
        remedy = "add minimal to measures: claims are held against the distances that it finds"
        place = where(("gates", index, "metric"))
        yield Problem(place, "the measure minimal in the fleet for metric falsified", "none", remedy)


def _threshold_problems(gate: GateConfig, bound: float | None, where: _Locator, index: int) -> list[Problem]:
    """A threshold that no model can reach, or none can miss, was meant otherwise: 95 for 0.95."""
    tops = {"aggregate": bound, "wcr": bound, "rdi": bound, "nrgc": 1.0}
    top = tops.get(gate.metric)
    given = {"at_least": gate.at_least, "at_most": gate.at_most}
    return [
        Problem(where(("gates", index, name)), f"a threshold in [0, {top:g}], {gate.metric}'s range", f"{value:g}")
        for name, value in given.items()
        if value is not None and top is not None and not 0 <= value <= top
    ]


def _causes(details: list[ErrorDetails]) -> list[ErrorDetails]:
    """Without the complaint about a list that is too short only because its items are at fault."""
    return [
        detail
        for detail in details
        if detail["type"] != "too_short" or not any(_inside(other["loc"], detail["loc"]) for other in details)
    ]


def _inside(path: Path_, outer: Path_) -> bool:
    return len(path) > len(outer) and path[: len(outer)] == outer


def _problem(detail: ErrorDetails, where: _Locator) -> Problem:
    path: Path_ = tuple(detail["loc"])
    kind, context = detail["type"], detail.get("ctx", {})
    found = _shown(detail.get("input"))
    if kind == "extra_forbidden":
        fields = sorted(_siblings(path))
        return Problem(
            where(path), "no such field", repr(path[-1]), did_you_mean(str(path[-1]), fields) if fields else ""
        )
    if kind == "missing":
        return Problem(where(path), "this field", "nothing", "add it")
    if kind == "value_error":
        return Problem(where(path), str(context.get("error", detail["msg"])).removeprefix("expected "), found)
    expected = _PLAIN.get(kind) or detail["msg"].removeprefix("Input should be ").strip()
    return Problem(where(path), expected.format(**context), found)


_PLAIN = {
    "tuple_type": "a list",
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


def _siblings(path: Path_) -> list[str]:
    """Field names allowed beside the unknown one at `path`."""
    model: Any = FleetConfig
    for part in path[:-1]:
        if isinstance(part, int):
            continue
        if part == "measures":
            return []
        model = _part_model(model.model_fields[part].annotation) if part in model.model_fields else None
        if model is None:
            return []
    return list(model.model_fields)


def _part_model(annotation: Any) -> Any:
    if hasattr(annotation, "model_fields"):
        return annotation
    for inner in getattr(annotation, "__args__", ()):
        found = _part_model(inner)
        if found is not None:
            return found
    return None


def _shown(value: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = repr(value)
    return text if len(text) <= 120 else f"{text[:117]}..."
