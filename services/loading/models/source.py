"""Models by URI: the registry of model schemes, loading, and the fingerprint that keys the cache.

Only loading imports torch. A fingerprint reads the files a URI names and the sources and versions behind it, so the
driver can look up a cache without building a network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.loading.confined import held
from services.loading.factories import DEFAULT_FACTORIES
from services.loading.protocols import LoadedModel
from services.loading.uris import SourceUri, parse_uri
from services.records import ModelSpec, digest_of
from services.registry import Registry

__all__ = ["DEFAULT_FACTORIES", "SCHEMES", "ModelScheme", "Opened", "Request", "fingerprint", "load_model"]

FINGERPRINT_VERSION = 1
"""Raise it when the path from images to logits changes for the same specification."""


@dataclass(frozen=True)
class Request:
    """What a scheme is asked to load."""

    spec: ModelSpec
    uri: SourceUri
    device: str = "cpu"
    allowed_factories: tuple[str, ...] = DEFAULT_FACTORIES


@dataclass(frozen=True)
class Opened:
    """What a scheme returns.

    Attributes:
        network: a torch module or callable of one prepared batch on the device; None for tables of logits.
        differentiable: gradients flow through it.
        facts: JSON-able notes of the loader.
        logits: for tables of logits, ids (n,) to scores (n, K).
    """

    network: Any | None
    differentiable: bool = True
    facts: dict[str, Any] = field(default_factory=dict)
    logits: Callable[[NDArray[np.int64]], NDArray[np.float32]] | None = None


@dataclass(frozen=True)
class ModelScheme:
    """One kind of model source.

    Attributes:
        load: opens it.
        ingredients: yields (name, content) pairs that decide the logits: hashes of files and sources, versions. It
            imports neither torch nor the user's code.
        runs, gradients: False where no source of the scheme has a network to run, or gradients through it: measures
            that need one are refused before anything is opened.
        answers: of a source whose content cannot be read, a digest of how it answers.
    """

    load: Callable[[Request], Opened]
    ingredients: Callable[[SourceUri], Iterator[tuple[str, str]]]
    runs: bool = True
    gradients: bool = True
    answers: Callable[[ModelSpec], str] | None = None


SCHEMES: Registry[ModelScheme] = Registry(
    "model scheme",
    "classwise.models",
    {
        "export": "services.loading.models.schemes.export:SCHEME",
        "factory": "services.loading.models.schemes.factory:SCHEME",
        "http": "services.loading.models.schemes.http:SCHEME",
        "logits": "services.loading.models.schemes.logits:SCHEME",
        "memory": "services.loading.models.schemes.memory:SCHEME",
        "mlflow": "services.loading.models.schemes.mlflow:SCHEME",
        "onnx": "services.loading.models.schemes.onnx:SCHEME",
        "robustbench": "services.loading.models.schemes.robustbench:SCHEME",
        "timm": "services.loading.models.schemes.timm:SCHEME",
        "torchscript": "services.loading.models.schemes.torchscript:SCHEME",
        "torchvision": "services.loading.models.schemes.torchvision:SCHEME",
    },
)


def fingerprint(spec: ModelSpec) -> str:
    """Digest of everything that decides a model's logits: weights, code, versions, input contract, output adapter.

    The model's name and the folders its files lie in do not enter it.

    Raises:
        SourceError: a file the URI names is missing or is not what it should be.
        ConfigError: the scheme is unknown.
    """
    uri = parse_uri(spec.uri)
    scheme = SCHEMES.get(uri.scheme, where=spec.uri)
    with held():
        parts = list(scheme.ingredients(uri))
    if scheme.answers is not None:
        parts.append(("answers", scheme.answers(spec)))
    contract = asdict(spec.input)
    if spec.input.channel_order == "RGB":  # digests of before there was a choice stay
        del contract["channel_order"]
    added = [spec.offsets] if spec.offsets else []  # digests of before there were any stay
    return digest_of(FINGERPRINT_VERSION, uri.scheme, parts, contract, spec.outputs, spec.output, *added)


def load_model(
    spec: ModelSpec, *, device: str = "cpu", allowed_factories: tuple[str, ...] = DEFAULT_FACTORIES
) -> LoadedModel:
    """Load a model, ready to run on `device`: evaluation mode, no parameter gradients, input contract applied.

    Raises:
        SourceError: it cannot be opened, is not allowed, or does not match its weights.
        ConfigError: the scheme is unknown.
    """
    uri = parse_uri(spec.uri)
    scheme = SCHEMES.get(uri.scheme, where=spec.uri)
    with held():  # what is loaded is what is fingerprinted
        opened = scheme.load(Request(spec, uri, device, allowed_factories))
        digest = fingerprint(spec)
    if opened.network is None:
        return LoadedModel(spec, None, digest, differentiable=False, logits=opened.logits, facts=opened.facts)
    return _wrapped(spec, opened, device, digest)


def _wrapped(spec: ModelSpec, opened: Opened, device: str, digest: str) -> LoadedModel:
    from services.loading.models.contract import ContractedNetwork

    network = ContractedNetwork(opened.network, spec.input, spec.outputs, spec.output, spec.name, spec.offsets).to(
        device
    )
    parameters = list(network.parameters())
    facts = {
        "parameters": sum(parameter.numel() for parameter in parameters),
        "dtypes": sorted({str(parameter.dtype).removeprefix("torch.") for parameter in parameters}),
        **opened.facts,
    }
    return LoadedModel(spec, network, digest, differentiable=opened.differentiable, facts=facts)
