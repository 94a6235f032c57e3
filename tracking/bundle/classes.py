"""Reads the groups of one series from a bundle's Parquet table, without the rest of the audit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from services import limits
from services.errors import Problem, StorageError
from services.records import Estimate, GroupScore
from services.storage import files

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
    return [_row(row) for row in _read(path, key, grouping, COLUMNS).to_pylist()]


def read_scores(path: str, key: str, grouping: str) -> dict[int, tuple[str, float | None]]:
    """Name and mean score of each group by its index: all that a picture of many models takes.

    Raises:
        StorageError: as `read_groups`.
    """
    table = _read(path, key, grouping, ("index", "group", "score"))
    index, names, scores = (table.column(name).to_pylist() for name in ("index", "group", "score"))
    return {place: (str(name), score) for place, name, score in zip(index, names, scores, strict=True)}


def _read(path: str, key: str, grouping: str, columns: Sequence[str]) -> pa.Table:
    try:
        data = files.read_bytes(path, most=limits.FILE)
        table = pq.ParquetFile(pa.BufferReader(data)).read(columns=[*columns, "series", "grouping"])
        wanted = pc.and_(pc.equal(table.column("series"), key), pc.equal(table.column("grouping"), grouping))
        return table.filter(wanted).select(list(columns))
    except (OSError, pa.ArrowException, LookupError, ValueError, StorageError) as error:
        reason = error.problems[0].found if isinstance(error, StorageError) else " ".join(str(error).split())[:300]
        raise StorageError(Problem(path, "a table of classwise", reason, "audit again")) from error


def _row(row: dict[str, Any]) -> GroupRow:
    score = Estimate(row["score"], row["low"], row["high"], str(row["reason"] or ""), bool(row["vacuous"]))
    group = GroupScore(row["index"], str(row["group"]), row["n"], row["n_all"], score)
    return GroupRow(group, bool(row["worst"]), bool(row["not_separated"]))
