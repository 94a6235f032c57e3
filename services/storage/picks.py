"""Shards of picked rows beside the shards of ranges: what an audit that decides early has measured of a table.

``rows-DIGEST.parquet`` holds the rows that its column `row` lists, in the order in which they were picked. A table may
have both; a full audit takes over the picked rows when it makes the shard of a range, which is then what it would have
been without them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.errors import Problem, StorageError
from services.records import digest_of
from services.storage import files
from services.storage.shards import chain, finished_ranges, read_shard, shard_name

ROW = "row"
_NAME = re.compile(r"^rows-[0-9a-f]{16}\.parquet$")
_END = b"PAR1"

Columns = dict[str, NDArray[Any]]


def pick_name(rows: Sequence[int]) -> str:
    """File name of the shard of these rows."""
    return f"rows-{digest_of(list(rows))[:16]}.parquet"


def finished_picks(folder: str) -> list[str]:
    """Paths of the complete shards of picked rows, sorted."""
    names = sorted(name for name in files.listing(folder) if _NAME.match(name))
    return [path for name in names if files.ends_with(path := files.join(folder, name), _END)]


def known_rows(folder: str, count: int) -> NDArray[np.bool_]:
    """(count,) which rows of the table are there, in whatever shard."""
    known = np.zeros(count, dtype=bool)
    for start, stop in chain(count, finished_ranges(folder)):
        known[start:stop] = True
    for path in finished_picks(folder):
        known[_rows(read_shard(path, [ROW]), count, path)] = True
    return known


def read_rows(folder: str, count: int, rows: NDArray[np.int64]) -> Columns:
    """Columns of the rows asked for, in that order.

    Raises:
        StorageError: some are missing.
    """
    place = np.full(count, -1)
    place[rows] = np.arange(len(rows))
    columns: Columns = {}
    filled = np.zeros(len(rows), dtype=bool)
    for there, part in _parts(folder, count, place):
        kept = place[there] >= 0
        to = place[there][kept]
        for name, values in part.items():
            whole = columns.setdefault(name, np.zeros((len(rows), *values.shape[1:]), dtype=values.dtype))
            whole[to] = values[kept]
        filled[to] = True
    if not filled.all():
        missing = f"{int((~filled).sum())} of them missing"
        raise StorageError(Problem(folder, f"{len(rows)} picked rows", missing, "run the audit again"))
    return columns


def _parts(folder: str, count: int, place: NDArray[np.int64]) -> list[tuple[NDArray[np.int64], Columns]]:
    """Rows and columns of every shard that holds a row with a place."""
    parts: list[tuple[NDArray[np.int64], Columns]] = []
    for pair in chain(count, finished_ranges(folder)):
        if (place[slice(*pair)] >= 0).any():
            parts.append((np.arange(*pair), read_shard(files.join(folder, shard_name(*pair)))))
    for path in finished_picks(folder):
        columns = read_shard(path)
        there = _rows(columns, count, path)
        parts.append((there, {name: values for name, values in columns.items() if name != ROW}))
    return parts


def _rows(columns: Columns, count: int, path: str) -> NDArray[np.int64]:
    rows = columns.get(ROW)
    if rows is None or rows.dtype.kind != "i" or (rows.size and not 0 <= rows.min() <= rows.max() < count):
        raise StorageError(Problem(path, f"rows in [0, {count})", "others", "delete the file"))
    return rows.astype(np.int64)


def kept_rows(paths: Sequence[str], start: int, stop: int) -> Columns:
    """Columns of the picked rows within [start, stop), each row once, with the column `row`; empty without any."""
    parts = [columns for path in paths if (columns := _within(read_shard(path), start, stop))[ROW].size]
    if not parts:
        return {}
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    _, first = np.unique(columns[ROW], return_index=True)
    return {name: values[first] for name, values in columns.items()}


def _within(columns: Columns, start: int, stop: int) -> Columns:
    inside = (columns[ROW] >= start) & (columns[ROW] < stop)
    return {name: values[inside] for name, values in columns.items()}
