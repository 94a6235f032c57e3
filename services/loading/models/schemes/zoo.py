"""What the model zoos (`timm:`, `torchvision:`) share: importing, building, and saying where weights come from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from services.errors import Problem, SourceError, one_line
from services.loading.models.schemes.factory import seeded
from services.loading.uris import SourceUri
from services.registry import did_you_mean


def known(name: str, names: list[str], uri: SourceUri) -> None:
    """Raise a SourceError with the nearest name when a zoo has no such architecture."""
    if name not in names:
        near = did_you_mean(name, names)
        remedy = near if near.startswith("did") else f"see the {uri.scheme} documentation for its {len(names)} names"
        raise SourceError(Problem(uri.text, f"an architecture of {uri.scheme}", repr(name), remedy))


def build(make: Callable[[], Any], uri: SourceUri) -> Any:
    """Build a network from a zoo; a failed download or a wrong argument becomes one sentence."""
    try:
        return seeded(make)
    except Exception as error:
        actual = f"{type(error).__name__}: {one_line(error)}"
        remedy = "without a network give ?weights=FILE; check num_classes"
        raise SourceError(Problem(uri.text, "the zoo to build it", actual, remedy)) from error
