"""`factory:MODULE:FUNC?weights=FILE&argument=value`: a function of user code that builds a network, and its weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from services.errors import Problem, SourceError
from services.loading import factories
from services.loading.fingerprint import existing, file_kind, sha256
from services.loading.models.source import ModelScheme, Opened, Request
from services.loading.nearby import nearby
from services.loading.uris import SourceUri

if TYPE_CHECKING:
    from torch import nn

CHOICE = ("key", "drop_keys")
"""Options beside `weights`: which state dict of the file, and the beginning of keys to leave out."""


def load(request: Request) -> Opened:
    """Build the network and load its weights strictly."""
    uri = request.uri
    arguments, weights, choice = _split(uri)
    function = factories.factory(uri, request.allowed_factories)
    network = seeded(lambda: factories.call(uri, function, arguments))
    _require_module(network, uri)
    if weights is None:
        return Opened(network, facts={"weights": "made by the factory (seed 0)"})
    return Opened(network, facts=with_weights(network, weights, request, choice))


def ingredients(uri: SourceUri) -> Iterator[tuple[str, str]]:
    """The factory's source, its arguments and the bytes of every file they name."""
    arguments, weights, choice = _split(uri)
    yield from weights_hash(weights, uri, choice)
    yield from factories.source_hash(uri)
    yield from factories.argument_hashes(arguments)


def _split(uri: SourceUri) -> tuple[dict[str, str], str | None, dict[str, str]]:
    """The factory's own arguments, its weights file, and what is said of the file; without one all are its own."""
    arguments = dict(uri.query)
    weights = arguments.pop("weights", None)
    choice = {} if weights is None else chosen(arguments)
    return {name: value for name, value in arguments.items() if name not in choice}, weights, choice


def chosen(options: Mapping[str, Any]) -> dict[str, str]:
    """What options say of a weights file: which of its state dicts, and which keys to leave out."""
    return {name: options[name] for name in CHOICE if name in options}


def with_weights(network: nn.Module, weights: str, request: Request, choice: Mapping[str, str]) -> dict[str, Any]:
    """Load a weights file into a network; returns facts."""
    from services.loading.models.weights import load_weights

    where = f"{request.spec.name} ({weights})"
    path = nearby(weights, where)
    facts = load_weights(network, path, where=where, allow_unpickling=request.spec.allow_unpickling, **choice)
    return {"weights_sha256": sha256(existing(path, where)), **facts}


def weights_hash(weights: str | None, uri: SourceUri, choice: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The bytes of a weights file, checked to be no web page or half a download, and what is taken of it."""
    yield from choice.items()
    if weights is not None:
        path = existing(nearby(weights, uri.text), uri.text)
        file_kind(path, f"{uri.text} (weights)")
        yield "weights", sha256(path)


def seeded(build: Any) -> Any:
    """Build with a fixed seed, apart from the caller's random state: workers agree on weights that are not loaded."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return build()


def _require_module(network: Any, uri: SourceUri) -> None:
    from torch import nn

    if not isinstance(network, nn.Module):
        raise SourceError(Problem(uri.text, "a function that returns a torch.nn.Module", type(network).__name__))


SCHEME = ModelScheme(load, ingredients)
