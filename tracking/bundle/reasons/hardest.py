"""The hardest samples of a fleet in a bundle: a Parquet table, the hardest first.

Columns: `id` and, where images have names, `key`; `label` and `label_name`; of `models` models how many are `wrong`,
and how many (`votes`) predict the class `consensus` (`consensus_name`; -1 and "" for none); in how many an attack broke
the sample (`broken`); `nearest`, the smallest distance at which one did, NaN where that is not known; `picture`, PNG or
empty.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from services.storage import files
from services.storage.shards import read_shard, write_shard

HARDEST = "hardest.parquet"
MOST = 200
"""Samples."""


def write_hardest(folder: str, columns: dict[str, NDArray[Any]]) -> None:
    """Keep the table in the bundle."""
    write_shard(files.join(folder, HARDEST), columns)


def read_hardest(folder: str) -> dict[str, NDArray[Any]]:
    """The table, empty where the bundle has none.

    Raises:
        StorageError: it is damaged.
    """
    path = files.join(folder, HARDEST)
    return read_shard(path) if files.exists(path) else {}
