"""Structured logs: one line an event on standard error, with the audit it belongs to, and never with a secret.

What a line belongs to (audit, fleet, model, stage) is kept in a context variable, so that no function hands it on; an
actor is given its driver's when it starts. Secrets are removed from the finished text, whichever library logged it:
`services.telemetry.redaction.redacted_line`.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import IO, Any, Literal

from services.telemetry.redaction import redacted_line, secrets_of

ROOT = "classwise"
"""The logger above all of classwise's."""
logging.getLogger(ROOT).addHandler(logging.NullHandler())  # else Python prints errors where nothing is logged

Form = Literal["text", "json"]


@dataclass(frozen=True)
class LogSetting:
    """How a process logs.

    Attributes:
        form: "text" for people, "json" for machines: one object a line.
        level: of classwise's own loggers; those of libraries log warnings and worse.
        context: what every line of the process belongs to.
    """

    form: Form = "text"
    level: str = "info"
    context: tuple[tuple[str, str], ...] = ()


_context: ContextVar[Mapping[str, str]] = ContextVar("classwise_log_context", default={})  # noqa: B039 never changed
_setting: LogSetting | None = None


@contextmanager
def about(**fields: str) -> Iterator[None]:
    """What is logged inside belongs to these: ``audit_id``, ``fleet``, ``model``, ``stage``."""
    token = _context.set({**_context.get(), **fields})
    try:
        yield
    finally:
        _context.reset(token)


def context() -> dict[str, str]:
    """What a line that is logged now belongs to."""
    return dict(_context.get())


def inherited() -> LogSetting | None:
    """The setting for a worker of this process, with the context of now; None when nothing was configured."""
    return None if _setting is None else LogSetting(_setting.form, _setting.level, tuple(context().items()))


def is_json() -> bool:
    """Whether standard error is for machines: then nothing else may be printed there."""
    return _setting is not None and _setting.form == "json"


def configure(setting: LogSetting, environment: Mapping[str, str] | None = None) -> None:
    """Log to standard error from now on; called again it replaces what it did before.

    Args:
        environment: where secret values are looked up; default: this process's.
    """
    global _setting
    _setting = setting
    _context.set({**_context.get(), **dict(setting.context)})
    handler = _Stderr()
    known = os.environ if environment is None else environment
    handler.setFormatter((_Json if setting.form == "json" else _Text)(secrets_of(known)))
    root = logging.getLogger()
    for old in [old for old in root.handlers if isinstance(old, _Stderr)]:
        root.removeHandler(old)
    root.addHandler(handler)
    logging.getLogger(ROOT).setLevel(setting.level.upper())
    logging.captureWarnings(setting.form == "json")


def reset() -> None:
    """Undo `configure`."""
    global _setting
    _setting = None
    _context.set({})
    root = logging.getLogger()
    for old in [old for old in root.handlers if isinstance(old, _Stderr)]:
        root.removeHandler(old)
    logging.getLogger(ROOT).setLevel(logging.NOTSET)
    logging.captureWarnings(False)


class _Stderr(logging.StreamHandler[IO[str]]):
    """Writes to what standard error is at the time: tests and `console.apart` put others in its place."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> IO[str]:
        return sys.stderr

    @stream.setter
    def stream(self, value: IO[str]) -> None:
        pass


class _Redacting(logging.Formatter):
    def __init__(self, secrets: tuple[str, ...]) -> None:
        super().__init__()
        self._secrets = secrets

    def _clean(self, value: Any) -> Any:
        """The value without secrets, however deep in it."""
        if isinstance(value, str):
            return redacted_line(value, self._secrets)
        if isinstance(value, Mapping):
            return {str(key): self._clean(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self._clean(inner) for inner in value]
        return value if isinstance(value, int | float | None) else self._clean(str(value))

    def _fields(self, record: logging.LogRecord) -> dict[str, Any]:
        fields: dict[str, Any] = {**_context.get(), **getattr(record, "fields", {})}
        if record.exc_info:
            fields["error"] = self.formatException(record.exc_info)
        return {name: self._clean(value) for name, value in fields.items()}

    def _time(self, record: logging.LogRecord) -> str:
        return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


class _Json(_Redacting):
    """One object a line, with keys time, level, logger, message and what the line belongs to."""

    def format(self, record: logging.LogRecord) -> str:
        head = {
            "time": self._time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self._clean(record.getMessage()),
        }
        return json.dumps({**head, **self._fields(record)}, ensure_ascii=False)


class _Text(_Redacting):
    """For people; a message stays one line, whatever a file or a server put into it."""

    def format(self, record: logging.LogRecord) -> str:
        fields = self._fields(record)
        trace = fields.pop("error", "")
        shown = " ".join(f"{name}={value}" for name, value in fields.items())
        message = self._clean(record.getMessage())
        text = f"{message} [{shown}]" if shown else message
        text = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
        line = f"{self._time(record)} {record.levelname.lower():<7} {record.name}: {text}"
        return f"{line}\n{trace}" if trace else line


def event(logger: logging.Logger, level: int, message: str, **fields: Any) -> None:
    """Log a message with fields of its own."""
    logger.log(level, message, extra={"fields": fields})
