"""What a caller's fleet may name, and what the server puts in the place of the rest.

A caller is no administrator: they choose models, samples, measures and gates among what is granted. No module of
theirs is imported and no path of theirs is opened unless the allow-list names it; storage, tracking, cluster and rights
are the server's. All refusals are reported together.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, field_validator

from jobs.fleetfile.followups import EnvName, shown_url
from jobs.fleetfile.promotions import targets
from jobs.fleetfile.reading import Fleet
from jobs.fleetfile.tree import Part
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
"""Options that name a folder, and whose default is relative to the folder where the worker runs."""
PUBLISHED = r"[A-Z0-9_]+|none"
"""Weights that torchvision publishes; anything else is a file."""


def _absolute(path: str) -> str:
    if not Path(path).is_absolute() or ".." in Path(path).parts:
        raise ValueError(f"absolute paths without '..' (one is {path!r})")
    return path


Folder = Annotated[str, AfterValidator(_absolute)]


class AllowConfig(Part):
    """What fleets of callers may name."""

    models: tuple[str, ...] = Field(
        (), description="Model schemes: export, onnx, mlflow ...; torchscript and factory run code."
    )
    samples: tuple[str, ...] = Field((), description="Sample schemes: npz, imagefolder ...")
    paths: tuple[Folder, ...] = Field((), description="Folders, absolute, below which models and samples may lie.")
    factories: tuple[str, ...] = Field((), description="Modules that factory: and generator: may import.")
    urls: tuple[str, ...] = Field(
        (), description="Addresses below which http: models may lie: https://scores.example.org/v2/models/."
    )
    unpickling: bool = Field(False, description="Whether a model may say allow_unpickling.")
    notify: tuple[str, ...] = Field(
        (), description="Hosts that fleets may notify by https; HOST:PORT for another port."
    )
    secrets: tuple[EnvName, ...] = Field(
        (), description="Variables that may sign notifications, or hold tokens of http: models."
    )
    promote: bool = Field(False, description="Whether a fleet may move aliases of the registry.")
    accept: bool = Field(False, description="Whether a fleet may say accept: passed.")

    @field_validator("urls")
    @classmethod
    def _addresses(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for url in value:
            if (parts := _address(url)) is None or not parts[3].endswith("/"):
                raise ValueError(f"addresses https://HOST/PATH/ that end in a slash (one is {url!r})")
        return value


def require_allowed(fleet: Fleet, allow: AllowConfig) -> None:
    """Check a fleet where and when it is audited against what was granted at its submission: links may lead elsewhere.

    Raises:
        NotAllowed: it names what is not granted; every such problem together.
    """
    if problems := list(refusals(fleet, allow)):
        raise NotAllowed(problems)


def refusals(fleet: Fleet, allow: AllowConfig) -> Iterator[Problem]:
    """Everything that a fleet names and the list does not grant."""
    config = fleet.config
    for index, model in enumerate(config.models):
        where = f"models[{index}]"
        if model.allow_unpickling and not allow.unpickling:
            yield Problem(f"{where}.allow_unpickling", "false", "true", "it runs code of the checkpoint's author")
        yield from _source_refusals(f"{where}.uri", model.uri, allow.models, allow, is_model=True)
    for index, measure in enumerate(fleet.measures):
        for name, uri in measure.sources().items():
            yield from _source_refusals(f"measures[{index}].{name}", uri, allow.models, allow, is_model=True)
    for part, samples in (("samples", config.samples), ("generated", config.generated)):
        for field in ("uri", "training"):
            if samples is not None and (uri := getattr(samples, field)) is not None:
                yield from _source_refusals(f"{part}.{field}", uri, allow.samples, allow, is_model=False)
    yield from _aftermath_refusals(fleet, allow)


def _aftermath_refusals(fleet: Fleet, allow: AllowConfig) -> Iterator[Problem]:
    """What would follow the audit: requests from the server's network, signed by it; aliases, accepted audits."""
    config = fleet.config
    for index, hook in enumerate(config.notify):
        where = f"notify[{index}]"
        if hook.url is None or not _notifies(hook.url, allow.notify):
            granted = ", ".join(allow.notify) or "(none)"
            found = shown_url(hook.url)[:120] if hook.url else "url_env"
            yield Problem(f"{where}.url", f"https on a host among {granted}, or a host with its port", found, _ASK)
        if hook.secret_env is not None and hook.secret_env not in allow.secrets:
            granted = ", ".join(allow.secrets) or "(none)"
            yield Problem(f"{where}.secret_env", f"a variable among {granted}", hook.secret_env, _ASK)
    if targets(config) and not allow.promote:
        yield Problem("promote", "no alias to move", ", ".join(target.key for target in targets(config))[:120], _ASK)
    if config.accept != "by-hand" and not allow.accept:
        yield Problem("accept", "by-hand", config.accept, _ASK)


def _notifies(url: str, granted: tuple[str, ...]) -> bool:
    """Whether a host grants a webhook: by itself https on its own port alone, for other ports serve others."""
    parts = urlsplit(url)
    port = parts.port or {"https": 443, "http": 80}.get(parts.scheme)
    places = {each.lower() for each in granted}
    return f"{parts.hostname}:{port}" in places or ((parts.scheme, port) == ("https", 443) and parts.hostname in places)


def _source_refusals(
    where: str, text: str, schemes: tuple[str, ...], allow: AllowConfig, *, is_model: bool
) -> Iterator[Problem]:
    try:
        uri = parse_uri(text)
    except ClasswiseError as error:
        yield from error.problems
        return
    if uri.scheme not in schemes:
        yield Problem(where, f"one of the schemes {', '.join(schemes) or '(none)'}", uri.scheme, _ASK)
        return
    yield from _first_part(where, uri, allow)
    yield from _options(where, uri, allow, is_model=is_model)


def _first_part(where: str, uri: SourceUri, allow: AllowConfig) -> Iterator[Problem]:
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
    elif uri.scheme == "http":
        yield from _remote(where, uri, allow)
    elif uri.scheme == "mlflow":
        # MLflow decodes %2e and the like once more, and so leaves the run's own folder
        if not re.fullmatch(r"(models|runs):/[^%\\?#\x00-\x1f\x7f]+", uri.rest) or ".." in uri.rest:
            yield Problem(where, "models:/NAME@ALIAS, models:/NAME/VERSION or runs:/RUN/PATH", repr(uri.rest)[:120])
    elif _looks_like_path(uri.rest):
        yield from path_refusals(where, uri.rest, allow.paths)


def _remote(where: str, uri: SourceUri, allow: AllowConfig) -> Iterator[Problem]:
    """Requests from the server's network: to a granted host and path alone, with no secret but a granted one."""
    parts = _address(uri.rest)
    below = [each for each in map(_address, allow.urls) if each is not None]
    if parts is None or not any(parts[:3] == each[:3] and parts[3].startswith(each[3]) for each in below):
        granted = ", ".join(allow.urls) or "(none)"
        yield Problem(where, f"an address below {granted}", repr(uri.rest)[:200], _ASK)
    variable = uri.query.get("token_env")
    if variable is not None and variable not in allow.secrets:
        yield Problem(
            f"{where} (token_env)", f"a variable among {', '.join(allow.secrets) or '(none)'}", variable, _ASK
        )


def _address(url: str) -> tuple[str, str, int | None, str] | None:
    """Scheme, host, port and path of a plain address; None for one that a server might read otherwise."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    plain = re.fullmatch(r"https?://[A-Za-z0-9.-]+(:\d+)?(/[A-Za-z0-9._~:@-]+)*/?", url)
    if plain is None or any(part in (".", "..") for part in parts.path.split("/")):
        return None
    return parts.scheme, (parts.hostname or "").lower(), port, parts.path


def _options(where: str, uri: SourceUri, allow: AllowConfig, *, is_model: bool) -> Iterator[Problem]:
    paths = allow.paths
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
