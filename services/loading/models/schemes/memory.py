"""`memory:DIGEST`: a network that this process was handed as an object; no file and no other process has it.

What is held is a copy, so training that goes on does not change what is audited. The digest of a network that is made
of torch's own modules covers all that they hold. What a class of the user's computes depends on more than can be read
(closures, class attributes, functions of other modules, a file that was edited since it was imported), so with one of
those, with a hook or with an attribute that is an object of its own the digest is a new one each time: such a network
is measured anew and never mistaken for another.
"""

from __future__ import annotations

import copy
import hashlib
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from services.errors import Problem, SourceError, one_line
from services.loading.models.source import ModelScheme, Opened, Request
from services.loading.uris import SourceUri

if TYPE_CHECKING:
    from torch import nn

_held: dict[str, nn.Module] = {}


class _Opaque(Exception):
    """Something whose content cannot be read."""


@contextmanager
def held(network: Any, name: str) -> Iterator[str]:
    """Hold a copy of a network for the length of a context; yields its URI.

    Raises:
        SourceError: it is no `torch.nn.Module`, or cannot be copied.
    """
    from torch import nn

    if not isinstance(network, nn.Module):
        remedy = "wrap a function in a torch.nn.Module"
        raise SourceError(Problem(name, "a torch.nn.Module", type(network).__name__, remedy))
    try:
        own = copy.deepcopy(network).eval()
    except Exception as error:
        actual = f"{type(error).__name__}: {one_line(error)}"
        raise SourceError(Problem(name, "a network that copy.deepcopy can copy", actual)) from error
    digest = _digest(own)
    _held[digest] = own
    try:
        yield f"memory:{digest}"
    finally:
        _held.pop(digest, None)


def load(request: Request) -> Opened:
    """The copy that is held; a worker gets one of its own, for it moves it to a device."""
    return Opened(copy.deepcopy(_network(request.uri)), facts={"weights": "of a network in memory"})


def ingredients(uri: SourceUri) -> Iterator[tuple[str, str]]:
    """The digest."""
    _network(uri)
    yield "network", uri.rest


def _network(uri: SourceUri) -> nn.Module:
    uri.options()
    if uri.rest not in _held:
        remedy = "hand it to classwise.audit again, or save it and name the file in the fleet"
        raise SourceError(Problem(uri.text, "a network that this process holds", "none", remedy))
    return _held[uri.rest]


def _digest(network: nn.Module) -> str:
    import torch

    digest = hashlib.sha256(torch.__version__.encode())
    try:
        for part in _content(network):
            digest.update(b"%d:" % len(part))
            digest.update(part)
    except _Opaque:
        return f"new-{uuid.uuid4().hex}"
    return digest.hexdigest()


def _content(network: nn.Module) -> Iterator[bytes]:
    from torch import nn

    hooks = {name for name in vars(nn.Module()) if "hook" in name}
    for name, module in network.named_modules(remove_duplicate=False):
        kind = type(module)
        if not kind.__module__.startswith("torch.nn.modules."):
            raise _Opaque
        yield f"{name}={kind.__module__}.{kind.__qualname__}".encode()
        for key in sorted(vars(module)):
            value = vars(module)[key]
            if key in hooks:
                if value:
                    raise _Opaque
            elif key != "_modules":
                yield from (key.encode(), *_plain(value))


def _plain(value: Any) -> Iterator[bytes]:
    import torch

    if isinstance(value, torch.Tensor):
        if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.layout != torch.strided:
            raise _Opaque
        yield f"{value.dtype}{tuple(value.shape)}".encode()
        yield value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    elif isinstance(value, np.ndarray) and value.dtype != object:
        yield from (f"{value.dtype}{value.shape}".encode(), np.ascontiguousarray(value).tobytes())
    elif isinstance(value, dict):
        yield f"dict{len(value)}".encode()
        for key, item in value.items():
            yield from (*_plain(key), *_plain(item))
    elif isinstance(value, set | frozenset) and all(isinstance(item, str) for item in value):
        yield from _plain(sorted(value))
    elif isinstance(value, list | tuple):
        yield f"{type(value).__name__}{len(value)}".encode()
        for item in value:
            yield from _plain(item)
    elif value is None or isinstance(value, bool | int | float | complex | str | bytes | torch.dtype | torch.device):
        yield f"{type(value).__name__}:{value!r}".encode()
    else:
        raise _Opaque


SCHEME = ModelScheme(load, ingredients)
