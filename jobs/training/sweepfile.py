"""Reads a sweep file: YAML to `SweepConfig` and its trials, reports every problem together, each with its line."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from jobs.fleetfile.yamlfile import (
    SWEEP,
    Locator,
    Path_,
    read_yaml,
    registered,
    require_bounded,
    require_kind,
    validated,
)
from jobs.training.sweep_tree import (
    ELSEWHERE,
    LABEL,
    MAPPERS_ELSEWHERE,
    MAX_COMBINATIONS,
    MAX_TRIALS,
    ArchitectureConfig,
    DatasetConfig,
    MapperConfig,
    RecipeConfig,
    SweepConfig,
)
from services.errors import ConfigError, Problem
from services.measures.parts.threats import FRACTION, read_radius
from services.registry import did_you_mean
from services.training.datasets import DATASETS
from services.training.mapper_recipe import MapperRecipe
from services.training.methods import METHODS, Method
from services.training.networks import ARCHITECTURES
from services.training.recipe import Recipe

KIND = SWEEP
NETWORKS = ("methods", "architectures")
IN_PIXELS = frozenset({"epsilon", "step", "radius"})
"""Fields that may be written as fractions, "8/255"."""


@dataclass(frozen=True)
class MethodEntry:
    """A method of a sweep: its name in trials, its parameters, and what differs from the sweep's recipe for it."""

    label: str
    method: Method
    recipe: RecipeConfig


@dataclass(frozen=True)
class Trial:
    """One combination, before data and network are known."""

    name: str
    method: MethodEntry
    architecture: ArchitectureConfig
    dataset: DatasetConfig
    seed: int
    recipe: Recipe

    @property
    def tags(self) -> dict[str, str]:
        """What is known of it by label; the leaderboard filters by these."""
        parts = {"method": self.method.label, "architecture": label_of(self.architecture)}
        return {**parts, "dataset": label_of(self.dataset), "seed": str(self.seed), "trial": self.name}


@dataclass(frozen=True)
class MapperTrial:
    """A mapper on a data set with a seed, before the data are known."""

    name: str
    mapper: MapperConfig
    dataset: DatasetConfig
    seed: int
    recipe: MapperRecipe

    @property
    def key(self) -> tuple[str, str]:
        """Labels of mapper and data set."""
        return self.mapper.title, label_of(self.dataset)

    @property
    def tags(self) -> dict[str, str]:
        """What is known of it by label."""
        return {
            "mapper": self.mapper.title,
            "dataset": label_of(self.dataset),
            "seed": str(self.seed),
            "trial": self.name,
        }


@dataclass(frozen=True)
class Sweep:
    """A validated sweep file: the tree, its methods as objects, and its trials in order, mappers last."""

    config: SweepConfig
    methods: tuple[MethodEntry, ...]
    trials: tuple[Trial | MapperTrial, ...]

    @property
    def networks(self) -> tuple[Trial, ...]:
        """The trials that train classifiers."""
        return tuple(trial for trial in self.trials if isinstance(trial, Trial))

    @property
    def mappers(self) -> tuple[MapperTrial, ...]:
        """The trials that train mappers."""
        return tuple(trial for trial in self.trials if isinstance(trial, MapperTrial))


def load_sweep(path: str | Path) -> Sweep:
    """Read and validate a sweep file.

    Raises:
        ConfigError: with every problem of the file, each with line, field path, value and what is allowed.
    """
    data, where = read_yaml(path, KIND)
    require_kind(data, where)
    return validate_sweep(data, where=where)


def validate_sweep(data: Any, *, source: str = "sweep", where: Locator | None = None) -> Sweep:
    """Validate a sweep given as plain data.

    Raises:
        ConfigError: with every problem.
    """
    where = where or Locator(source, KIND)
    if not isinstance(data, dict):
        raise ConfigError(Problem(where.source, f"a mapping with {KIND.keys}", type(data).__name__))
    require_bounded(data, where)
    data = _in_pixels(data)
    config, problems = validated(data, SweepConfig, where)
    raw = data.get("methods", ())
    methods, faults = _methods(raw[:1000] if isinstance(raw, list | tuple) else (), where)
    problems += [*faults, *_kind_problems(data, where)]
    if config is None or problems:
        raise ConfigError(problems)
    problems = [
        *_halving_problems(config, where),
        *_name_problems(config, where),
        *_label_problems(config, methods, where),
    ]
    if problems:
        raise ConfigError(problems)
    whole = len(methods) * len(config.architectures) * len(config.datasets) * len(config.seeds)
    if whole > MAX_COMBINATIONS:  # they would be made before they are excluded
        expected = f"at most {MAX_COMBINATIONS:,} combinations before exclude"
        raise ConfigError(Problem(where.source, expected, f"{whole:,}", "divide the sweep"))
    trials: tuple[Trial | MapperTrial, ...] = (*_trials(config, methods), *_mapper_trials(config))
    if twice := [name for name, count in Counter(trial.name for trial in trials).items() if count > 1]:
        remedy = "give them other labels"
        raise ConfigError(Problem(where.source, "trials with names of their own", f"several called {twice[0]}", remedy))
    if not 0 < len(trials) <= MAX_TRIALS:
        raise ConfigError(Problem(where.source, f"1 to {MAX_TRIALS:,} trials", f"{len(trials):,}"))
    return Sweep(config, methods, trials)


def overridden(sweep: Sweep, *, storage: str | None = None, runner: str | None = None, track: bool = True) -> Sweep:
    """The sweep with command line options put over the file's values.

    Raises:
        ConfigError: an option's value is not allowed.
    """
    data = sweep.config.model_dump(by_alias=True, exclude_unset=True)
    if storage is not None:
        data["storage"] = storage
    if runner is not None:
        data.setdefault("resources", {})["runner"] = runner
    if not track:
        data.setdefault("tracking", {})["enabled"] = False
    return validate_sweep(data, source="command line")


def sweep_schema() -> dict[str, Any]:
    """JSON Schema of the sweep file, for editors: the tree, and each method with its parameters."""
    schema = SweepConfig.model_json_schema()
    recipe = schema["$defs"]["RecipeConfig"]["properties"]
    shared = {"label": {"type": "string"}, "recipe": {"$ref": "#/$defs/RecipeConfig"}}
    options: list[dict[str, Any]] = [{"type": "string", "enum": METHODS.names()}]
    for name in METHODS.names():
        part = METHODS.get(name).model_json_schema(ref_template="#/$defs/{model}")
        schema["$defs"].update(part.pop("$defs", {}))
        part["properties"] |= {**shared, "name": {"const": name}}
        part["required"] = sorted({"name", *part.get("required", [])})
        options.append(part)
    for name in ELSEWHERE:
        recipe.pop(name)
    for name in MAPPERS_ELSEWHERE:
        schema["$defs"]["MapperRecipeConfig"]["properties"].pop(name)
    schema["properties"]["methods"]["items"] = {"anyOf": options}
    for field, names in (("architectures", ARCHITECTURES.names()), ("datasets", DATASETS.names())):
        listed = schema["properties"][field]
        listed["items"] = {"anyOf": [{"type": "string", "enum": names}, listed["items"]]}
    whole: dict[str, Any] = _fractions_allowed(schema)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **whole, "title": "classwise sweep file"}


def label_of(entry: MethodEntry | ArchitectureConfig | DatasetConfig) -> str:
    """An entry's name in trials."""
    return entry.label if isinstance(entry, MethodEntry) else entry.label or entry.name


def _methods(raw: Sequence[Any], where: Locator) -> tuple[tuple[MethodEntry, ...], list[Problem]]:
    entries: list[MethodEntry] = []
    problems: list[Problem] = []
    for index, item in enumerate(raw):
        path: Path_ = ("methods", index)
        fields = dict(item) if isinstance(item, dict) else item
        label, own = (fields.pop(key, None) if isinstance(fields, dict) else None for key in ("label", "recipe"))
        method, faults = registered(fields, METHODS, path, where, what="training method")
        recipe, wrong = validated({} if own is None else own, RecipeConfig, where, (*path, "recipe"))
        problems += [*faults, *wrong]
        if label is not None and not (isinstance(label, str) and re.fullmatch(LABEL, label)):
            problems.append(Problem(where((*path, "label")), f"text of the form {LABEL}", repr(label)))
        elif method is not None and recipe is not None:
            entries.append(MethodEntry(label or method.name, method, recipe))
    return tuple(entries), problems


def _kind_problems(data: dict[str, Any], where: Locator) -> Iterator[Problem]:
    """A sweep without anything to train, with one half of it, or with mappers that are to be shared among workers."""
    present = [name for name in NETWORKS if data.get(name) not in (None, [], ())]
    mappers = bool(data.get("mappers"))
    for name in NETWORKS:
        if name not in present and (present or not mappers):
            actual, remedy = "nothing", "add it" if present else "add it, or mappers"
            yield Problem(where((name,)), "this field", actual, remedy)
    resources = data.get("resources")
    workers = resources.get("workers", 1) if isinstance(resources, dict) else 1
    if mappers and isinstance(workers, int) and workers > 1:
        remedy = "train mappers in a sweep of their own, side by side"
        yield Problem(where(("resources", "workers")), "1 where there are mappers", str(workers), remedy)


def _halving_problems(config: SweepConfig, where: Locator) -> Iterator[Problem]:
    """Data sets without samples to compare by."""
    for index, entry in enumerate(config.datasets if config.halving and config.architectures else ()):
        if not entry.holdout:
            remedy = "hold samples out, such as holdout: 0.1, or leave halving out"
            yield Problem(where(("datasets", index, "holdout")), "a share above 0, for halving", "0", remedy)


def _name_problems(config: SweepConfig, where: Locator) -> Iterator[Problem]:
    """Names that no registry knows."""
    for field, registry in (("architectures", ARCHITECTURES), ("datasets", DATASETS)):
        known = registry.names()
        for index, entry in enumerate(getattr(config, field)):
            if entry.name not in known:
                place, remedy = where((field, index)), did_you_mean(entry.name, known)
                yield Problem(place, f"a known {registry.kind}", repr(entry.name), remedy)


def _label_problems(config: SweepConfig, methods: Sequence[MethodEntry], where: Locator) -> Iterator[Problem]:
    """Labels given twice, and exclusions of labels that are not there."""
    labels: dict[str, list[Any]] = {
        "method": [label_of(entry) for entry in methods],
        "architecture": [label_of(entry) for entry in config.architectures],
        "mapper": [mapper.title for mapper in config.mappers],
        "dataset": [label_of(entry) for entry in config.datasets],
        "seed": list(config.seeds),
    }
    for kind in ("method", "architecture", "mapper", "dataset"):
        for label, count in Counter(labels[kind]).items():
            if count > 1:
                twice = f"{count} called {label!r}"
                yield Problem(where((f"{kind}s",)), f"{kind}s with names of their own", twice, "give them a label each")
    for index, rule in enumerate(config.exclude):
        for kind, value in rule.model_dump(exclude_none=True).items():
            if value not in labels[kind]:
                known = [str(label) for label in labels[kind]]
                place = where(("exclude", index, kind))
                yield Problem(place, f"a {kind} of this sweep", repr(value), did_you_mean(str(value), known))


def _trials(config: SweepConfig, methods: Sequence[MethodEntry]) -> Iterator[Trial]:
    base, resources = config.recipe.explicit(), config.resources
    for dataset, architecture, method, seed in product(config.datasets, config.architectures, methods, config.seeds):
        names = (label_of(method), label_of(architecture), label_of(dataset))
        if _excluded(config, {**dict(zip(("method", "architecture", "dataset"), names, strict=True)), "seed": seed}):
            continue
        own = {**dataset.recipe.explicit(), **architecture.recipe.explicit(), **method.recipe.explicit()}
        fixed = {
            "seed": seed,
            "device": "cuda" if resources.gpus else "cpu",
            "precision": resources.precision,
            "channels_last": resources.channels_last,
        }
        judged = {"select": method.method.selected_by()} if dataset.holdout else {}
        recipe = Recipe().changed(**{**judged, **base, **own, **fixed})
        yield Trial("-".join((*names, f"s{seed}")), method, architecture, dataset, seed, recipe)


def _mapper_trials(config: SweepConfig) -> Iterator[MapperTrial]:
    device = "cuda" if config.resources.gpus else "cpu"
    for dataset, mapper, seed in product(config.datasets, config.mappers, config.seeds):
        label = label_of(dataset)
        if not _excluded(config, {"mapper": mapper.title, "dataset": label, "seed": seed}):
            fields = mapper.recipe.model_dump(exclude={"seed", "device"})
            recipe = MapperRecipe(**fields, seed=seed, device=device)
            yield MapperTrial(f"{mapper.title}-{label}-s{seed}", mapper, dataset, seed, recipe)


def _excluded(config: SweepConfig, trial: dict[str, Any]) -> bool:
    """Whether a rule names the trial: whatever it says is so of the trial."""
    rules = (rule.model_dump(exclude_none=True) for rule in config.exclude)
    return any(all(trial.get(kind) == value for kind, value in rule.items()) for rule in rules)


def _fractions_allowed(schema: Any) -> Any:
    """The schema in which a radius or a step may also stand as "8/255", as `_in_pixels` reads it."""
    if isinstance(schema, list):
        return [_fractions_allowed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    whole = {key: _fractions_allowed(part) for key, part in schema.items()}
    if isinstance(whole.get("properties"), dict):
        fraction = {"type": "string", "pattern": FRACTION}
        parts = whole["properties"].items()
        whole["properties"] = {n: {"anyOf": [p, fraction]} if n in IN_PIXELS else p for n, p in parts}
    return whole


def _in_pixels(value: Any, key: str = "") -> Any:
    """The data with "8/255" as the number it means, where a radius or a step is asked for."""
    if isinstance(value, dict):
        return {name: _in_pixels(inner, str(name)) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_in_pixels(inner) for inner in value]
    if key in IN_PIXELS and isinstance(value, str) and "/" in value:
        try:
            return read_radius(value)
        except ValueError:
            return value
    return value
