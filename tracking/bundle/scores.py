"""Per-sample scores of a model, kept in the bundle and read back by a later audit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from services.records import ModelSpec
from services.storage import files
from services.storage.shards import read_shard, write_shard
from tracking.names import table_file

Scores = dict[str, NDArray[Any]]
"""Columns (n,) of one model: a series under its key, another column of a measure under `beside` its first series."""
CLUSTER = "cluster"
"""Column of whole numbers: which samples belong together; absent where all are independent."""
_MARK = ":"


def beside(key: str, name: str) -> str:
    """What a measure's column is called in the scores of a model, by the key of the measure's first series."""
    return f"{key}{_MARK}{name}"


def columns_beside(scores: Scores, key: str) -> Scores:
    """The columns beside a measure's first series, as the measure calls them."""
    parts = ((*name.partition(_MARK), values) for name, values in scores.items())
    return {name: values for first, mark, name, values in parts if mark and first == key}


def score_file(folder: str, index: int, spec: ModelSpec) -> str:
    """Where a bundle keeps the per-sample scores of a model."""
    return files.join(folder, "scores", table_file(index, spec.name))


def write_scores(folder: str, index: int, spec: ModelSpec, scores: Scores) -> None:
    """Keep the per-sample scores in the bundle."""
    write_shard(score_file(folder, index, spec), scores)


def read_kept_scores(folder: str, index: int, spec: ModelSpec, columns: Sequence[str] | None = None) -> Scores:
    """Read the per-sample scores back from a bundle, all columns or those asked for.

    What an audit that decides early did not measure is NaN.
    """
    return read_shard(score_file(folder, index, spec), columns)
