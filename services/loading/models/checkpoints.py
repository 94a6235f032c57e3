"""State dicts from files: safetensors, or a checkpoint that loads with weights only; then loaded strictly.

What training code wraps around weights is unwrapped by rule and written to the facts: nesting (`state_dict`, `model`,
`net`, `ema`) and prefixes (`module.`, `_orig_mod.`, `model.`). Nothing is loaded in part.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from services.errors import Problem, SourceError, one_line
from services.loading.fingerprint import existing, file_kind

NESTS = ("state_dict", "model_state_dict", "model", "net", "ema")
PREFIXES = ("module.", "_orig_mod.", "model.")
SHOWN = 5
State = dict[str, Tensor]


def load_weights(network: nn.Module, path: Path, *, where: str, allow_unpickling: bool = False) -> dict[str, Any]:
    """Load `path` into `network` strictly and return facts on how.

    Raises:
        SourceError: the file is not weights, needs unpickling without leave, or does not match key for key and shape
            for shape.
    """
    facts: dict[str, Any] = {}
    raw = read_checkpoint(path, where=where, allow_unpickling=allow_unpickling, facts=facts)
    state = strip_prefixes(unwrap(raw, where=where, facts=facts), network.state_dict(), facts)
    if problems := mismatches(state, network.state_dict(), where):
        raise SourceError(problems)
    network.load_state_dict(state, strict=False)
    return facts


def read_checkpoint(path: Path, *, where: str, allow_unpickling: bool, facts: dict[str, Any]) -> Any:
    """The object a checkpoint file holds."""
    kind = file_kind(existing(path, where), where)
    if kind == "safetensors":
        return _safetensors(path, where)
    if kind not in {"zip", "pickle"}:
        expected = "safetensors or a PyTorch checkpoint"
        raise SourceError(Problem(where, expected, f"a file of kind {kind}", f"check {path}"))
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        if not allow_unpickling or not _needs_unpickling(error):
            raise SourceError(load_problem(error, where)) from error
    facts["unpickled"] = True
    return torch.load(path, map_location="cpu", weights_only=False)


def _safetensors(path: Path, where: str) -> Any:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError, TypeError, LookupError, RuntimeError) as error:
        actual = one_line(error)
        problem = Problem(where, "a complete safetensors file", actual, "the file is damaged; fetch it again")
        raise SourceError(problem) from error


def load_problem(error: Exception, where: str) -> Problem:
    """What `torch.load` refused, in a sentence: the blocked global by name, or a damaged file."""
    if _needs_unpickling(error):
        actual = f"one that needs {blocked_global(error)}, which runs code when loaded"
        remedy = "save network.state_dict() only, or set allow_unpickling: true if you trust its author"
        return Problem(where, "a checkpoint of tensors only", actual, remedy)
    text = str(error).strip().splitlines()
    actual = text[0] if text else type(error).__name__
    return Problem(where, "a readable PyTorch checkpoint", actual, "the file is damaged; fetch it again")


def blocked_global(error: Exception) -> str:
    """The Python object a weights-only load refused, by its dotted name."""
    match = re.search(r"GLOBAL ([\w.]+)", str(error)) or re.search(r"class(?:es)? ([\w.]+)", str(error))
    return match.group(1) if match else "a pickled Python object"


def _needs_unpickling(error: Exception) -> bool:
    return isinstance(error, pickle.UnpicklingError) and bool(
        re.search(r"GLOBAL [\w.]+|Unsupported (class|global)", str(error))
    )


def unwrap(raw: Any, *, where: str, facts: dict[str, Any]) -> State:
    """The state dict inside nested training checkpoints.

    Raises:
        SourceError: there is none.
    """
    while isinstance(raw, Mapping) and not _is_state(raw):
        key = next((key for key in NESTS if isinstance(raw.get(key), Mapping | nn.Module)), None)
        if key is None:
            break
        facts["checkpoint_keys"] = [*facts.get("checkpoint_keys", []), key]
        raw = raw[key]
    raw = raw.state_dict() if isinstance(raw, nn.Module) else raw
    if not (isinstance(raw, Mapping) and _is_state(raw)):
        keys = f"keys {', '.join(map(repr, list(raw)[:SHOWN]))}" if isinstance(raw, Mapping) else type(raw).__name__
        raise SourceError(Problem(where, "a state dict, perhaps under " + ", ".join(NESTS), keys))
    return {str(key): value for key, value in raw.items() if isinstance(value, Tensor) and key != "n_averaged"}


def _is_state(raw: Mapping[Any, Any]) -> bool:
    return bool(raw) and all(isinstance(value, Tensor) for value in raw.values())


def strip_prefixes(state: State, wanted: Mapping[str, Tensor], facts: dict[str, Any]) -> State:
    """Strip prefixes shared by all keys, as long as that makes more keys match the network's own."""
    best, stripped = state, []
    while prefix := next((p for p in PREFIXES if state and all(key.startswith(p) for key in state)), None):
        state = {key.removeprefix(prefix): value for key, value in state.items()}
        stripped.append(prefix)
        if len(state.keys() & wanted.keys()) > len(best.keys() & wanted.keys()):
            best, facts["stripped_prefix"] = state, "".join(stripped)
    return best


def mismatches(state: State, wanted: Mapping[str, Tensor], where: str) -> list[Problem]:
    """Every way in which a state dict does not fit; batch norm's counters may be absent: evaluation ignores them."""
    if not state.keys() & wanted.keys():
        actual = f"none of {len(state)} (it has {_examples(state)}; the network has {_examples(wanted)})"
        return [Problem(where, "weights whose keys match the network's", actual, "check the architecture's arguments")]
    missing = [key for key in wanted if key not in state and not key.endswith("num_batches_tracked")]
    surplus = [key for key in state if key not in wanted]
    shapes = [
        f"{key} {tuple(state[key].shape)} for {tuple(wanted[key].shape)}"
        for key in wanted
        if key in state and state[key].shape != wanted[key].shape
    ]
    kinds = [f"{key} {_kind(state[key])} for {_kind(wanted[key])}" for key in wanted if _other_kind(state, wanted, key)]
    broken = [key for key in state if _dense_floats(state[key]) and not bool(state[key].isfinite().all())]
    findings = {
        "every weight of the network": ("missing", missing),
        "no other weights": ("unexpected", surplus),
        "weights of the network's shapes": ("shapes", shapes),
        "weights of the network's kind of number": ("of another kind", kinds),
        "finite weights": ("NaN or infinity in", broken),
    }
    return [
        Problem(where, expected, f"{len(keys)} {word}: {_examples(keys)}")
        for expected, (word, keys) in findings.items()
        if keys
    ]


def _other_kind(state: State, wanted: Mapping[str, Tensor], key: str) -> bool:
    """Quantised integers would be taken for weights, and a sparse layout cannot be copied; half precision is fine."""
    tensor = state.get(key)
    if tensor is None:
        return False
    return tensor.layout != torch.strided or tensor.is_floating_point() != wanted[key].is_floating_point()


def _dense_floats(tensor: Tensor) -> bool:
    return tensor.layout == torch.strided and tensor.is_floating_point()


def _kind(tensor: Tensor) -> str:
    sparse = "" if tensor.layout == torch.strided else "sparse "
    return f"{sparse}{str(tensor.dtype).removeprefix('torch.')}"


def _examples(keys: Any) -> str:
    listed = list(keys)
    more = f" and {len(listed) - SHOWN} more" if len(listed) > SHOWN else ""
    return ", ".join(listed[:SHOWN]) + more
