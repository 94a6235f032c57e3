"""Lazy registries of named things: measures, model schemes, sample schemes.

A registry maps a name to `module:attribute` and imports the module at first use, so that listing what exists costs no
import of torch. Third parties add names by an entry point group; a built-in name cannot be taken over.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoints, entry_points
from typing import Any, Generic, TypeVar

from services.errors import ConfigError, Problem

T = TypeVar("T")


def did_you_mean(name: str, known: list[str]) -> str:
    """Return ``did you mean 'x'?`` for the nearest known name, or the list of all names when none is near."""
    return nearest(name, known) or f"choose one of: {', '.join(sorted(known))}"


def nearest(name: str, known: list[str]) -> str:
    """Return ``did you mean 'x'?`` for the nearest known name, or nothing when none is near."""
    if len(name) > 200:  # no typing error is that long, and the comparison grows with the length
        return ""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"did you mean '{near[0]}'?" if near else ""


@cache
def _points(group: str, path: tuple[str, ...]) -> EntryPoints:
    """What installed packages add to a group: reading all their metadata takes as long as checking a fleet file."""
    return entry_points(group=group)


class Registry(Generic[T]):
    """Names to `module:attribute`, imported on first use.

    Args:
        kind: what the names stand for, in messages ("measure", "model scheme").
        group: entry point group through which other packages add names.
        builtin: names of this package.
    """

    def __init__(self, kind: str, group: str, builtin: Mapping[str, str]) -> None:
        self.kind = kind
        self.group = group
        self._builtin = dict(builtin)

    def names(self) -> list[str]:
        """All known names, sorted."""
        return sorted({*self._builtin, *(point.name for point in _points(self.group, tuple(sys.path)))})

    def get(self, name: str, *, where: str = "") -> T:
        """Import and return what `name` stands for.

        Raises:
            ConfigError: the name is unknown; the message offers the nearest one.
        """
        if name in self._builtin:
            return self._load(self._builtin[name])
        for point in _points(self.group, tuple(sys.path)):
            if point.name == name:
                loaded: T = point.load()
                return loaded
        raise ConfigError(
            Problem(where or self.kind, f"a known {self.kind}", repr(name), did_you_mean(name, self.names()))
        )

    def location(self, name: str) -> tuple[str, str]:
        """Module and attribute that a known name stands for, without importing it."""
        points = {point.name: point.value for point in _points(self.group, tuple(sys.path))}
        module, _, attribute = {**points, **self._builtin}[name].partition(":")
        return module, attribute

    @staticmethod
    def _load(path: str) -> T:
        module, _, attribute = path.partition(":")
        loaded: Any = getattr(import_module(module), attribute)
        result: T = loaded
        return result
