"""Functions of user code named in a URI: which may be called, how they are called, and what their source hashes to."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from services.errors import ClasswiseError, Problem, SourceError
from services.loading.fingerprint import sha256, tree_sha256
from services.loading.uris import SourceUri, local_path, scalar
from services.registry import did_you_mean
from services.telemetry.redaction import without_values

WHERE = (
    "run the command in the folder that holds it, or set PYTHONPATH; workers of a cluster that is running need it "
    "installed"
)
"""Where modules are looked for."""


def factory_name(uri: SourceUri) -> tuple[str, str]:
    """The module and function of `scheme:MODULE:FUNC`."""
    module, _, function = uri.rest.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), function)):
        raise SourceError(Problem(uri.text, f"{uri.scheme}:MODULE:FUNCTION", repr(uri.rest)))
    return module, function


def factory(uri: SourceUri, allowed: tuple[str, ...]) -> Callable[..., Any]:
    """Import the function a URI names.

    Raises:
        SourceError: its module is not allowed, cannot be imported, or has no such function.
    """
    module, name = factory_name(uri)
    if not any(fnmatchcase(module, pattern) for pattern in allowed):
        actual = f"{module!r}"
        remedy = f"add {module!r} to the fleet's factories if you trust its code"
        raise SourceError(Problem(uri.text, f"a module that matches {', '.join(allowed) or 'nothing'}", actual, remedy))
    try:
        imported = import_module(module)
    except ImportError as error:
        raise SourceError(Problem(uri.text, f"an importable module {module!r}", str(error), WHERE)) from error
    function = getattr(imported, name, None)
    if not callable(function):
        known = [key for key, value in vars(imported).items() if callable(value) and not key.startswith("_")]
        raise SourceError(Problem(uri.text, f"a function of {module}", repr(name), did_you_mean(name, known)))
    called: Callable[..., Any] = function
    return called


def call(uri: SourceUri, function: Callable[..., Any], arguments: dict[str, str]) -> Any:
    """Call a factory with query arguments; numbers, true, false and null are converted, other text stays text."""
    values = {key: scalar(value) for key, value in arguments.items()}
    signature = inspect.signature(function)
    try:
        signature.bind(**values)
    except TypeError as error:
        raise SourceError(Problem(uri.text, f"arguments {signature}", f"{values} ({error})")) from error
    try:
        return function(**values)
    except ClasswiseError as error:
        raise SourceError(error.problems) from error
    except Exception as error:
        actual = without_values(f"{type(error).__name__}: {error}", arguments)
        raise SourceError(Problem(uri.text, f"{function.__name__}({values}) to succeed", actual)) from error


def source_hash(uri: SourceUri) -> Iterator[tuple[str, str]]:
    """The factory's name and a hash of its source, found without importing or running anything.

    A package counts with all its files, because its functions and what they read may lie in any of them; so does the
    package that holds a module. Of a module in no package, the modules beside it count. What is imported or read from
    elsewhere does not.
    """
    module, name = factory_name(uri)
    yield "function", f"{module}:{name}"
    origin = find_source(module)
    if origin is None:
        raise SourceError(Problem(uri.text, f"a module {module!r} on the import path", "none", WHERE))
    root = origin.parent
    inside = (root / "__init__.py").is_file()
    files = (file for file in root.rglob("*") if "__pycache__" not in file.parts) if inside else _beside(origin)
    yield "source", tree_sha256(root, files)


def _beside(origin: Path) -> list[Path]:
    """A module of no package, and the modules beside it, which it may import; one that is installed alone."""
    installed = {"site-packages", "dist-packages"} & set(origin.parts) or origin.parent == Path(inspect.__file__).parent
    return [origin] if installed else sorted(origin.parent.glob("*.py"))


def find_source(module: str) -> Path | None:
    """The source file of a module; parent packages are searched, not imported (`find_spec` would import them)."""
    path: list[str] | None = None
    spec: ModuleSpec | None = None
    parts = module.split(".")
    for depth in range(len(parts)):
        # At the top every finder is asked (an editable installation has its own); nothing is imported for that.
        spec = PathFinder.find_spec(".".join(parts[: depth + 1]), path) if depth else find_spec(module.split(".")[0])
        if spec is None:
            return None
        path = list(spec.submodule_search_locations or [])
    return Path(spec.origin) if spec and spec.origin and Path(spec.origin).is_file() else None


def argument_hashes(arguments: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Arguments by value; one that names a file or a folder counts by what it holds."""
    for key in sorted(arguments):
        path = local_path(arguments[key])
        short = len(arguments[key]) < 1024
        if short and path.is_file():
            yield key, f"sha256:{sha256(path)}"
        elif short and ("/" in arguments[key] or "." in arguments[key]) and path.is_dir():
            yield key, f"sha256:{tree_sha256(path)}"
        else:
            yield key, arguments[key]


DEFAULT_FACTORIES = ("services.training.*",)
"""Modules whose functions `factory:` and `generator:` may call without being allowed by the user."""
