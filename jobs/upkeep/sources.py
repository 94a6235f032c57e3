"""The installed sources of models and samples: what each is, which package it needs, and whether that imports."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from jobs.upkeep.local import broken_imports
from services.errors import one_line
from services.loading.models.source import SCHEMES as MODELS
from services.loading.samples.source import SCHEMES as SAMPLES
from services.registry import Registry

Kind = Literal["model", "samples"]

PACKAGES = {
    "torchvision": {("model", "torchvision"), ("samples", "torchvision"), ("samples", "robustbench")},
    "timm": {("model", "timm")},
    "robustbench": {("model", "robustbench")},
    "onnxruntime": {("model", "onnx")},
    "mlflow": {("model", "mlflow"), ("samples", "mlflow")},
    "datasets": {("samples", "hf")},
    "sklearn": {("samples", "sklearn")},
}
"""Packages that must be importable, and by which sources; the others need nothing that classwise itself does not."""
SECONDS = 180.0
"""For importing all of them."""
INSTALL = {"onnxruntime": "classwise[onnx]", "sklearn": "scikit-learn"}
"""What brings a package, where its name does not say it."""


@dataclass(frozen=True)
class InstalledSource:
    """A source.

    Attributes:
        scheme: as a URI begins, with the colon.
        about: what its module says of itself.
        package: that it needs; "" for none.
        install: what to install for it; "" where classwise comes with it.
        state: "ok", "not installed", or why it does not import.
    """

    kind: Kind
    scheme: str
    about: str
    package: str = ""
    install: str = ""
    state: str = "ok"


def installed_sources() -> list[InstalledSource]:
    """All sources, those of other packages included; one process imports what they need."""
    from importlib.metadata import packages_distributions

    sources = [*_of("model", MODELS), *_of("samples", SAMPLES)]
    packages = sorted({package for _, _, _, package in sources if package})
    try:
        broken = broken_imports(packages, SECONDS)
    except (RuntimeError, subprocess.SubprocessError) as error:
        broken = dict.fromkeys(packages, f"importing {', '.join(packages)} fails: {one_line(error)[-100:]}")
    brought = packages_distributions()  # it reads what every installed distribution says of itself
    return [
        InstalledSource(kind, f"{scheme}:", about, package, _install(package, brought), _state(package, broken))
        for kind, scheme, about, package in sources
    ]


def _of(kind: Kind, registry: Registry[Any]) -> Iterator[tuple[Kind, str, str, str]]:
    for scheme in registry.names():
        module, _ = registry.location(scheme)
        needed = next((package for package, users in PACKAGES.items() if (kind, scheme) in users), "")
        own = module.startswith("services.")
        yield kind, scheme, _first_line(module), needed or ("" if own else module)


def _first_line(module: str) -> str:
    """The first line of a module's docstring, without running it."""
    try:
        spec = find_spec(module)
        text = Path(spec.origin).read_text(encoding="utf-8") if spec and spec.origin else ""
        return (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]
    except (ImportError, OSError, SyntaxError, ValueError):
        return ""


def _install(package: str, brought: Mapping[str, list[str]]) -> str:
    names = brought.get(package.partition(".")[0], [package])
    return INSTALL.get(package, names[0]) if package else ""


def _state(package: str, broken: dict[str, str]) -> str:
    if not package:
        return "ok"
    try:
        there = find_spec(package.partition(".")[0]) is not None
    except (ImportError, ValueError):
        there = False
    return broken.get(package, "ok") if there else "not installed"
