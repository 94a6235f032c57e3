"""Attributes of an audit as flat values: metrics for MLflow, rows for a Parquet file, cells for the report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from services.records import SCHEMA_VERSION, AuditResult, Estimate, FairnessResult, ModelResult, ProjectionResult
from tracking.bundle.group_table import finite
from tracking.bundle.summary import bounds
from tracking.names import metric_key, series_key

FILE = "fairness.parquet"
SCHEMA = pa.schema(
    [
        ("model", pa.string()),
        ("kind", pa.string()),
        ("of", pa.string()),
        ("index", pa.int64()),
        ("what", pa.string()),
        ("metric", pa.string()),
        ("n", pa.int64()),
        ("value", pa.float64()),
        ("low", pa.float64()),
        ("high", pa.float64()),
        ("reason", pa.string()),
    ]
)
"""One row a number. `kind` is "gap" (`of` an attribute, `what` a class, `n` its samples), "dimension" (`of` a series,
`what` a latent dimension) or "group" (`of` a series and grouping, `what` a group)."""


def has_attributes(model: ModelResult) -> bool:
    """Whether anything is known of attributes."""
    return bool(model.fairness or model.projection)


def attribute_metrics(model: ModelResult) -> dict[str, float]:
    """MLflow metrics: ``fairness/by-sex/eodd`` of the worst decision, ``projection/dev``, ``projection/tol/d003``."""
    numbers: dict[str, float] = {}
    for result in model.fairness:
        for metric, estimate in result.worst.items():
            numbers |= bounds(metric_key(series_key("fairness", result.grouping), metric), estimate)
    for projection in model.projection:
        stem = projection.label
        numbers |= bounds(metric_key(stem, "dev"), projection.overall.dev) | bounds(
            metric_key(stem, "cou"), projection.overall.cou
        )
        for dimension in projection.dimensions:
            numbers |= bounds(metric_key(stem, "tol", f"d{dimension.index:03d}"), dimension.tol)
    return numbers


def fill_attributes(model: ModelResult, file: IO[bytes]) -> None:
    """Write all numbers about attributes to an open file."""
    schema = SCHEMA.with_metadata({"schema_version": str(SCHEMA_VERSION)})
    pq.write_table(pa.Table.from_pylist(list(attribute_rows(model)), schema=schema), file, compression="zstd")


def attribute_rows(model: ModelResult) -> Iterator[dict[str, Any]]:
    """Every number about attributes, in the order of the record."""
    for result in model.fairness:
        for task in result.tasks:
            for metric, estimate in task.gaps.items():
                yield _row(model, "gap", result.grouping, (task.index, task.task), metric, task.positives, estimate)
    for projection in model.projection:
        yield from _projected(model, projection)


def _projected(model: ModelResult, projection: ProjectionResult) -> Iterator[dict[str, Any]]:
    for axis in projection.dimensions:
        for metric, estimate in (("tol", axis.tol), ("dev", axis.dev)):
            yield _row(
                model, "dimension", projection.series, (axis.index, axis.name), metric, projection.overall.n, estimate
            )
    for grouping, groups in projection.groups.items():
        of = series_key(projection.series, grouping)
        for index, group in enumerate(groups):
            for metric, estimate in (("tol", group.tol), ("dev", group.dev), ("cou", group.cou)):
                yield _row(model, "group", of, (index, group.name), metric, group.n, estimate)


def _row(
    model: ModelResult, kind: str, of: str, what: tuple[int, str], metric: str, n: int, estimate: Estimate
) -> dict[str, Any]:
    return {
        "model": model.spec.name,
        "kind": kind,
        "of": of,
        "index": what[0],
        "what": what[1],
        "metric": metric,
        "n": n,
        "value": finite(estimate.value),
        "low": finite(estimate.low),
        "high": finite(estimate.high),
        "reason": estimate.reason,
    }


def attributes(audit: AuditResult) -> list[str]:
    """The attributes that decisions were judged by, in the order of the fleet file."""
    return list(dict.fromkeys(result.grouping for model in audit.models for result in model.fairness))


def projections(audit: AuditResult) -> dict[str, str]:
    """Keys of the projections that were measured, with their labels."""
    return {projection.series: projection.label for model in audit.models for projection in model.projection}


def fairness_of(model: ModelResult, grouping: str) -> FairnessResult | None:
    """The model's group metrics by that attribute."""
    return next((result for result in model.fairness if result.grouping == grouping), None)


def projection_of(model: ModelResult, series: str) -> ProjectionResult | None:
    """The model's tolerance under that series."""
    return next((projection for projection in model.projection if projection.series == series), None)


@dataclass(frozen=True, slots=True)
class GapWords:
    """What a gap between groups is called.

    Attributes:
        short: its abbreviation, for the head of a column.
        of: what the groups differ in.
    """

    short: str
    of: str

    def __str__(self) -> str:
        return f"{self.short}: {self.of}"


GAPS: dict[str, GapWords] = {
    "dp": GapWords("DP", "how often it answers a class"),
    "eopp": GapWords("EOpp", "how often it misses a class"),
    "eodd": GapWords("EOdd", "hits or false alarms"),
    "aodd": GapWords("AOdd", "hits and false alarms, averaged"),
}
"""By metric; reports, pictures, the dashboard and the words of gates take them from here."""
