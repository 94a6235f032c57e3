"""classwise from Python: audit image classifiers class by class.

>>> import classwise
>>> found = classwise.audit(network, images, labels, classes=names)
>>> found.verdict, found.df(), found.figures

Nothing heavy is imported before it is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jobs.notebook import Found, audit, read, run

__all__ = ["Found", "audit", "read", "run"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'classwise' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module("jobs.notebook"), name)


def __dir__() -> list[str]:
    return sorted((*globals(), *__all__))
