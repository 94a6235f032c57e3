"""Operators of an exported graph whose kernels check no arguments: checked each time they are called.

What `torch.nn.functional` checks, the kernels below it do not: statistics of fewer channels than the images, keys of
fewer heads than the queries, a factor of 1e-19 and a number in the place of a `dtype` have them read, and write, memory
beside the tensors. A graph calls these kernels, so it is given checked ones. The checks cost microseconds a call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, fx

from services.errors import Problem, SourceError

KINDS = {"ScalarType": torch.dtype, "Layout": torch.layout, "MemoryFormat": torch.memory_format}
"""Types of arguments that a kernel also takes as a number, which it looks up unchecked."""
MODES = {"interpolation_mode": 3, "padding_mode": 3}
"""Arguments that are one of so many numbers from 0 on."""
STATISTICS = ("weight", "bias", "running_mean", "running_var")

Arguments = dict[str, Any]
Fault = tuple[str, str]
"""The name of an argument, and what it should have been."""


class UnsafeCall(SourceError):
    """A call that would read or write memory beside its tensors."""


def guard(network: torch.nn.Module, where: str) -> None:
    """Give a graph, and the graphs in it, checked operators in the place of those whose kernels check nothing.

    Args:
        where: the model's name, for messages.
    """
    for module in network.modules():
        if isinstance(module, fx.GraphModule):
            for node in module.graph.nodes:
                if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
                    node.target = guarded(node.target, where)
            module.recompile()


def guarded(operator: Any, where: str) -> Callable[..., Any]:
    """The operator, or one that checks its arguments first; raises `UnsafeCall`."""
    arguments = operator._schema.arguments
    kinds = {each.name: kind for each in arguments if (kind := kind_of(each)) is not None}
    checks = [check for prefix, check in CHECKS.items() if operator._schema.name.partition("::")[2].startswith(prefix)]
    if not kinds and not checks:
        return operator  # type: ignore[no-any-return]
    names, defaults = [each.name for each in arguments], {each.name: each.default_value for each in arguments}

    def checked(*values: Any, **named: Any) -> Any:
        given = {**dict(zip(names, values, strict=False)), **named}
        for name in kinds.keys() & given.keys():
            if given[name] is not None and not isinstance(given[name], kinds[name]):
                kind = f"as a {kinds[name].__module__}.{kinds[name].__name__}"
                raise _unsafe(where, operator, (name, kind), given)
        for check in checks:
            for fault in check({**defaults, **given}):
                raise _unsafe(where, operator, fault, {**defaults, **given})
        return operator(*values, **named)

    return checked


def kind_of(argument: Any) -> type | None:
    """What an argument has to be whose kernel also takes a number, which it looks up; None for others."""
    return next((kind for word, kind in KINDS.items() if word in str(argument.real_type)), None)


def _unsafe(where: str, operator: Any, fault: Fault, given: Arguments) -> UnsafeCall:
    name, expected = fault
    remedy = "export it again with torch.export, from layers of torch.nn: this kernel does not check its arguments"
    return UnsafeCall(Problem(f"{where} ({operator})", f"{name} {expected}", _shown(given.get(name)), remedy))


def _shown(value: Any) -> str:
    """A tensor by its shape, another value as it is."""
    if isinstance(value, list | tuple) and any(isinstance(each, Tensor) for each in value):
        return f"{len(value)} of the shapes {', '.join(map(_shown, value))}"[:200]
    return str(tuple(value.shape)) if isinstance(value, Tensor) else repr(value)[:100]


def _statistics(given: Arguments) -> Iterator[Fault]:
    """One number a channel in each; without training they are there."""
    images = given["input"]
    if images.dim() < 2:
        yield "input", "of at least two dimensions"
    channels = images.shape[1:2]
    for name in STATISTICS:
        tensor = given.get(name)
        if tensor is not None and tensor.shape != channels:
            yield name, f"of one number a channel, {tuple(channels)}"
    for name in STATISTICS[2:]:
        if not given.get("training", False) and given.get(name) is None:
            yield name, "where there is no training"


def _attention(given: Arguments) -> Iterator[Fault]:
    """Queries (..., L, E) and keys (..., S, E) of one width, as many values (..., S, V) as keys, at least one.

    The kernel reads as many values as there are keys.
    """
    query, key, value = (given[name] for name in ("query", "key", "value"))
    for name in ("query", "key", "value"):
        if given[name].dim() < 2 or not given[name].numel():
            yield name, "of at least two dimensions, none of them empty"
    if query.shape[-1] != key.shape[-1]:
        yield "key", f"as wide as query {tuple(query.shape)}"
    if value.shape[-2] != key.shape[-2]:
        yield "value", f"of as many rows as key {tuple(key.shape)}"


def _flash_attention(given: Arguments) -> Iterator[Fault]:
    """Queries (B, H, L, E), as many keys and values (B, H, S, E), a mask that is spread over (B, H, L, S)."""
    query, key, value, mask = (given[name] for name in ("query", "key", "value", "attn_mask"))
    for name in ("query", "key"):
        if given[name].dim() != 4 or not given[name].numel():
            yield name, "of four dimensions, none of them empty"
    if value.shape != key.shape:
        yield "value", f"of the shape of key {tuple(key.shape)}"
    if (*query.shape[:2], query.shape[3]) != (*key.shape[:2], key.shape[3]):
        yield "query", f"of the same batch, heads and width as key {tuple(key.shape)}"
    whole = (*query.shape[:3], key.shape[2])
    if mask is not None and not _spreads(mask, whole):
        yield "attn_mask", f"of two or four dimensions that spread over {whole}"


def _spreads(tensor: Tensor, shape: tuple[int, ...]) -> bool:
    pairs = zip(tensor.shape[::-1], shape[::-1], strict=False)
    return tensor.dim() in (2, len(shape)) and all(side in (1, wanted) for side, wanted in pairs)


def _recurrent(given: Arguments) -> Iterator[Fault]:
    """Steps (L, B, I) or (B, L, I), states (C, B, P) and (C, B, H) for C layers and directions, and weights of each.

    They are (4H, I), (4H, P), two biases (4H,), and where P is not H (P, H); beyond the first layer I is what the last
    gives.
    """
    steps, states, sides = given["input"], given["hx"], 2 if given["bidirectional"] else 1
    if steps.dim() != 3:
        yield "input", "of three dimensions"
    if len(states) != 2 or any(each.dim() != 3 for each in states) or states[0].shape[:2] != states[1].shape[:2]:
        yield "hx", "as two states of three dimensions, of the same layers and batch"
    (cells, batch, out), hidden = states[0].shape, states[1].shape[2]
    if cells != given["num_layers"] * sides or cells < 1:
        yield "num_layers", f"as the states have them, {cells} by {sides} directions"
    if steps.shape[0 if given["batch_first"] else 1] != batch:
        yield "input", f"of the batch of the states, {batch}"
    wanted: list[tuple[int, ...]] = []
    for cell in range(cells):
        wanted += [(4 * hidden, steps.shape[2] if cell < sides else out * sides), (4 * hidden, out)]
        wanted += [(4 * hidden,)] * (2 if given["has_biases"] else 0) + ([(out, hidden)] if out != hidden else [])
    if [tuple(each.shape) for each in given["params"]] != wanted:
        yield "params", f"as {len(wanted)} of the shapes {', '.join(map(str, wanted))}"[:200]


def _scales(given: Arguments) -> Iterator[Fault]:
    """Factors that make the size that is asked for out of the size there is, cut to a whole number."""
    images: Tensor = given["input"] if "input" in given else given["self"]
    sizes = given.get("output_size")
    names = [name for name in given if name.startswith("scales")]
    if sizes is None:
        return
    sides = images.shape[-len(sizes) :]
    for name, side, size in zip(names, sides, sizes, strict=False):
        factor = given[name]
        if factor is not None and not -1e-3 <= float(side) * factor - float(size) <= 1:
            yield name, f"as the factor that makes {size} of {side}"


def _modes(given: Arguments) -> Iterator[Fault]:
    for name, count in MODES.items():
        if name in given and given[name] not in range(count):
            yield name, f"as a number from 0 to {count - 1}"


CHECKS: dict[str, Callable[[Arguments], Iterator[Fault]]] = {
    "_native_batch_norm_legit": _statistics,
    "native_batch_norm": _statistics,
    "scaled_dot_product_attention": _attention,
    "_scaled_dot_product_flash_attention_for_cpu": _flash_attention,
    "lstm": _recurrent,
    "upsample_": _scales,
    "_upsample_": _scales,
    "grid_sampler": _modes,
}
"""By the beginning of an operator's name. Each yields the faults of a call; the first ends it."""
