"""Operators of an exported graph whose kernels check no arguments: checked each time they are called.

What `torch.nn.functional` checks, the kernels below it do not: statistics of fewer channels than the images, keys of
fewer heads than the queries, a factor of 1e-19 and a number in the place of a `dtype` have them read, and write, memory
beside the tensors. A graph calls these kernels, so it is given checked ones. The checks cost microseconds a call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx

KINDS = {"ScalarType": torch.dtype, "Layout": torch.layout, "MemoryFormat": torch.memory_format}
"""Types of arguments that a kernel also takes as a number, which it looks up unchecked."""
MODES = {"interpolation_mode": 3, "padding_mode": 3}
"""Arguments that are one of so many numbers from 0 on."""
STATISTICS = ("weight", "bias", "running_mean", "running_var")

Arguments = dict[str, Any]


class UnsafeCall(RuntimeError):
    """A call that would read or write memory beside its tensors."""


def guard(network: torch.nn.Module) -> None:
    """Give a graph, and the graphs in it, checked operators in the place of those whose kernels check nothing."""
    for module in network.modules():
        if isinstance(module, fx.GraphModule):
            for node in module.graph.nodes:
                if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
                    node.target = guarded(node.target)
            module.recompile()


def guarded(operator: Any) -> Callable[..., Any]:
    """The operator, or one that checks its arguments first; raises `UnsafeCall`."""
    arguments = operator._schema.arguments
    kinds = {each.name: kind for each in arguments if (kind := _kind(str(each.real_type))) is not None}
    checks = [check for prefix, check in CHECKS.items() if operator._schema.name.partition("::")[2].startswith(prefix)]
    if not kinds and not checks:
        return operator  # type: ignore[no-any-return]
    names, defaults = [each.name for each in arguments], {each.name: each.default_value for each in arguments}

    def checked(*values: Any, **named: Any) -> Any:
        given = {**dict(zip(names, values, strict=False)), **named}
        for name in kinds.keys() & given.keys():
            _require(given[name] is None or isinstance(given[name], kinds[name]), operator, name)
        for check in checks:
            check(operator, {**defaults, **given})
        return operator(*values, **named)

    return checked


def _kind(real_type: str) -> type | None:
    return next((kind for word, kind in KINDS.items() if word in real_type), None)


def _require(holds: bool, operator: Any, name: str) -> None:
    if not holds:
        raise UnsafeCall(f"{operator}: expected {name} as its kernel needs it")


def _statistics(operator: Any, given: Arguments) -> None:
    """One number a channel in each; without training they are there."""
    images = given["input"]
    _require(images.dim() >= 2, operator, "input")
    for name in STATISTICS:
        tensor = given.get(name)
        _require(tensor is None or tensor.shape == images.shape[1:2], operator, name)
    for name in STATISTICS[2:]:
        _require(given.get("training", False) or given.get(name) is not None, operator, name)


def _attention(operator: Any, given: Arguments) -> None:
    """Queries (B, H, L, E), as many keys and values (B, H, S, E), a mask that is spread over (B, H, L, S)."""
    query, key, value, mask = (given[name] for name in ("query", "key", "value", "attn_mask"))
    _require(query.dim() == key.dim() == 4 and key.shape == value.shape and bool(key.shape[2]), operator, "key")
    _require((*query.shape[:2], query.shape[3]) == (*key.shape[:2], key.shape[3]), operator, "query")
    whole = (*query.shape[:3], key.shape[2])
    _require(mask is None or _spreads(mask, whole), operator, "attn_mask")


def _spreads(tensor: Tensor, shape: tuple[int, ...]) -> bool:
    pairs = zip(tensor.shape[::-1], shape[::-1], strict=False)
    return tensor.dim() in (2, len(shape)) and all(side in (1, wanted) for side, wanted in pairs)


def _recurrent(operator: Any, given: Arguments) -> None:
    """Steps (L, B, I) or (B, L, I), states (C, B, P) and (C, B, H) for C layers and directions, and weights of each.

    They are (4H, I), (4H, P), two biases (4H,), and where P is not H (P, H); beyond the first layer I is what the last
    gives.
    """
    steps, states, sides = given["input"], given["hx"], 2 if given["bidirectional"] else 1
    _require(len(states) == 2 and all(each.dim() == 3 for each in (steps, *states)), operator, "hx")
    (cells, batch, out), hidden = states[0].shape, states[1].shape[2]
    _require(cells == given["num_layers"] * sides and cells > 0, operator, "num_layers")
    _require(states[1].shape[:2] == (cells, batch), operator, "hx")
    _require(steps.shape[0 if given["batch_first"] else 1] == batch, operator, "input")
    wanted: list[tuple[int, ...]] = []
    for cell in range(cells):
        wanted += [(4 * hidden, steps.shape[2] if cell < sides else out * sides), (4 * hidden, out)]
        wanted += [(4 * hidden,)] * (2 if given["has_biases"] else 0) + ([(out, hidden)] if out != hidden else [])
    _require([tuple(each.shape) for each in given["params"]] == wanted, operator, "params")


def _scales(operator: Any, given: Arguments) -> None:
    """Factors that make the size that is asked for out of the size there is, cut to a whole number."""
    images: Tensor = given["input"] if "input" in given else given["self"]
    sizes = given.get("output_size")
    names = [name for name in given if name.startswith("scales")]
    if sizes is None:
        return
    sides = images.shape[-len(sizes) :]
    for name, side, size in zip(names, sides, sizes, strict=False):
        factor = given[name]
        _require(factor is None or -1e-3 <= float(side) * factor - float(size) <= 1, operator, name)


def _modes(operator: Any, given: Arguments) -> None:
    for name, count in MODES.items():
        _require(name not in given or given[name] in range(count), operator, name)


CHECKS: dict[str, Callable[[Any, Arguments], None]] = {
    "_native_batch_norm_legit": _statistics,
    "native_batch_norm": _statistics,
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "lstm": _recurrent,
    "upsample_": _scales,
    "_upsample_": _scales,
    "grid_sampler": _modes,
}
"""By the beginning of an operator's name."""
