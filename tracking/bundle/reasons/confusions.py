"""The confusion matrices of a model as one Parquet table: a row for each cell that holds samples.

Columns: `series` and `title`; `label` and `class`; `predicted` and `taken_for` (-1 and "" for logits that are not
finite); `count` of `n` samples of the class, `share` with limits `low` and `high` that hold for all cells of a series
together; `clean_share`, the share without an attack, null where it is not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from services import limits
from services.errors import Problem, StorageError
from services.records import SCHEMA_VERSION, ModelSpec
from services.storage import files
from tracking.names import table_file

SCHEMA = pa.schema(
    [
        ("series", pa.string()),
        ("title", pa.string()),
        ("label", pa.int64()),
        ("class", pa.string()),
        ("predicted", pa.int64()),
        ("taken_for", pa.string()),
        ("count", pa.int64()),
        ("n", pa.int64()),
        ("share", pa.float64()),
        ("low", pa.float64()),
        ("high", pa.float64()),
        ("clean_share", pa.float64()),
    ],
    {"schema_version": str(SCHEMA_VERSION)},
)


@dataclass(frozen=True)
class Cells:
    """The cells (M,) of one series' confusion matrix that hold samples.

    Attributes:
        series, title: of the series.
        classes: names, K.
        labels, predicted: of each cell; -1 where logits were not finite.
        counts, totals: samples in the cell and of its class.
        low, high: limits of the share.
        clean: share of the same cell without an attack; None where that is not known.
    """

    series: str
    title: str
    classes: tuple[str, ...]
    labels: NDArray[np.int64]
    predicted: NDArray[np.int64]
    counts: NDArray[np.int64]
    totals: NDArray[np.int64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    clean: NDArray[np.float64] | None


def confusion_file(folder: str, index: int, spec: ModelSpec) -> str:
    """Where a bundle keeps the confusion matrices of a model."""
    return files.join(folder, "confusions", table_file(index, spec.name))


def write_confusions(folder: str, index: int, spec: ModelSpec, parts: Iterable[Cells]) -> None:
    """Write the table; no file where no predictions are known."""
    if tables := [_table(part) for part in parts]:
        files.write(confusion_file(folder, index, spec), partial(_fill, pa.concat_tables(tables)))


def _fill(table: pa.Table, file: IO[bytes]) -> None:
    pq.write_table(table, file, compression="zstd")


def _table(part: Cells) -> pa.Table:
    names = np.array([*part.classes, ""], dtype=object)
    size = len(part.labels)
    columns: list[Any] = [
        [part.series] * size,
        [part.title] * size,
        part.labels,
        names[part.labels],
        part.predicted,
        names[part.predicted],
        part.counts,
        part.totals,
        part.counts / np.maximum(part.totals, 1),
        part.low,
        part.high,
        [None] * size if part.clean is None else part.clean,
    ]
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


def read_confusions(folder: str, index: int, spec: ModelSpec) -> list[Cells]:
    """The cells of each series; empty for bundles of older versions, and where no predictions are known.

    Raises:
        StorageError: the table is damaged.
    """
    path = confusion_file(folder, index, spec)
    if not files.exists(path):
        return []
    try:
        return list(_parts(pq.read_table(pa.BufferReader(files.read_bytes(path, most=limits.FILE)))))
    except (OSError, pa.ArrowException, LookupError, ValueError) as error:
        raise StorageError(Problem(path, "a table of confusions", " ".join(str(error).split())[:300])) from error


def _parts(table: pa.Table) -> Iterator[Cells]:
    columns = {name: table.column(name).to_numpy() for name in table.column_names}
    for key in dict.fromkeys(columns["series"].tolist()):
        rows = columns["series"] == key
        own = {name: values[rows] for name, values in columns.items()}
        names = dict(zip(own["label"].tolist(), own["class"].tolist(), strict=True))
        names |= {
            k: name for k, name in zip(own["predicted"].tolist(), own["taken_for"].tolist(), strict=True) if k >= 0
        }
        classes = tuple(names.get(k, str(k)) for k in range(max(names, default=-1) + 1))
        unknown = np.isnan(own["clean_share"].astype(float)).all()
        yield Cells(
            key,
            own["title"][0],
            classes,
            own["label"],
            own["predicted"],
            own["count"],
            own["n"],
            own["low"],
            own["high"],
            None if unknown else own["clean_share"].astype(float),
        )
