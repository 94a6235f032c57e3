"""Pictures of the slices of a model in a bundle, and what slices mean in words.

Columns: `slice`, the place of the slice in the model's record; `id`, `label`; `picture`, PNG.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from services.records import ModelSpec, SliceResult
from services.storage import files
from services.storage.shards import read_shard, write_shard
from tracking.names import table_file


def slice_file(folder: str, index: int, spec: ModelSpec) -> str:
    """Where a bundle keeps the pictures of a model's slices."""
    return files.join(folder, "slices", table_file(index, spec.name))


def write_slices(folder: str, index: int, spec: ModelSpec, columns: dict[str, NDArray[Any]]) -> None:
    """Keep the pictures in the bundle."""
    write_shard(slice_file(folder, index, spec), columns)


def read_slices(folder: str, index: int, spec: ModelSpec) -> dict[str, NDArray[Any]]:
    """The pictures of a model's slices, empty where the bundle has none.

    Raises:
        StorageError: the file is damaged.
    """
    path = slice_file(folder, index, spec)
    return read_shard(path) if files.exists(path) else {}


def slice_words(each: SliceResult) -> str:
    """``brightness at least 0.61``, ``a cluster of the embedding``."""
    if each.low is None and each.high is None:
        return "a cluster of the embedding"
    if each.high is None:
        return f"{each.source} at least {each.low:.3g}"
    if each.low is None:
        return f"{each.source} below {each.high:.3g}"
    return f"{each.source} from {each.low:.3g} to {each.high:.3g}"
