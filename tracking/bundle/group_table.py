"""The per-group table of a model: one row a series, grouping and group, as Parquet and as plain rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from services.records import SCHEMA_VERSION, AuditResult, GroupScore, ModelResult, SeriesResult
from tracking.names import table_file

SCHEMA = pa.schema(
    [
        ("model", pa.string()),
        ("series", pa.string()),
        ("title", pa.string()),
        ("unit", pa.string()),
        ("bound", pa.float64()),
        ("binary", pa.bool_()),
        ("conditional", pa.bool_()),
        ("grouping", pa.string()),
        ("index", pa.int64()),
        ("group", pa.string()),
        ("n", pa.int64()),
        ("n_all", pa.int64()),
        ("score", pa.float64()),
        ("low", pa.float64()),
        ("high", pa.float64()),
        ("vacuous", pa.bool_()),
        ("reason", pa.string()),
        ("worst", pa.bool_()),
        ("not_separated", pa.bool_()),
        ("method", pa.string()),
        ("delta", pa.float64()),
    ]
)
"""Columns every table has; a group's extras follow as ``extra.NAME`` columns of float64."""


def finite(value: float | None) -> float | None:
    """`value`, or None where it is missing, NaN or infinite: the last gate before a file or a server."""
    return None if value is None or not math.isfinite(value) else float(value)


def _row(model: str, result: SeriesResult, group: GroupScore) -> dict[str, Any]:
    series, score = result.series, group.score
    return {
        "model": model,
        "series": series.key,
        "title": series.title,
        "unit": series.unit,
        "bound": finite(series.bound),
        "binary": series.binary,
        "conditional": series.conditional,
        "grouping": result.grouping,
        "index": group.index,
        "group": group.name,
        "n": group.n,
        "n_all": group.n_all,
        "score": finite(score.value),
        "low": finite(score.low),
        "high": finite(score.high),
        "vacuous": score.vacuous,
        "reason": score.reason,
        "worst": group.name in result.worst,
        "not_separated": group.name in result.not_separated,
        "method": result.method,
        "delta": finite(result.delta),
        **{f"extra.{name}": finite(value) for name, value in group.extras.items()},
    }


def rows(model: ModelResult) -> Iterator[dict[str, Any]]:
    """Every group of every series and grouping, in the order of the record."""
    for result in model.series:
        for group in result.groups:
            yield _row(model.spec.name, result, group)


def table(model: ModelResult) -> pa.Table:
    """The rows as one Arrow table; extras that only some series have are null elsewhere."""
    records = list(rows(model))
    extras = sorted({name for row in records for name in row if name.startswith("extra.")})
    schema = SCHEMA
    for name in extras:
        schema = schema.append(pa.field(name, pa.float64()))
    return pa.Table.from_pylist(records, schema=schema.with_metadata({"schema_version": str(SCHEMA_VERSION)}))


def fill_parquet(model: ModelResult, file: IO[bytes]) -> None:
    """Write the model's table to an open file."""
    pq.write_table(table(model), file, compression="zstd")


def file_of(result: AuditResult, index: int) -> str:
    """Name of a model's table in the bundle."""
    return table_file(index, result.models[index].spec.name)
