"""Optional packages that hold models and data sets."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from services.errors import Problem, SourceError


def package(name: str, where: str) -> Any:
    """Import a zoo's package.

    Raises:
        SourceError: it is not installed or does not import, in its own words.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            return import_module(name)
    except (ImportError, RuntimeError) as error:
        actual = f"{type(error).__name__}: {error}"
        raise SourceError(Problem(where, f"the package {name}", actual, f"install {name} to match torch")) from error


def package_version(name: str) -> Iterator[tuple[str, str]]:
    """The installed version, which stands for the architecture's code."""
    try:
        yield name, version(name)
    except PackageNotFoundError as error:
        raise SourceError(Problem(name, f"the package {name}", "it is not installed")) from error
