"""The leaderboard of an audit: one flat row a model, the same columns for all of them."""

from __future__ import annotations

from typing import Any

from services.metrics import OF_SERIES
from services.records import AuditResult, Estimate, ModelResult, RefutedResult, SeriesResult
from tracking.bundle.tables import finite
from tracking.names import metric_key, series_key

METRICS = tuple(metric.name for metric in OF_SERIES)
"""What every series is summed up by, in reading order."""


def lens(result: SeriesResult) -> str:
    """The name of a series over a grouping, unique within a model: ``great``, ``great/by-sex``."""
    return series_key(result.series.key, result.grouping)


def lenses(audit: AuditResult) -> list[str]:
    """All series and groupings of the audit: classes before other groupings, GREAT first, clean accuracy last."""
    first: dict[str, SeriesResult] = {}
    for model in audit.models:
        for result in model.series:
            first.setdefault(lens(result), result)
    return sorted(first, key=lambda name: lens_rank(first[name]))


def lens_rank(result: SeriesResult) -> tuple[bool, bool, bool]:
    """Sort key of reading order."""
    return reading_rank(result.grouping, result.series.family)


def reading_rank(grouping: str, family: str) -> tuple[bool, bool, bool]:
    """`lens_rank` of a family's series over a grouping: classes first, GREAT first among them, clean accuracy last."""
    return grouping != "class", family == "clean", family != "great"


def find(model: ModelResult, name: str) -> SeriesResult | None:
    """The model's series under that lens, None when it was not measured."""
    return next((result for result in model.series if lens(result) == name), None)


def refuted(model: ModelResult, name: str) -> RefutedResult | None:
    """How much of what the series under that lens claims attacks refuted; None when that was not tested."""
    return next((found for found in model.refuted if series_key(found.series, found.grouping) == name), None)


def inadequate(model: ModelResult, key: str) -> bool:
    """Whether the series is of an attack that was inadequate on the model, so that its numbers are no evidence."""
    return any(key in attack.series and attack.adequacy == "inadequate" for attack in model.attacks)


def bounds(name: str, estimate: Estimate) -> dict[str, float]:
    """``name``, ``name_low`` and ``name_high`` as far as they are defined and finite."""
    found = {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
    return {key: number for key, value in found.items() if (number := finite(value)) is not None}


def shown_metrics(result: SeriesResult) -> tuple[str, ...]:
    """The metrics that say something of so many groups."""
    return tuple(metric.name for metric in OF_SERIES if len(result.groups) >= metric.shown_from)


def series_metrics(result: SeriesResult) -> dict[str, float]:
    """Aggregates of one series under its MLflow keys: ``great/rdi``, ``great/rdi_low``, ``great/wcr_low``."""
    found: dict[str, float] = {}
    for metric in shown_metrics(result):
        found.update(bounds(metric_key(lens(result), metric), result.metric(metric)))
    return found


def leaderboard(audit: AuditResult) -> list[dict[str, Any]]:
    """One row a model: name, outcome, and per series the aggregates and the worst groups, None where undefined.

    The score and the worst class stand first, because MLflow shows four columns of a table until asked for more.
    """
    names = lenses(audit)
    measured = [{name: series_metrics_of(model, name) for name in names} for model in audit.models]
    table = []
    for model, metrics in zip(audit.models, measured, strict=True):
        row: dict[str, Any] = {"model": model.spec.name, "outcome": model.outcome.value}
        for name in names:
            columns = dict.fromkeys(key for other in measured for key in other[name])
            for key in sorted(columns, key=_column_rank):
                row[key] = metrics[name].get(key)
            row[f"{name}/worst"] = worst_of(model, name)
        table.append(row)
    return table


def _column_rank(key: str) -> int:
    order = ("aggregate", "wcr", "wcr_low", "p10", "rdi", "nrgc", "fp")
    last = key.rpartition("/")[2]
    return order.index(last) if last in order else len(order)


def series_metrics_of(model: ModelResult, name: str) -> dict[str, float]:
    """`series_metrics` of the model under that lens; empty when it was not measured."""
    found = find(model, name)
    return series_metrics(found) if found else {}


def worst_of(model: ModelResult, name: str) -> str | None:
    """Names of the worst groups, tied ones joined; None when unknown."""
    found = find(model, name)
    return " = ".join(found.worst[:3]) if found and found.worst else None
