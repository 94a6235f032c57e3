"""`torchscript:FILE`: a scripted or traced network saved by `torch.jit.save`."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

from services.errors import Problem, SourceError
from services.loading.fingerprint import existing, file_kind, sha256
from services.loading.models.source import ModelScheme, Opened, Request
from services.loading.uris import SourceUri


def load(request: Request) -> Opened:
    """Load the archive; gradients flow through it. A mode baked in by tracing shows in preflight's passes."""
    request.uri.options()
    path = existing(request.uri.path(), request.spec.name)
    file_kind(path, request.spec.name)
    import torch

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            network = torch.jit.load(str(path), map_location=request.device)  # type: ignore[no-untyped-call]
    except Exception as error:  # the reader's C++ errors come as a dozen kinds
        actual = next(iter(str(error).strip().splitlines()), type(error).__name__)
        expected = f"a TorchScript archive at {request.uri.path()}"
        raise SourceError(Problem(request.spec.name, expected, actual)) from error
    return Opened(network, facts={"weights_sha256": sha256(path)})


def ingredients(uri: SourceUri) -> Iterator[tuple[str, str]]:
    """The archive's bytes: they hold code and weights."""
    path = existing(uri.path(), uri.text)
    file_kind(path, uri.text)
    yield "file", sha256(path)


SCHEME = ModelScheme(load, ingredients)
