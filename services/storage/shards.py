"""Parquet shards of logits and of score tables: the only form in which per-sample results leave a worker.

A table of one model and one measure is a folder named by its cache key; each shard in it is a file named by its rows,
``000000000-000001000.parquet``. Names say what is there, so finding what is left to do is one listing.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from services.errors import Problem, StorageError
from services.records import SCHEMA_VERSION
from services.storage import files

_END = b"PAR1"
"""The last bytes of a whole Parquet file."""
_NAME = re.compile(r"^(\d{9})-(\d{9})\.parquet$")


def shard_name(start: int, stop: int) -> str:
    """File name of the shard of rows [start, stop)."""
    return f"{start:09d}-{stop:09d}.parquet"


def shard_ranges(count: int, size: int) -> list[tuple[int, int]]:
    """Cut [0, count) into ranges of at most `size`."""
    return [(start, min(start + size, count)) for start in range(0, count, size)]


def finished_ranges(folder: str) -> set[tuple[int, int]]:
    """Row ranges of the shards that are complete in `folder`: one without its end, from a failed disk, is not."""
    matches = [match for name in files.listing(folder) if (match := _NAME.match(name))]
    return {(int(match[1]), int(match[2])) for match in matches if files.ends_with(f"{folder}/{match[0]}", _END)}


def missing_ranges(count: int, size: int, finished: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """What is left of [0, count) given the finished ranges, whatever shard size they were cut with.

    Finished ranges are used only as they chain from the left without overlap, so that a table is read from disjoint
    shards; the gaps are cut into ranges of at most `size`.
    """
    left: list[tuple[int, int]] = []
    position = 0
    for start, stop in chain(count, finished):
        left += [(position + a, position + b) for a, b in shard_ranges(start - position, size)]
        position = stop
    return left + [(position + a, position + b) for a, b in shard_ranges(count - position, size)]


def chain(count: int, finished: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Disjoint finished ranges within [0, count), left to right: an exact cover if there is one, else a greedy choice.

    Ranges of different shard sizes may lie in one folder, when an audit was resumed with another size.
    """
    ranges = sorted({pair for pair in finished if pair[1] <= count}, key=lambda pair: (pair[0], -pair[1]))
    return _exact_cover(count, ranges) or _greedy(ranges)


def _exact_cover(count: int, ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Walk back from `count` over the last range on a path to each position; empty when 0 is not connected to it."""
    last: dict[int, tuple[int, int]] = {}
    for start, stop in ranges:
        if start == 0 or start in last:
            last.setdefault(stop, (start, stop))
    path: list[tuple[int, int]] = []
    position = count
    while position and position in last:
        path.append(last[position])
        position = last[position][0]
    return path[::-1] if position == 0 else []


def _greedy(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    chosen: list[tuple[int, int]] = []
    for start, stop in ranges:
        if start >= (chosen[-1][1] if chosen else 0):
            chosen.append((start, stop))
    return chosen


def write_shard(url: str, columns: Mapping[str, NDArray[Any]]) -> None:
    """Write columns as Parquet; a 2-d column becomes a fixed-size list. NaN and infinity are kept as they are."""
    arrays = {name: _to_arrow(values) for name, values in columns.items()}
    table = pa.table(arrays).replace_schema_metadata({"schema_version": str(SCHEMA_VERSION)})
    files.write(url, lambda file: pq.write_table(table, file, compression="zstd"))


def read_shard(url: str, columns: Sequence[str] | None = None) -> dict[str, NDArray[Any]]:
    """Read a shard back as arrays.

    Raises:
        StorageError: the file is missing, torn, or written by a newer classwise.
    """
    try:
        table = pq.read_table(io.BytesIO(files.read_bytes(url)), columns=list(columns) if columns else None)
        version = int((table.schema.metadata or {}).get(b"schema_version", b"0"))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _damaged(url, error) from error
    if version > SCHEMA_VERSION:
        raise StorageError(Problem(url, f"schema_version up to {SCHEMA_VERSION}", str(version), "update classwise"))
    try:
        return {name: _to_numpy(table[name]) for name in table.column_names}
    except (pa.ArrowException, ValueError) as error:  # text that is none
        raise _damaged(url, error) from error


def _damaged(url: str, error: Exception) -> StorageError:
    remedy = "delete the file; the audit makes it again"
    return StorageError(Problem(url, "a Parquet shard", str(error).splitlines()[0], remedy))


def read_table(folder: str, count: int, columns: Sequence[str] | None = None) -> dict[str, NDArray[Any]]:
    """Read the columns of all shards of a table, in row order.

    Raises:
        StorageError: rows are missing.
    """
    ranges = chain(count, finished_ranges(folder))
    if sum(stop - start for start, stop in ranges) != count:
        raise StorageError(Problem(folder, f"shards that cover {count} rows", f"{ranges[:5]}", "run the audit again"))
    parts = [read_shard(files.join(folder, shard_name(*pair)), columns) for pair in ranges]
    return {name: np.concatenate([part[name] for part in parts]) for name in (parts[0] if parts else ())}


def _to_arrow(values: NDArray[Any]) -> Any:
    if values.ndim == 1:
        return pa.array(values)
    flat = pa.array(np.ascontiguousarray(values).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, values.shape[1])


def _to_numpy(column: Any) -> NDArray[Any]:
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks == 1 else pa.concat_arrays(array.chunks)
    if pa.types.is_fixed_size_list(array.type):
        width = array.type.list_size
        flat: NDArray[Any] = array.flatten().to_numpy(zero_copy_only=False)
        return flat.reshape(-1, width)
    plain: NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return plain
