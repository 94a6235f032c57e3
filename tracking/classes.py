"""Reads the groups of one series from a bundle's Parquet table, without the rest of the audit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from services import storage
from services.errors import Problem, StorageError
from services.records import Estimate, GroupScore

COLUMNS = ("index", "group", "n", "n_all", "score", "low", "high", "vacuous", "reason", "worst", "not_separated")


@dataclass(frozen=True, slots=True)
class GroupRow:
    """One group's score, whether it is the worst, and whether its interval overlaps that of the worst."""

    group: GroupScore
    worst: bool
    close: bool


def read_groups(path: str, key: str, grouping: str) -> list[GroupRow]:
    """The groups of the series `key` over `grouping` in the table at `path`, in the order of the record.

    Raises:
        StorageError: the table is not there, damaged, or none of classwise.
    """
    fs, inner = storage.filesystem(path)
    wanted = [("series", "=", key), ("grouping", "=", grouping)]
    try:
        with fs.open(inner, "rb") as file:
            found = pq.read_table(file, columns=list(COLUMNS), filters=wanted)
    except (OSError, pa.ArrowException) as error:
        said = " ".join(str(error).split())[:300]
        raise StorageError(Problem(path, "a table of classwise", said, "audit again")) from error
    return [_row(row) for row in found.to_pylist()]


def _row(row: dict[str, Any]) -> GroupRow:
    score = Estimate(row["score"], row["low"], row["high"], str(row["reason"] or ""), bool(row["vacuous"]))
    group = GroupScore(row["index"], str(row["group"]), row["n"], row["n_all"], score)
    return GroupRow(group, bool(row["worst"]), bool(row["not_separated"]))
