"""`torchvision:NAME?weights=IMAGENET1K_V2|FILE|none&num_classes=K`: an architecture of torchvision."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from services.errors import Problem, SourceError
from services.loading import packages
from services.loading.models.schemes import zoo
from services.loading.models.schemes.factory import chosen, weights_hash, with_weights
from services.loading.models.source import ModelScheme, Opened, Request
from services.loading.uris import SourceUri, local_path, whole


def load(request: Request) -> Opened:
    """Build the architecture; weights come from a file or from torchvision's own cache or download."""
    uri = request.uri
    options = _options(uri)
    models = packages.package("torchvision.models", uri.text)
    zoo.known(uri.rest, models.list_models(), uri)
    arguments = {"num_classes": options["num_classes"]} if "num_classes" in options else {}
    weights = options["weights"]
    named = None if weights == "none" or _is_file(weights) else weights
    network = zoo.build(lambda: models.get_model(uri.rest, weights=named, **arguments), uri)
    if _is_file(weights):
        return Opened(network, facts={"weights": "file", **with_weights(network, weights, request, chosen(options))})
    return Opened(network, facts={"weights": named or "random (seed 0)"})


def ingredients(uri: SourceUri) -> Iterator[tuple[str, str]]:
    """Name, torchvision's version, and the weights file; published weights are named by the two."""
    options = _options(uri)
    yield "name", uri.rest
    if "num_classes" in options:
        yield "num_classes", str(options["num_classes"])
    yield from packages.package_version("torchvision")
    weights = options["weights"]
    yield from weights_hash(weights, uri, chosen(options)) if _is_file(weights) else [("weights", weights)]


def _options(uri: SourceUri) -> dict[str, Any]:
    options = uri.options(weights=str, num_classes=whole, key=str, drop_keys=str)
    if "weights" not in options:
        raise SourceError(Problem(uri.text, "weights", "none", "add ?weights=FILE, ?weights=DEFAULT or ?weights=none"))
    return options


def _is_file(weights: str) -> bool:
    """A path rather than the name of published weights: it has a suffix or a slash, or it is there."""
    return "/" in weights or "." in weights or local_path(weights).is_file()


SCHEME = ModelScheme(load, ingredients)
