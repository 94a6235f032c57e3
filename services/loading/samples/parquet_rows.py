"""Parquet and Arrow files of others, read in steps: a few kilobytes can hold a value a million times.

Arrow does not check what a file says of itself: offsets beyond a buffer show the process's memory. So all is validated.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.errors import Problem, SourceError
from services.loading.fingerprint import BOMB_FLOOR, BOMB_RATIO

ROWS = 256
"""Rows a step."""
CELL = 8
"""Bytes that a value takes at least, as a Python object."""


def read_parquet(path: Path, where: str) -> Any:
    """A Parquet file as an Arrow table.

    Raises:
        SourceError: it unpacks to far more than its size.
        pyarrow.ArrowException, OSError: it is damaged.
    """
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        return _table(file.iter_batches(batch_size=ROWS), file.schema_arrow, path.stat().st_size, where)


def read_arrow(path: Path, where: str) -> Any:
    """A stream of Arrow, as the datasets library keeps them, as a table; raises as `read_parquet`."""
    import pyarrow as pa

    with path.open("rb") as file, pa.ipc.open_stream(file) as stream:
        return _table(stream, stream.schema, path.stat().st_size, where)


def _table(batches: Iterable[Any], schema: Any, size: int, where: str) -> Any:
    """Batches of a file of so many bytes as one table."""
    import pyarrow as pa

    kept, held = [], 0
    for batch in batches:
        held += CELL * batch.num_rows * batch.num_columns  # there are values that take no room in a file
        if held <= (most := max(BOMB_FLOOR, BOMB_RATIO * size)):
            batch.validate(full=True)
            held += batch.nbytes + sum(map(_repeated, batch.columns))
        if held > most:
            expected = f"a table that unpacks to at most {BOMB_RATIO} times its size"
            raise SourceError(Problem(where, expected, f"one of {size} bytes that unpacks to more than {most} bytes"))
        kept.append(batch)
    return pa.Table.from_batches(kept, schema=schema)


def _repeated(column: Any) -> int:
    """Bytes that a column takes beyond what it holds, once its values stand in their rows."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_run_end_encoded(kind):
        raise TypeError(f"a column of {kind}")
    if not pa.types.is_dictionary(kind) or not _is_text(kind.value_type):
        return 0
    return int(pc.sum(pc.binary_length(column.dictionary).take(column.indices)).as_py() or 0)


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    tests = pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary
    return any(test(kind) for test in tests)


def matrix(column: Any) -> NDArray[np.float32]:
    """A column of N lists of K numbers each, (N, K) float32; no Python object is made of a number.

    Raises:
        TypeError: its values are no lists of numbers.
        ValueError: a list or a number is missing, or lists are of unequal lengths.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    nested = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    if not nested or not (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)):
        raise TypeError(f"a column of {kind}")
    if column.null_count:
        raise ValueError(f"{column.null_count} of {len(column)} lists missing")
    widths = pc.unique(pc.list_value_length(column)).to_pylist()
    if len(widths) != 1:
        raise ValueError(f"lists of {len(widths)} lengths")
    parts = [chunk.flatten() for chunk in column.chunks]
    if missing := sum(part.null_count for part in parts):
        raise ValueError(f"{missing} numbers missing")
    values = np.concatenate([part.to_numpy(zero_copy_only=False) for part in parts])
    return values.astype(np.float32, copy=False).reshape(len(column), widths[0])
