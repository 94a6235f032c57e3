"""`timm:NAME?pretrained=true|false&weights=FILE&num_classes=K`: an architecture of PyTorch Image Models."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from services.errors import Problem, SourceError
from services.loading import packages
from services.loading.models.schemes import zoo
from services.loading.models.schemes.factory import chosen, weights_hash, with_weights
from services.loading.models.source import ModelScheme, Opened, Request
from services.loading.uris import SourceUri, flag, whole


def load(request: Request) -> Opened:
    """Build the architecture; weights come from a file or from timm's own cache or hub."""
    uri = request.uri
    options = _options(uri)
    timm = packages.package("timm", uri.text)
    zoo.known(uri.rest.partition(".")[0], timm.list_models(), uri)
    pretrained = options.get("pretrained", False)
    arguments = {"num_classes": options["num_classes"]} if "num_classes" in options else {}
    network = zoo.build(lambda: timm.create_model(uri.rest, pretrained=pretrained, **arguments), uri)
    facts: dict[str, Any] = {"weights": "pretrained" if pretrained else "random (seed 0)", **_statistics(network)}
    if "weights" in options:
        facts |= {"weights": "file", **with_weights(network, options["weights"], request, chosen(options))}
    return Opened(network, facts=facts)


def ingredients(uri: SourceUri) -> Iterator[tuple[str, str]]:
    """Name, timm's version, and the weights file; pretrained weights are named by the two."""
    options = _options(uri)
    yield "name", uri.rest
    yield from ((key, str(options[key])) for key in ("num_classes", "pretrained") if key in options)
    yield from packages.package_version("timm")
    yield from weights_hash(options.get("weights"), uri, chosen(options))


def _options(uri: SourceUri) -> dict[str, Any]:
    options = uri.options(pretrained=flag, weights=str, num_classes=whole, key=str, drop_keys=str)
    if "weights" not in options and "pretrained" not in options:
        raise SourceError(Problem(uri.text, "weights", "none", "add ?weights=FILE or ?pretrained=true"))
    return options


def _statistics(network: Any) -> dict[str, Any]:
    """The mean and std timm trained with: what the input contract should say."""
    config = getattr(network, "pretrained_cfg", None) or {}
    return {f"trained_{key}": list(config[key]) for key in ("mean", "std") if config.get(key)}


SCHEME = ModelScheme(load, ingredients)
