"""Weights and progress as safetensors, written whole or not at all, on a local path or any fsspec URL.

Two files in a run's storage. `model.safetensors` is a plain state dict of the selected weights, ready for
`factory:...?weights=FILE`. `progress.safetensors` is what a resumed run needs: weights, their average, momentum,
class-wise state and the records so far. No generator state is kept, for every draw is keyed by (seed, epoch, step).
Nothing is pickled.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from services.errors import Problem, StorageError
from services.loading.fingerprint import SAFETENSORS_HEADER_LIMIT, safetensors_size
from services.records import SCHEMA_VERSION
from services.storage import files, plainjson
from services.training.counts import ClassCounts, EpochRecord
from services.training.step import State

MODEL = "model.safetensors"
PROGRESS = "progress.safetensors"
_FACTS = ("identity", "state", "records", "stopped", "reason")


@dataclass(frozen=True)
class Progress:
    """All that a run needs to go on from the end of an epoch.

    Attributes:
        identity: digest of method, recipe, data and network; a run resumes only its own progress.
        model: state dict.
        momentum: the optimiser's state by name.
        state: the method's class-wise state for the next epoch.
        records: one an epoch done.
        stopped: "" while epochs remain; else "finished", "early-stop" or "diverged".
        reason: a sentence on why.
        average: averaged state dict; empty before the first epoch is taken in, and without averaging.
    """

    identity: str
    model: dict[str, Tensor]
    momentum: dict[str, Tensor]
    state: State
    records: tuple[EpochRecord, ...]
    stopped: str = ""
    reason: str = ""
    average: dict[str, Tensor] = field(default_factory=dict)


def save_weights(url: str, weights: Mapping[str, Tensor], facts: Mapping[str, Any] | None = None) -> None:
    """Write a state dict atomically; `facts` go into the header as JSON.

    Under one key, for safetensors writes several in any order, and equal weights shall be equal files.
    """
    header = {"facts": json.dumps({"schema_version": SCHEMA_VERSION, **(facts or {})}, sort_keys=True)}
    files.write_bytes(url, safetensors.torch.save({name: plain(value) for name, value in weights.items()}, header))


def load_weights(url: str) -> dict[str, Tensor]:
    """Read a state dict.

    Raises:
        StorageError: there is no file, or it is no safetensors file.
    """
    return load_tensors(url)[0]


def is_whole(url: str) -> bool:
    """Whether a safetensors file has the size that its header, all that is read of it, says; False without a file.

    Raises:
        StorageError: it cannot be read, which says nothing about the file.
    """
    try:
        size, _ = files.stamp(url)
        length = int.from_bytes(files.read_bytes(url, 0, 8), "little")
        if length > min(size - 8, SAFETENSORS_HEADER_LIMIT):
            return False
        return safetensors_size(files.read_bytes(url, 8, 8 + length)) == size
    except StorageError as error:
        if files.is_outage(error):
            raise
        return False


def save_progress(folder: str, progress: Progress) -> None:
    """Replace the progress of a run."""
    tensors = {f"model.{name}": value for name, value in progress.model.items()}
    tensors |= {f"momentum.{name}": value for name, value in progress.momentum.items()}
    tensors |= {f"average.{name}": value for name, value in progress.average.items()}
    facts = {
        "identity": progress.identity,
        "state": progress.state,
        "records": [asdict(record) for record in progress.records],
        "stopped": progress.stopped,
        "reason": progress.reason,
    }
    save_weights(files.join(folder, PROGRESS), tensors, facts)


def load_progress(folder: str) -> Progress | None:
    """Read the progress of a run; None when it has none.

    Raises:
        StorageError: the file is damaged.
    """
    url = files.join(folder, PROGRESS)
    if not files.exists(url):
        return None
    tensors, facts = load_tensors(url)
    if missing := [name for name in _FACTS if name not in facts]:
        actual = f"one without {', '.join(missing)}"
        raise StorageError(Problem(url, "the progress of a training run", actual, "remove the file and train again"))
    try:
        return _progress(tensors, facts)
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        actual, remedy = f"{type(error).__name__}: {error}", "remove the file and train again"
        raise StorageError(Problem(url, "the progress of a training run", actual, remedy)) from error


def _progress(tensors: dict[str, Tensor], facts: dict[str, Any]) -> Progress:
    return Progress(
        identity=facts["identity"],
        model=below("model.", tensors),
        momentum=below("momentum.", tensors),
        state={name: tuple(values) for name, values in facts["state"].items()},
        records=tuple(_record(fields) for fields in facts["records"]),
        stopped=facts["stopped"],
        reason=facts["reason"],
        average=below("average.", tensors),
    )


def plain(value: Tensor) -> Tensor:
    """A contiguous copy on the CPU that shares no memory: tied weights would be refused, and training goes on."""
    return value.detach().cpu().clone(memory_format=torch.contiguous_format)


def load_tensors(url: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read tensors by name and the facts beside them.

    Raises:
        StorageError: there is no file, or it is no safetensors file.
    """
    data = files.read_bytes(url)
    try:
        length = int.from_bytes(data[:8], "little")
        header = plainjson.parsed(data[8 : 8 + length]).get("__metadata__", {})
        return safetensors.torch.load(data), plainjson.parsed(header.get("facts", "{}"))
    except (SafetensorError, ValueError, AttributeError, TypeError, OverflowError) as error:
        remedy = "remove the file and train again"
        raise StorageError(Problem(url, "a complete safetensors file", str(error), remedy)) from error


def below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names begin so, under the rest of their names."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _record(fields: dict[str, Any]) -> EpochRecord:
    counts = {
        key: None
        if fields[key] is None
        else ClassCounts(**{name: _tuple(value) for name, value in fields[key].items()})
        for key in ("train", "validation")
    }
    return EpochRecord(**{**fields, **counts, "held_losses": _tuple(fields.get("held_losses"))})


def _tuple(value: Any) -> Any:
    return None if value is None else tuple(value)
