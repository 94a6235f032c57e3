"""State dicts from files: safetensors, or a checkpoint that loads with weights only; then loaded strictly.

What training code wraps around weights, keys of a checkpoint and prefixes of its names, is taken off where the network
shows what belongs to it (`candidates`), and written to the facts. Nothing is loaded in part.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from services.errors import Problem, SourceError, examples, one_line
from services.loading.fingerprint import existing, file_kind
from services.loading.models.candidates import State, choose, without

REMEDIES = {"unexpected": "leave out what evaluation does not use with &drop_keys=PREFIX"}


def load_weights(
    network: nn.Module,
    path: Path,
    *,
    where: str,
    allow_unpickling: bool = False,
    key: str | None = None,
    drop_keys: str | None = None,
) -> dict[str, Any]:
    """Load `path` into `network` strictly and return facts on how.

    Args:
        key: name of the state dict in the file, where several fit the network.
        drop_keys: beginning of keys that are left out, of an auxiliary head for example.

    Raises:
        SourceError: the file is not weights, needs unpickling that is not permitted, holds several sets of weights of
            which none was chosen, or does not match key for key and shape for shape.
    """
    facts: dict[str, Any] = {}
    raw = read_checkpoint(path, where=where, allow_unpickling=allow_unpickling, facts=facts)
    chosen = choose(raw, network.state_dict(), where=where, key=key)
    state = chosen.state if drop_keys is None else without(chosen.state, drop_keys, where)
    facts |= {"checkpoint_keys": list(chosen.keys)} if chosen.keys else {}
    facts |= {"stripped_prefix": chosen.stripped} if chosen.stripped else {}
    facts |= {"dropped_keys": len(chosen.state) - len(state)} if drop_keys is not None else {}
    if problems := mismatches(state, network.state_dict(), where):
        raise SourceError(problems)
    network.load_state_dict(state, strict=False)
    return facts


def read_checkpoint(path: Path, *, where: str, allow_unpickling: bool, facts: dict[str, Any]) -> Any:
    """The object a checkpoint file holds."""
    file = existing(path, where)
    kind = file_kind(file, where)
    if kind == "safetensors":
        return _safetensors(file, where)
    if kind not in {"zip", "pickle"}:
        expected = "safetensors or a PyTorch checkpoint"
        raise SourceError(Problem(where, expected, f"a file of kind {kind}", f"check {path}"))
    try:
        return torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:
        if not allow_unpickling or not _needs_unpickling(error):
            raise SourceError(load_problem(error, where)) from error
    facts["unpickled"] = True
    return torch.load(file, map_location="cpu", weights_only=False)


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


def mismatches(state: State, wanted: Mapping[str, Tensor], where: str) -> list[Problem]:
    """Every way in which a state dict does not fit; batch norm's counters may be absent: evaluation ignores them."""
    if not state.keys() & wanted.keys():
        actual = f"none of {len(state)} (it has {examples(state)}; the network has {examples(wanted)})"
        return [Problem(where, "weights whose keys match the network's", actual, "check the architecture's arguments")]
    missing = [key for key in wanted if key not in state and not key.endswith("num_batches_tracked")]
    surplus = [key for key in state if key not in wanted]
    shapes = [
        f"{key} {tuple(state[key].shape)} for {tuple(wanted[key].shape)}"
        for key in wanted
        if key in state and state[key].shape != wanted[key].shape
    ]
    kinds = [f"{key} {_kind(state[key])} for {_kind(wanted[key])}" for key in wanted if _other_kind(state, wanted, key)]
    fitting = [key for key in state if key in wanted and state[key].shape == wanted[key].shape]
    broken = [key for key in fitting if _dense_floats(state[key]) and not bool(state[key].isfinite().all())]
    findings = {
        "every weight of the network": ("missing", missing),
        "no other weights": ("unexpected", surplus),
        "weights of the network's shapes": ("shapes", shapes),
        "weights of the network's kind of number": ("of another kind", kinds),
        "finite weights": ("NaN or infinity in", broken),
    }
    return [
        Problem(where, expected, f"{len(keys)} {word}: {examples(keys)}", REMEDIES.get(word, ""))
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
