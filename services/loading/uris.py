"""`scheme:rest?key=value&key=value`: how every model and sample source is written.

Only the query is percent-decoded, so that a path before the question mark is what the shell shows; a plus sign is a
plus sign in both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from services import limits
from services.errors import Problem, SourceError
from services.registry import did_you_mean
from services.storage import plainjson

Converter = Callable[[str], Any]


@dataclass(frozen=True, slots=True)
class SourceUri:
    """A parsed source.

    Attributes:
        text: as the user wrote it, for messages.
        scheme, rest: before and after the first colon; `rest` ends before the question mark.
        query: decoded options, in order.
    """

    text: str
    scheme: str
    rest: str
    query: Mapping[str, str] = field(default_factory=dict)

    def path(self) -> Path:
        """`rest` as a path: relative to the current directory unless absolute, `~` expanded."""
        if not self.rest:
            raise SourceError(Problem(self.text, f"a path after '{self.scheme}:'", "nothing"))
        return local_path(self.rest)

    def options(self, **converters: Converter) -> dict[str, Any]:
        """The query as typed options.

        Raises:
            SourceError: an option this scheme does not have, or a value that does not convert; every problem together.
        """
        values: dict[str, Any] = {}
        problems: list[Problem] = []
        for key, value in self.query.items():
            if key not in converters:
                known = f"one of the options {', '.join(sorted(converters))}" if converters else "no options"
                remedy = did_you_mean(key, list(converters)) if converters else "remove it"
                problems.append(Problem(self.text, known, repr(key), remedy))
                continue
            try:
                values[key] = converters[key](value)
            except ValueError as error:
                problems.append(Problem(f"{self.text} ({key})", str(error), repr(value)))
        if problems:
            raise SourceError(problems)
        return values


def parse_uri(text: str) -> SourceUri:
    """Split a source.

    Raises:
        SourceError: no scheme, or a query that is not `key=value` pairs with distinct keys.
    """
    head, _, query = text.partition("?")
    scheme, colon, rest = head.partition(":")
    if not colon or not scheme.replace("-", "").replace("_", "").isalnum():
        raise SourceError(
            Problem(repr(text), "a source written scheme:rest", "no scheme", "write for example npz:FILE")
        )
    options: dict[str, str] = {}
    for pair in query.split("&") if query else ():
        key, equals, value = pair.partition("=")
        if not key or not equals or unquote(key) in options:
            raise SourceError(Problem(repr(text), "options written key=value, each key once", repr(pair)))
        options[unquote(key)] = unquote(value)
    return SourceUri(text, scheme, rest, options)


def local_path(text: str) -> Path:
    """A path of this machine: `~` expanded, relative to the current directory."""
    return Path(text).expanduser()


def scalar(text: str) -> Any:
    """An option's value: a finite JSON number, `true`, `false` or `null` where it is one, else the text itself."""
    if len(text) > limits.CHARACTERS:
        return text
    try:
        value = plainjson.parsed(text)
    except ValueError:
        return text
    if isinstance(value, int | float):
        return value if abs(value) < limits.WHOLE else text
    return text if value is not None else None


def flag(text: str) -> bool:
    """`true` or `false`."""
    if text.lower() not in {"true", "false", "1", "0"}:
        raise ValueError("true or false")
    return text.lower() in {"true", "1"}


def whole(text: str) -> int:
    """A whole number of at least 0."""
    try:
        return limits.whole(text)
    except ValueError:
        raise ValueError("a whole number") from None


def one_of(*choices: str) -> Converter:
    """A converter that accepts `choices` only."""

    def convert(text: str) -> str:
        if text not in choices:
            raise ValueError(f"one of {', '.join(choices)}")
        return text

    return convert


def names(text: str) -> tuple[str, ...]:
    """Comma-separated names."""
    return tuple(part.strip() for part in text.split(","))


def extent(text: str) -> tuple[int, ...]:
    """`32`, `32x48` or `3x32x32` as whole numbers of at least 1."""
    try:
        sides = tuple(limits.whole(part) for part in text[:100].lower().split("x"))
    except ValueError:
        sides = ()
    if not sides or min(sides) < 1 or len(text) > 100:
        raise ValueError("whole numbers joined by x, for example 32x32")
    return sides
