"""What a caller's fleet may name, and what the server puts in the place of the rest.

A caller is no administrator: he chooses models, samples, measures and gates among what the settings grant. No module of
his is imported and no path of his is opened unless the allow-list names it; storage, tracking, cluster and rights are
the server's. Refusals are told all at once.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from jobs.api.settings import Settings
from jobs.fleetfile.promotions import targets
from jobs.fleetfile.reading import Fleet, validate_fleet
from services.errors import ClasswiseError, NotAllowed, Problem
from services.loading.factories import factory_name
from services.loading.uris import SourceUri, parse_uri

FILES = {"torchscript", "export", "onnx", "logits", "npz", "parquet", "imagefolder", "hf"}
"""Schemes whose first part is a path."""
CODE = {"factory", "generator"}
NAMED = {"timm", "torchvision", "robustbench", "sklearn"}
"""Schemes whose first part is a name in a package's own list."""
MODEL_FOLDERS = {"robustbench": "model_dir"}
SAMPLE_FOLDERS = {"robustbench": "data_dir", "torchvision": "root"}
"""Options that name a folder, and whose default is relative to wherever the worker runs."""
PUBLISHED = r"[A-Z0-9_]+|none"
"""Weights that torchvision publishes; anything else is a file."""


def admitted(data: dict[str, Any], settings: Settings) -> Fleet:
    """The fleet that the server audits for a caller.

    Raises:
        ConfigError: it is no valid fleet file.
        NotAllowed: it names what the settings do not grant; all such things at once.
    """
    fleet = validate_fleet({**data, "storage": settings.storage}, source="body")
    problems = list(_refusals(fleet, settings))
    if problems:
        raise NotAllowed(problems)
    return Fleet(validate_fleet(_overruled(fleet, settings), source="body").config, fleet.measures)


def _overruled(fleet: Fleet, settings: Settings) -> dict[str, Any]:
    """The caller's fleet with the server's decisions, and his resources within the server's limits."""
    data: dict[str, Any] = fleet.config.model_dump(mode="json", exclude_defaults=True)
    asked, most = fleet.config.resources, settings.resources
    workers = most.workers if asked.workers == "auto" else min(asked.workers, most.workers)
    data["resources"] = {
        "runner": most.runner,
        "workers": workers,
        "cpus": min(asked.cpus, most.cpus),
        "gpus": min(asked.gpus, most.gpus),
        "batch": min(asked.batch, most.batch),
        "shard": asked.shard,
        "deadline": min((each for each in (asked.deadline, most.deadline) if each is not None), default=None),
    }
    data["tracking"] = settings.tracking.model_dump(mode="json")
    data["storage"] = settings.storage
    data["factories"] = list(settings.allow.factories)
    return data


def _refusals(fleet: Fleet, settings: Settings) -> Iterator[Problem]:
    config, allow = fleet.config, settings.allow
    if len(config.models) > settings.limits.models:
        yield Problem("models", f"at most {settings.limits.models}", str(len(config.models)))
    for index, model in enumerate(config.models):
        where = f"models[{index}]"
        if model.allow_unpickling and not allow.unpickling:
            yield Problem(f"{where}.allow_unpickling", "false", "true", "it runs code of the checkpoint's author")
        yield from _source_refusals(f"{where}.uri", model.uri, allow.models, settings, is_model=True)
    for index, measure in enumerate(fleet.measures):
        for name, uri in measure.sources().items():
            yield from _source_refusals(f"measures[{index}].{name}", uri, allow.models, settings, is_model=True)
    yield from _source_refusals("samples.uri", config.samples.uri, allow.samples, settings, is_model=False)
    if config.generated is not None:
        yield from _source_refusals("generated.uri", config.generated.uri, allow.samples, settings, is_model=False)
    yield from _aftermath_refusals(fleet, settings)


def _aftermath_refusals(fleet: Fleet, settings: Settings) -> Iterator[Problem]:
    """What would follow the audit: requests from the server's network, signed by it; aliases and baselines of all."""
    config, allow = fleet.config, settings.allow
    for index, hook in enumerate(config.notify):
        where = f"notify[{index}]"
        host = urlsplit(hook.url or "").hostname
        if host is None or host not in allow.notify:
            granted = ", ".join(allow.notify) or "(none)"
            yield Problem(f"{where}.url", f"a host among {granted}", host or "url_env", _ASK)
        if hook.secret_env is not None and hook.secret_env not in allow.secrets:
            granted = ", ".join(allow.secrets) or "(none)"
            yield Problem(f"{where}.secret_env", f"a variable among {granted}", hook.secret_env, _ASK)
    if targets(config) and not allow.promote:
        yield Problem("promote", "no alias to move", ", ".join(one.key for one in targets(config))[:120], _ASK)
    if config.accept != "by-hand" and not allow.accept:
        yield Problem("accept", "by-hand", config.accept, _ASK)


def _source_refusals(
    where: str, text: str, schemes: tuple[str, ...], settings: Settings, *, is_model: bool
) -> Iterator[Problem]:
    try:
        uri = parse_uri(text)
    except ClasswiseError as error:
        yield from error.problems
        return
    if uri.scheme not in schemes:
        yield Problem(where, f"one of the schemes {', '.join(schemes) or '(none)'}", uri.scheme, _ASK)
        return
    yield from _first_part(where, uri, settings)
    yield from _options(where, uri, settings, is_model=is_model)


def _first_part(where: str, uri: SourceUri, settings: Settings) -> Iterator[Problem]:
    allow = settings.allow
    if uri.scheme in FILES:
        yield from path_refusals(where, uri.rest, allow.paths)
    elif uri.scheme in CODE:
        try:
            module, function = factory_name(uri)
        except ClasswiseError as error:
            yield from error.problems
            return
        if not any(fnmatchcase(module, pattern) for pattern in allow.factories) or function.startswith("_"):
            granted = ", ".join(allow.factories) or "(none)"
            yield Problem(where, f"a public function of a module among {granted}", f"{module}:{function}", _ASK)
    elif uri.scheme in NAMED:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.+-]*", uri.rest):
            yield Problem(where, "a name of letters, digits, dots, dashes", repr(uri.rest)[:120])
    elif uri.scheme == "mlflow":
        if ".." in uri.rest or not uri.rest.startswith(("models:/", "runs:/")):
            yield Problem(where, "models:/NAME@ALIAS, models:/NAME/VERSION or runs:/RUN/PATH", repr(uri.rest)[:120])
    elif _looks_like_path(uri.rest):
        yield from path_refusals(where, uri.rest, allow.paths)


def _options(where: str, uri: SourceUri, settings: Settings, *, is_model: bool) -> Iterator[Problem]:
    paths = settings.allow.paths
    folder = (MODEL_FOLDERS if is_model else SAMPLE_FOLDERS).get(uri.scheme, "")
    if is_model and uri.scheme == "mlflow" and uri.query:
        yield Problem(where, "no options", ", ".join(uri.query), "the registry is the server's")
    for name, value in uri.query.items():
        names_file = name == "weights" and not re.fullmatch(PUBLISHED, value)
        if names_file or name == folder or _looks_like_path(value):
            yield from path_refusals(f"{where} ({name})", value, paths)
    if folder and folder not in uri.query:
        yield Problem(where, f"the option {folder}", "none", "its default is a folder of the worker")


def path_refusals(where: str, text: str, granted: tuple[str, ...]) -> Iterator[Problem]:
    """A path is granted when it lies below a granted folder, both as written and where links lead."""
    path = PurePosixPath(text)
    clean = path.is_absolute() and ".." not in path.parts and not re.search(r"[\x00-\x1f\x7f\\]", text)
    if not clean or not _below(text, granted):
        folders = ", ".join(granted) or "(none)"
        yield Problem(where, f"an absolute path below {folders}", repr(text)[:200], _ASK)


def _below(text: str, granted: tuple[str, ...]) -> bool:
    real = PurePosixPath(os.path.realpath(text))
    return any(
        PurePosixPath(text).is_relative_to(folder) and real.is_relative_to(os.path.realpath(folder))
        for folder in granted
    )


def _looks_like_path(value: str) -> bool:
    return bool(re.search(r"[/\\\x00-\x1f]|^~|^\.", value))


_ASK = "ask the server's administrator to allow it"
