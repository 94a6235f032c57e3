"""`export:FILE.pt2`: a graph saved by `torch.export.save`.

Two traps are found when it is opened: a batch size fixed by the example input, which is served by padding, and training
mode baked in (dropout active, batch statistics), which preflight reports because nothing can switch it off.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from services.errors import Problem, SourceError, examples, one_line
from services.loading.fingerprint import existing, file_kind, sha256
from services.loading.models.exported import archive_of, code_in, members, tensors_only
from services.loading.models.source import ModelScheme, Opened, Request
from services.loading.uris import SourceUri

_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    OSError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    RecursionError,
    EOFError,
    NotImplementedError,
    RuntimeError,
)
"""What a member that cannot be unpacked, or a table of contents that is none, raises."""


def load(request: Request) -> Opened:
    """Load the graph onto the device; gradients flow through it."""
    request.uri.options()
    return open_exported(request.uri.path(), request)


def open_exported(path: Path, request: Request) -> Opened:
    """Open a `.pt2` file.

    Raises:
        SourceError: it is no exported graph, or loading it would unpickle objects without permission.
    """
    import torch

    name = request.spec.name
    archive = existing(path, name)
    if file_kind(archive, name) != "zip":
        raise SourceError(Problem(name, "a .pt2 archive of torch.export.save", f"another kind of file at {path}"))
    try:
        files = members(archive)
        unsafe = code_in(files)
    except _DAMAGE as error:
        raise SourceError(_no_graph(name, path, error)) from error
    if unsafe and not request.spec.allow_unpickling:
        raise SourceError(_unsafe(name, unsafe))
    try:
        with nullcontext() if unsafe else tensors_only():
            program = torch.export.load(archive if unsafe else archive_of(files))
            facts = {"weights_sha256": sha256(archive), **({"unpickled": True} if unsafe else {})}
            return opened_program(program, request.device, facts, name)
    except Exception as error:
        raise SourceError(_no_graph(name, path, error)) from error


def _unsafe(name: str, unsafe: list[str]) -> Problem:
    """What a graph holds that is not granted, each by its kind: an operator, a member, or a text of the graph."""
    danger = f"{examples(map(_kind_of, unsafe), 3)}, which runs code when loaded"
    again = "export it again with torch.export from layers of torch.nn"
    granted = "docs/security.md says which operators are granted"
    remedy = f"{again}; {granted}; or set allow_unpickling: true if you trust its author"
    return Problem(name, "an archive of tensors only", danger, remedy)


def _kind_of(unsafe: str) -> str:
    if "/" in unsafe:
        return f"the member {unsafe}"
    return f"the operator {unsafe}" if unsafe.startswith("torch.") else f"the text {unsafe!r}"


def opened_program(program: Any, device: str, facts: dict[str, Any], where: str) -> Opened:
    """An exported program as a callable network, with what its graph says of batch size and mode."""
    from torch.export.passes import move_to_device_pass

    from services.loading.models.fixed_batch import FixedBatch
    from services.loading.models.guarded import guard

    program = move_to_device_pass(program, device) if device != "cpu" else program
    batch, train_mode = fixed_batch(program), baked_train_mode(program)
    network = program.module()
    guard(network, where)
    network.mode_is_fixed = True
    if train_mode:
        facts["train_mode"] = train_mode
    if batch is not None:
        facts["fixed_batch"] = batch
        network = FixedBatch(network, batch)
    return Opened(network, facts=facts)


def fixed_batch(program: Any) -> int | None:
    """The batch size a graph was specialised to, or None when it is dynamic."""
    user = set(program.graph_signature.user_inputs)
    node = next(node for node in program.graph.nodes if node.op == "placeholder" and node.name in user)
    size = node.meta["val"].shape[0]
    return size if isinstance(size, int) else None


def baked_train_mode(program: Any) -> list[str]:
    """Operators whose `train` or `training` argument is the constant True."""
    layers = set()
    for node in program.graph.nodes:
        schema = getattr(node.target, "_schema", None)
        for position, argument in enumerate(schema.arguments if schema else ()):
            if argument.name in {"train", "training"}:
                value = node.args[position] if position < len(node.args) else node.kwargs.get(argument.name)
                layers |= {str(node.target).removeprefix("aten.").removesuffix(".default")} if value is True else set()
    return sorted(layers)


def _no_graph(name: str, path: Path, error: Exception) -> Problem:
    actual = f"{type(error).__name__}: {one_line(error)}"
    return Problem(name, f"an exported graph at {path}", actual, "export it again")


def ingredients(uri: SourceUri) -> Iterator[tuple[str, str]]:
    """The archive's bytes: they hold graph and weights."""
    path = existing(uri.path(), uri.text)
    file_kind(path, uri.text)
    yield "file", sha256(path)


SCHEME = ModelScheme(load, ingredients)
