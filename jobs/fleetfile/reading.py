"""Reads a fleet file: YAML to `FleetConfig`, reports every problem together, each with its line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.fleetfile.gates import GateConfig
from jobs.fleetfile.inputs import crossed
from jobs.fleetfile.promotions import promotion_problems
from jobs.fleetfile.tree import GATES as MOST_GATES
from jobs.fleetfile.tree import MEASURES as MOST_MEASURES
from jobs.fleetfile.tree import FleetConfig
from jobs.fleetfile.yamlfile import FLEET, Locator, read_yaml, registered, require_bounded, require_kind, validated
from services.errors import ClasswiseError, ConfigError, Problem
from services.loading.models.source import SCHEMES as MODEL_SCHEMES
from services.loading.samples.source import SCHEMES as SAMPLE_SCHEMES
from services.measures.catalogue import MEASURES, could_make
from services.measures.great import Great
from services.measures.measure import Measure
from services.measures.minimal import Minimal
from services.metrics import METRICS
from services.records import Series
from services.registry import Registry, did_you_mean

KIND = FLEET
_SCHEME = re.compile("([A-Za-z][A-Za-z0-9+.-]*):.")
"""How a source begins; what does not is reported with the rest of the tree."""


@dataclass(frozen=True)
class Fleet:
    """A validated fleet file: the tree, and its measures as objects."""

    config: FleetConfig
    measures: tuple[Measure, ...]

    def series(self) -> dict[str, Series]:
        """All series of the audit by key."""
        return {series.key: series for measure in self.measures for series in measure.series()}


@dataclass(frozen=True)
class _Known:
    """What gates may name, as far as the file could be read.

    Attributes:
        names: what the file calls its measures, right or wrong.
        complete: every measure could be read; else a gate may be about one that could not.
    """

    measures: tuple[Measure, ...]
    groupings: tuple[str, ...]
    names: tuple[str, ...]
    complete: bool

    def bounds(self) -> dict[str, float | None]:
        """The bounds of all series by key."""
        return {series.key: series.bound for measure in self.measures for series in measure.series()}

    def may_be(self, key: str) -> bool:
        """Whether it may be a series of a measure that could not be read."""
        return not self.complete and could_make(key, self.names)


def load_fleet(path: str | Path) -> Fleet:
    """Read and validate a fleet file.

    Raises:
        ConfigError: with every problem of the file, each with line, field path, value and what is allowed.
    """
    data, where = read_yaml(path, KIND)
    require_kind(data, where)
    return validate_fleet(data, where=where)


def validate_fleet(data: Any, *, source: str = "fleet", where: Locator | None = None) -> Fleet:
    """Validate a fleet given as plain data (from YAML, JSON or Python).

    Raises:
        ConfigError: with every problem.
    """
    where = where or Locator(source, KIND)
    if not isinstance(data, dict):
        raise ConfigError(Problem(where.source, f"a mapping with {KIND.keys}", type(data).__name__))
    require_bounded(data, where)
    config, problems = validated(data, FleetConfig, where)
    problems += _scheme_problems(data, where)
    raw = data.get("measures", ("clean", "great"))
    raw = raw[:MOST_MEASURES] if isinstance(raw, list | tuple) else ()
    measures, faults = _measures(raw, where)
    problems += faults
    groups = config.groups if config is not None else _texts(data.get("groups"))
    known = _Known(measures, ("class", *groups), _names(raw), complete=bool(raw) and not faults)
    problems += _gate_problems(_gates(data.get("gates"), where), known, where)
    if config is not None:
        problems += promotion_problems(config, where)
    if known.complete and data.get("generated") is not None and not any(isinstance(each, Great) for each in measures):
        remedy = "add great, whose theorem asks for generated samples, or leave generated out"
        problems.append(Problem(where(("generated",)), "the measure great in the fleet", "none", remedy))
    if config is not None:
        problems += _reference_problems(config, measures, where)
    if problems or config is None:
        raise ConfigError(problems)
    return Fleet(config, measures)


def overridden(
    fleet: Fleet,
    *,
    storage: str | None = None,
    runner: str | None = None,
    track: bool = True,
    decide: str | None = None,
    price: float | None = None,
    figures: bool = True,
) -> Fleet:
    """The fleet with command line options put over the file's values.

    Raises:
        ConfigError: an option's value is not allowed.
    """
    data = fleet.config.model_dump()
    if storage is not None:
        data["storage"] = storage
    if runner is not None:
        data["resources"]["runner"] = runner
    if decide is not None:
        data["decide"] = decide
    if price is not None:
        data["resources"]["price"] = price
    if not track:
        data["tracking"]["enabled"] = False
    if not figures:
        data["tracking"]["figures"] = False
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


def _scheme_problems(data: dict[str, Any], where: Locator) -> Iterator[Problem]:
    """Sources of a kind that is not known, in a file that may have other faults."""
    raw = data.get("models")
    models = [(("models", index), model) for index, model in enumerate(raw if isinstance(raw, list | tuple) else ())]
    samples = [((part,), data.get(part)) for part in ("samples", "generated")]
    yield from _unknown_schemes(models, MODEL_SCHEMES, where)
    yield from _unknown_schemes(samples, SAMPLE_SCHEMES, where)


def _unknown_schemes(
    parts: Sequence[tuple[tuple[str | int, ...], Any]], registry: Registry[Any], where: Locator
) -> Iterator[Problem]:
    known = registry.names()
    for place, part in parts:
        uri = part.get("uri") if isinstance(part, dict) else None
        scheme = _SCHEME.match(uri) if isinstance(uri, str) else None
        if scheme and scheme[1] not in known:
            remedy = did_you_mean(scheme[1], known)
            yield Problem(where((*place, "uri")), f"a known {registry.kind}", repr(scheme[1]), remedy)


def _measures(raw: list[Any] | tuple[Any, ...], where: Locator) -> tuple[tuple[Measure, ...], list[Problem]]:
    measures: list[Measure] = []
    problems: list[Problem] = []
    places: dict[str, int] = {}
    for index, item in enumerate(raw):
        measure, faults = registered(item, MEASURES, ("measures", index), where, what="measure")
        problems += faults
        if measure is None:
            continue
        try:
            keys = [series.key for series in measure.series()]
        except ClasswiseError as error:
            problems += error.problems
            continue
        twice = [key for key in keys if key in places]
        if twice:
            repeated = f"{twice[0]} again (first in measures[{places[twice[0]]}])"
            problems.append(Problem(where(("measures", index)), "each series once", repeated))
        places.update(dict.fromkeys(keys, index))
        measures.append(measure)
    return tuple(measures), problems


def _texts(raw: Any) -> tuple[str, ...]:
    return tuple(item for item in raw if isinstance(item, str)) if isinstance(raw, list | tuple) else ()


def _names(raw: list[Any] | tuple[Any, ...]) -> tuple[str, ...]:
    """What the entries of `measures` are called."""
    return tuple(
        name for name in _texts([item.get("name") if isinstance(item, dict) else item for item in raw]) if name
    )


def _gates(raw: Any, where: Locator) -> dict[int, GateConfig]:
    """Those gates that can be read, by their place; the others are reported with the rest of the tree."""
    items = enumerate(raw[:MOST_GATES] if isinstance(raw, list | tuple) else ())
    read = {index: validated(item, GateConfig, where)[0] for index, item in items}
    return {index: gate for index, gate in read.items() if gate is not None}


def _gate_problems(gates: dict[int, GateConfig], known: _Known, where: Locator) -> list[Problem]:
    bounds = known.bounds()
    keys, groupings = list(bounds), list(known.groupings)
    problems = []
    for index, gate in gates.items():
        if gate.measure not in keys and not known.may_be(gate.measure):
            place = where(("gates", index, "measure"))
            problems.append(
                Problem(place, "a series of this audit", repr(gate.measure), did_you_mean(gate.measure, keys))
            )
        if gate.grouping not in groupings:
            place = where(("gates", index, "grouping"))
            remedy = did_you_mean(gate.grouping, groupings)
            problems.append(Problem(place, "class or one of groups", repr(gate.grouping), remedy))
        needs = METRICS[gate.metric].needs
        if needs == "claim" and gate.measure in keys and known.complete:
            problems += _claim_problems(index, gate.measure, known.measures, where)
        if needs == "decisions":
            problems += _group_problems(index, gate, where)
        problems += _threshold_problems(gate, bounds.get(gate.measure), where, index)
    return problems


def _reference_problems(config: FleetConfig, measures: tuple[Measure, ...], where: Locator) -> Iterator[Problem]:
    """A reference that is no model of the fleet."""
    names = [model.name for model in config.models]
    for measure in measures:
        reference = getattr(measure, "reference", None)
        if reference is not None and reference not in names:
            remedy = did_you_mean(reference, names)
            yield Problem(
                where(("measures",)), f"a model of the fleet as {measure.name}.reference", repr(reference), remedy
            )


def _claim_problems(index: int, measure: str, measures: tuple[Measure, ...], where: Locator) -> Iterator[Problem]:
    """What keeps a gate on the refuted share from being judged: no claim, or nothing to hold it against."""
    claims = [series.key for each in measures if isinstance(each, Great) for series in each.series()]
    if measure not in claims:
        listed = " or ".join(claims) or "which the fleet does not measure"
        remedy = "only a GREAT score makes a claim that an attack can refute"
        place = where(("gates", index, "measure"))
        yield Problem(place, f"a GREAT score ({listed}) for metric refuted", repr(measure), remedy)
    norms = [each.norm for each in measures if isinstance(each, Minimal)]
    if "L2" not in norms:
        remedy = "add minimal to measures: claims in L2 are held against the L2 distances that it finds"
        place = where(("gates", index, "metric"))
        yield Problem(
            place, "the measure minimal in L2 for metric refuted", "it in Linf alone" if norms else "none", remedy
        )


def _group_problems(index: int, gate: GateConfig, where: Locator) -> Iterator[Problem]:
    """Group metrics are of decisions, and between the groups of an attribute."""
    if gate.measure != "clean":
        remedy = "they judge the decisions themselves, which the measure clean keeps"
        place = where(("gates", index, "measure"))
        yield Problem(place, f"clean for metric {gate.metric}", repr(gate.measure), remedy)
    if "class" in crossed(gate.grouping):
        remedy = "set grouping to a column of groups: decisions are about the class"
        place = where(("gates", index, "grouping"))
        yield Problem(place, f"an attribute for metric {gate.metric}", repr(gate.grouping), remedy)


def _threshold_problems(gate: GateConfig, bound: float | None, where: Locator, index: int) -> list[Problem]:
    """A threshold that no model can reach, or none can miss, was meant otherwise: 95 for 0.95."""
    top = None if bound is None else METRICS[gate.metric].top(bound)
    limits = {"at_least": gate.at_least, "at_most": gate.at_most}
    return [
        Problem(where(("gates", index, name)), f"a threshold in [0, {top:g}], {gate.metric}'s range", f"{value:g}")
        for name, value in limits.items()
        if value is not None and top is not None and not 0 <= value <= top
    ]
