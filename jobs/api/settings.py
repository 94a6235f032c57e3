"""The settings file of the API: who may call, what a caller may name, and what the server decides instead of them.

Everything that can run code or open a file is empty by default: a server without an allow-list audits nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import Field, IPvAnyNetwork, field_validator, model_validator

from jobs.fleetfile.followups import EnvName
from jobs.fleetfile.inputs import Name
from jobs.fleetfile.tree import MOST_SECONDS, Part, Place
from jobs.fleetfile.yamlfile import Kind, read_yaml, validated
from jobs.submission.allow import AllowConfig, Folder
from jobs.submission.queue import PRIORITIES
from jobs.web.access import USUAL, Caller, Right
from services.errors import ConfigError, Problem

TOKEN_LENGTH = 24
"""Characters that a token has at least."""


class AccessConfig(Part):
    """What a caller sees and may do."""

    fleets: tuple[Annotated[str, Field(min_length=1, max_length=100)], ...] = Field(
        ("*",), description="Patterns of the names of fleets that they see: team-*."
    )
    may: tuple[Right, ...] = Field(USUAL, description="Rights: read, submit, cancel; admin is all, on every fleet.")
    submissions: int | None = Field(
        None, ge=0, description="Most audits of theirs that wait or run; default: half of `limits.submissions`."
    )
    priority: int = Field(0, ge=0, lt=PRIORITIES, description="Of their audits that wait the highest goes first.")
    paths: tuple[Folder, ...] | None = Field(
        None, description="Folders that their fleets may name, among or below those of `allow.paths`; default: all."
    )

    def caller(self, name: str) -> Caller:
        """The caller of that name."""
        return Caller(name, self.fleets, self.may, self.submissions, self.priority, self.paths)


class TokenConfig(AccessConfig):
    """Where one caller's bearer token is. Not the token itself: settings files are shown around."""

    name: Name = Field(description="Who calls; appears in logs.")
    file: str | None = Field(None, description="A file that holds the token.")
    env: str | None = Field(None, description="A variable that holds the token.")
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = Field(
        None, description="The SHA-256 of a random token, which then need not be where the API runs."
    )


class PersonConfig(AccessConfig):
    """Callers whom a proxy signs in."""

    name: str = Field(min_length=1, max_length=200, description="Their names, as a pattern: *@example.org.")


class IdentitySettings(Part):
    """Callers whom a proxy of `trusted_proxies` has signed in, by a header that it sets."""

    header: str = Field("x-forwarded-email", pattern=r"^[A-Za-z0-9-]{1,60}$", description="Of the user's name.")
    callers: tuple[PersonConfig, ...] = Field(min_length=1, description="Who may do what; the first that fits.")


class MlflowHookSettings(Part):
    """Audits on events of MLflow's registry."""

    secret_env: EnvName = Field(description="A variable that holds the secret of MLflow's webhook.")
    fleets: dict[str, str] = Field(min_length=1, description="Registered models, and the fleet file of each.")
    events: tuple[Literal["model_version.created", "model_version_alias.created"], ...] = Field(
        ("model_version_alias.created",), min_length=1, description="Events that start an audit."
    )
    aliases: tuple[str, ...] = Field((), description="Only these aliases; left out, all.")

    @field_validator("fleets")
    @classmethod
    def _absolute(cls, value: dict[str, str]) -> dict[str, str]:
        if relative := [path for path in value.values() if not Path(path).is_absolute()]:
            raise ValueError(f"absolute paths of fleet files (one is {relative[0]!r})")
        return value


class HookSettings(Part):
    """Who besides callers may start audits."""

    mlflow: MlflowHookSettings | None = Field(None, description="MLflow's registry; off by default.")


class TrackingSettings(Part):
    """Where results are logged; callers cannot choose it."""

    enabled: bool = True
    uri: str | None = None
    tag_registry: bool = True


class ResourceSettings(Part):
    """What an audit of a caller may ask of the cluster."""

    runner: Literal["ray", "local"] = "ray"
    workers: int = Field(8, ge=1, le=1024, description="Most workers; also what workers: auto becomes.")
    cpus: float = Field(4.0, ge=0, description="Most cores a worker.")
    gpus: float = Field(0.0, ge=0, le=8, description="Most GPUs a worker.")
    batch: int = Field(1024, ge=1, le=65536, description="Largest batch.")
    deadline: float | None = Field(
        604_800.0, gt=0, le=MOST_SECONDS, description="Most seconds of an audit, and of one that names no deadline."
    )


class LimitSettings(Part):
    """What keeps one caller from taking the server down."""

    body: int = Field(1 << 18, ge=1024, le=4 << 20, description="Bytes of a request's body.")
    per_minute: int = Field(120, ge=1, description="Requests a minute of one caller, or of one address without token.")
    submissions: int = Field(20, ge=1, description="Audits that wait or run at the same time.")
    models: int = Field(100, ge=1, description="Models of a fleet.")
    followers: int = Field(16, ge=1, description="Concurrent log streams.")
    silence: float = Field(15.0, gt=0, description="Seconds after which a silent log stream sends an empty line.")
    log: int = Field(1 << 20, ge=1024, description="Characters of a log that are sent, from its end.")


class Settings(Part):
    """The settings file."""

    address: str = Field("local", description="The dashboard of the Ray cluster that runs audits, or local.")
    storage: Place = Field(description="Where all audits of this server go; an absolute path or a URL.")
    tokens: tuple[TokenConfig, ...] = Field(min_length=1)
    allow: AllowConfig = AllowConfig()
    hooks: HookSettings = HookSettings()
    tracking: TrackingSettings = TrackingSettings()
    resources: ResourceSettings = ResourceSettings()
    limits: LimitSettings = LimitSettings()
    trusted_proxies: tuple[IPvAnyNetwork, ...] = Field(
        (), description="Proxies whose X-Forwarded-For is believed: addresses or networks."
    )
    identity: IdentitySettings | None = Field(None, description="Callers whom a trusted proxy has signed in.")
    audit_log: str | None = Field(None, description="A file to which each change is appended, with its caller.")
    schedules: str | None = Field(None, description="The database of schedules, for the dashboard.")
    ca: str | None = Field(None, description="Certificates to trust for the dashboard's https.")
    python: Annotated[str, Field(min_length=1)] = Field("python", description="The interpreter on the head node.")

    @model_validator(mode="after")
    def _proxied(self) -> Settings:
        if self.identity is not None and not self.trusted_proxies:
            raise ValueError("identity needs trusted_proxies: the addresses of the proxies whose header is believed")
        return self

    @model_validator(mode="after")
    def _narrower(self) -> Settings:
        """Folders of a caller narrow those of all: a list that grants more is a mistake, and refused as one."""
        people = self.identity.callers if self.identity is not None else ()
        for path in (path for each in (*self.tokens, *people) for path in each.paths or ()):
            if not any(PurePosixPath(path).is_relative_to(folder) for folder in self.allow.paths):
                raise ValueError(f"a caller's paths are folders below those of allow.paths (one is {path!r})")
        return self

    def callers(self) -> dict[str, Caller]:
        """What the owners of tokens may do, by name."""
        return {token.name: token.caller(token.name) for token in self.tokens}

    def allow_of(self, caller: Caller) -> AllowConfig:
        """What a caller may name."""
        return self.allow if caller.paths is None else self.allow.model_copy(update={"paths": caller.paths})

    @field_validator("storage")
    @classmethod
    def _absolute(cls, value: str) -> str:
        if "://" not in value and not Path(value).is_absolute():
            raise ValueError("an absolute path or a URL")
        return value


KIND = Kind(
    "settings file", "storage, tokens and allow", example="deploy/compose/settings.yaml and docs/service.md#rest-api"
)


def load_settings(path: str | Path) -> Settings:
    """Read and validate a settings file.

    Raises:
        ConfigError: with every problem, each with its line.
    """
    data, where = read_yaml(path, KIND)
    if not isinstance(data, dict):
        raise ConfigError(Problem(where.source, f"a mapping with {KIND.keys}", type(data).__name__))
    settings, problems = validated(data, Settings, where)
    if settings is None:
        raise ConfigError(problems)
    return settings


def digests(settings: Settings, environment: Mapping[str, str]) -> dict[str, bytes]:
    """The callers' names and the SHA-256 of their tokens; the tokens themselves are kept nowhere.

    Raises:
        ConfigError: a token is missing, short, or given to two callers; every problem together.
    """
    known: dict[str, bytes] = {}
    problems = []
    for index, token in enumerate(settings.tokens):
        where = f"tokens[{index}] ({token.name})"
        text = _text(token, environment)
        digest = bytes.fromhex(token.sha256) if token.sha256 else sha256((text or "").encode()).digest()
        if (text is None and token.sha256 is None) or len(_places(token)) != 1 or digest in _EXAMPLES:
            expected, remedy = "one of file, env and sha256, with a token that is there", "write the token there"
            problems.append(Problem(where, expected, "none", remedy))
        elif text is not None and len(text) < TOKEN_LENGTH:
            remedy = "make one with: python -c 'import secrets; print(secrets.token_urlsafe(32))'"
            problems.append(Problem(where, f"a token of at least {TOKEN_LENGTH} characters", f"{len(text)}", remedy))
        elif token.name in known or digest in known.values():
            problems.append(Problem(where, "another name and another token than those before", "the same"))
        known[token.name] = digest
    if problems:
        raise ConfigError(problems)
    return known


_EXAMPLES = {bytes(32), sha256(b"").digest()}
"""Digests of no token: the example's of the manifests, and that of an empty text."""


def _places(token: TokenConfig) -> list[str]:
    return [place for place in (token.file, token.env, token.sha256) if place is not None]


def _text(token: TokenConfig, environment: Mapping[str, str]) -> str | None:
    """The token; None when it is not there."""
    if token.env is not None:
        return environment.get(token.env, "").strip() or None
    if token.file is None:
        return None
    try:
        return Path(os.path.expanduser(token.file)).read_text(encoding="utf-8").strip() or None  # noqa: PTH111
    except (OSError, UnicodeDecodeError):
        return None


def plain(settings: Settings) -> dict[str, Any]:
    """The settings as JSON takes them, for a process elsewhere."""
    data: dict[str, Any] = settings.model_dump(mode="json")
    return data
