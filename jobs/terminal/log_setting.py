"""How a command logs: its options, else the variable CLASSWISE_LOG, else not at all."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, cast, get_args

import typer

from services.errors import ConfigError, Problem
from services.telemetry import logs
from services.telemetry.logs import Form, LogSetting

VARIABLE = "CLASSWISE_LOG"
LEVELS = ("debug", "info", "warning", "error")
FORMS = get_args(Form)

Format = Annotated[
    str | None,
    typer.Option("--log-format", metavar="text|json", help=f"Log to standard error; default: {VARIABLE}, else no log."),
]
Level = Annotated[str | None, typer.Option("--log-level", metavar="LEVEL", help=f"{', '.join(LEVELS)}; default: info.")]


def start_logging(form: str | None = None, level: str | None = None) -> None:
    """Log as asked for by the options or the environment; nothing happens when neither asks.

    Raises:
        ConfigError: an unknown form or level.
    """
    setting = log_setting(form, level, os.environ)
    if setting is None:
        return
    if setting.form == "json":  # else MLflow puts a handler of its own beside ours
        os.environ.setdefault("MLFLOW_CONFIGURE_LOGGING", "false")
    logs.configure(setting)


def start_server_logging() -> None:
    """Log what a server does, which has no terminal and no progress: as asked for, else text from level info."""
    if logs.inherited() is None:
        start_logging(level="info")


def log_setting(form: str | None, level: str | None, environment: Mapping[str, str]) -> LogSetting | None:
    """What the options ask for; CLASSWISE_LOG is a form, a level, or both: ``json``, ``debug``, ``json:debug``.

    Raises:
        ConfigError: an unknown form or level.
    """
    parts = [part.strip().lower() for part in environment.get(VARIABLE, "").split(":") if part.strip()]
    if unknown := [part for part in parts if part not in (*FORMS, *LEVELS)]:
        expected = f"text or json, a level ({', '.join(LEVELS)}), or both: json:debug"
        raise ConfigError(Problem(VARIABLE, expected, repr(unknown[0])))
    chosen = _known("--log-format", form, FORMS) or next((part for part in parts if part in FORMS), None)
    how = _known("--log-level", level, LEVELS) or next((part for part in parts if part in LEVELS), None)
    if chosen is None and how is None:
        return None
    return LogSetting(cast(Form, chosen or "text"), how or "info")


def _known(option: str, value: str | None, allowed: tuple[str, ...]) -> str | None:
    if value is None or value.lower() in allowed:
        return value.lower() if value else None
    raise ConfigError(Problem(option, f"one of {', '.join(allowed)}", repr(value)))
