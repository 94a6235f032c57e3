"""The fleet that a request carries: JSON or YAML, read as carefully as a file."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from jobs.fleetfile.reading import KIND
from jobs.fleetfile.yamlfile import Locator, parse_yaml
from services.errors import ClasswiseError, ConfigError, Problem

JSON = {"application/json"}
YAML = {"application/yaml", "application/x-yaml", "text/yaml"}
SOURCE = "body"


class UnsupportedType(ClasswiseError):
    """The body is of a type that the API does not read."""


def fleet_data(body: bytes, content_type: str) -> dict[str, Any]:
    """The body as plain data.

    Raises:
        UnsupportedType: it says to be neither JSON nor YAML.
        ConfigError: it is not, or no mapping; with the line where YAML has one.
    """
    kind = content_type.partition(";")[0].strip().lower()
    if kind not in JSON | YAML:
        raise UnsupportedType(Problem("content-type", "application/json or application/yaml", repr(kind)[:120]))
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(Problem(SOURCE, "UTF-8", str(error))) from None
    data = _json(text) if kind in JSON else parse_yaml(text, Locator(SOURCE, KIND))[0]
    if not isinstance(data, dict):
        raise ConfigError(Problem(SOURCE, f"a mapping with {KIND.keys}", type(data).__name__))
    return data


def _json(text: str) -> Any:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        body = dict(pairs)
        if len(body) < len(pairs):
            twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
            raise ConfigError(Problem(SOURCE, "each key once", f"{twice[:120]!r} again"))
        return body

    try:
        return json.loads(text, object_pairs_hook=once)
    except ValueError as error:
        raise ConfigError(Problem(SOURCE, "valid JSON", str(error)[:300])) from None
    except RecursionError:
        raise ConfigError(Problem(SOURCE, "JSON nested a few levels deep", "hundreds of levels")) from None
