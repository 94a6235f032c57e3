"""Versions of what made the numbers, read from package metadata without importing anything heavy."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from services.measures.measure import Measure

PACKAGES = ("classwise", "torch", "torchvision", "ray", "mlflow", "robustbench", "numpy", "scipy", "pyarrow")


def installed() -> dict[str, str]:
    """Version of Python and of each package that is installed, as this process found it first."""
    return dict(_found())


@cache
def _found() -> Mapping[str, str]:
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


def of_measures(measures: Iterable[Measure]) -> dict[str, str]:
    """Version of each measure's definition: two audits whose numbers differ may have counted differently."""
    return {f"measure.{measure.name}": str(measure.version) for measure in measures}
