"""Parquet files of others, read in steps: a few kilobytes can hold a value a million times."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from services.errors import Problem, SourceError
from services.loading.files import BOMB_FLOOR, BOMB_RATIO

ROWS = 256
"""Rows a step."""


def read_parquet(path: Path, where: str) -> Any:
    """A Parquet file as an Arrow table.

    Raises:
        SourceError: it unpacks to far more than its size.
        pyarrow.ArrowException, OSError: it is damaged.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    size, held, batches = path.stat().st_size, 0, []
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=ROWS):
            batches.append(batch)
            held += batch.nbytes
            if held > max(BOMB_FLOOR, BOMB_RATIO * size):
                expected = f"a table that unpacks to at most {BOMB_RATIO} times its size"
                raise SourceError(
                    Problem(where, expected, f"one of {size} bytes that unpacks to more than {held} bytes")
                )
        return pa.Table.from_batches(batches, schema=file.schema_arrow)
