"""The gallery of a model in a bundle: a Parquet table of samples with their pictures as PNG.

Columns: `id` and, where images have names, `key`; `label`, `before` and `after`, the predicted classes without and with
the attack (-1: logits not finite), and their names (`label_name` ...); `attack`; `rank` of the sample among the `of`
samples of its class that the attack broke; and those of `services.measures.parts.examples`: `margin_before`,
`margin_after`, `l2`, `linf`, `gain`, `rounded`, `original`, `adversarial`, `perturbation`.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from services.records import ModelSpec
from services.storage import files
from services.storage.shards import read_shard, write_shard
from tracking.names import table_file

PICTURES = ("original", "adversarial", "perturbation")

Gallery = dict[str, NDArray[Any]]


def gallery_file(folder: str, index: int, spec: ModelSpec) -> str:
    """Where a bundle keeps the gallery of a model."""
    return files.join(folder, "gallery", table_file(index, spec.name))


def write_gallery(folder: str, index: int, spec: ModelSpec, columns: Gallery) -> None:
    """Keep the gallery in the bundle."""
    write_shard(gallery_file(folder, index, spec), columns)


def read_gallery(folder: str, index: int, spec: ModelSpec) -> Gallery:
    """The gallery of a model, empty where the bundle has none.

    Raises:
        StorageError: it is damaged.
    """
    path = gallery_file(folder, index, spec)
    return read_shard(path) if files.exists(path) else {}
