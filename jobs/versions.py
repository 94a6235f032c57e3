"""Versions of what made the numbers, read from package metadata without importing anything heavy."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

PACKAGES = ("classwise", "torch", "torchvision", "ray", "mlflow", "robustbench", "numpy", "scipy", "pyarrow")


def installed() -> dict[str, str]:
    """Version of Python and of each package that is installed."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
