"""Options that several commands share, and how they are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from services.errors import ConfigError, Problem

Json = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]
FleetStorage = Annotated[str | None, typer.Option(help="Use this storage instead of the fleet file's.")]


def pairs(texts: Sequence[str], option: str, form: str) -> list[tuple[str, str]]:
    """``NAME=VALUE`` as two texts, for each.

    Raises:
        ConfigError: without ``=``, or with nothing on a side of it; every problem together.
    """
    parts = [(text, *text.partition("=")) for text in texts]
    problems = [
        Problem(option, form, repr(text)) for text, name, mark, value in parts if not (name.strip() and value.strip())
    ]
    if problems:
        raise ConfigError(problems)
    return [(name.strip(), value.strip()) for _, name, _, value in parts]
