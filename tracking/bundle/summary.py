"""The leaderboard of an audit: one flat row a model, the same columns for all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from services.metrics import OF_SERIES
from services.records import WORST_FIRST, AuditResult, Estimate, ModelResult, RefutedResult, SeriesResult
from tracking.bundle.group_table import finite
from tracking.bundle.headline import Entry, inadequate, is_refuted, reading_order, tested_claims, untested
from tracking.names import metric_key, series_key, shorten

METRICS = tuple(metric.name for metric in OF_SERIES)
"""What every series is summed up by, in reading order."""
FIRST_COLUMNS = tuple(dict.fromkeys(("aggregate", "wcr", "wcr_low", *METRICS)))
"""Of each series; the other limits follow."""


def worst_first(models: Sequence[ModelResult]) -> list[ModelResult]:
    """The models by outcome: error, fail, undecided, pass."""
    return sorted(models, key=lambda model: WORST_FIRST.index(model.outcome))


def lens(result: SeriesResult) -> str:
    """The name of a series over a grouping, unique within a model: ``great``, ``great/by-sex``."""
    return series_key(result.series.key, result.grouping)


def lenses(audit: AuditResult) -> list[str]:
    """All series and groupings of the audit in reading order, the headline first."""
    entries = (entry for model in audit.models for entry in _entries(model))
    return reading_order(entries, (model.gates for model in audit.models))


def in_reading_order(model: ModelResult) -> list[SeriesResult]:
    """The model's series, the headline first."""
    place = {name: index for index, name in enumerate(reading_order(_entries(model), [model.gates]))}
    return sorted(model.series, key=lambda result: place[lens(result)])


def is_sound(model: ModelResult, result: SeriesResult) -> bool:
    """Whether conclusions may rest on a series: no inadequate attack, and no claim that is held against such alone.

    Nor a claim that attacks refuted. One that was held against nothing is a claim, and stands as one.
    """
    held = next((claim for claim in model.refuted if series_key(claim.series, claim.grouping) == lens(result)), None)
    if held is not None and (is_refuted(held.overall) or untested(model.attacks)):
        return False
    return not inadequate(model, result.series.key)


def _entries(model: ModelResult) -> Iterator[Entry]:
    for result in model.series:
        series = result.series
        sound = is_sound(model, result)
        yield Entry(lens(result), result.grouping, series.evidence, series.family, series.binary, sound)


def tied(names: Sequence[str], count: int, width: int = 28) -> str:
    """The weakest group and how many more are as weak: ``bird and 6 more``; "" where there is none."""
    if not names:
        return ""
    return shorten(names[0], width) + (f" and {count - 1} more" if count > 1 else "")


def find(model: ModelResult, name: str) -> SeriesResult | None:
    """The model's series under that lens, None when it was not measured."""
    return next((result for result in model.series if lens(result) == name), None)


def refuted(model: ModelResult, name: str) -> RefutedResult | None:
    """How much of what the series under that lens claims attacks refuted; None when that was not tested."""
    return next(
        (
            claim
            for claim in tested_claims(model.refuted, model.attacks)
            if series_key(claim.series, claim.grouping) == name
        ),
        None,
    )


def bounds(name: str, estimate: Estimate) -> dict[str, float]:
    """``name``, ``name_low`` and ``name_high`` as far as they are defined and finite."""
    sides = {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
    return {key: number for key, value in sides.items() if (number := finite(value)) is not None}


def shown_metrics(result: SeriesResult) -> tuple[str, ...]:
    """The metrics that say something of so many groups."""
    return tuple(metric.name for metric in OF_SERIES if len(result.groups) >= metric.shown_from)


def series_metrics(result: SeriesResult) -> dict[str, float]:
    """Aggregates of one series under its MLflow keys: ``great/rdi``, ``great/rdi_low``, ``great/wcr_low``."""
    metrics: dict[str, float] = {}
    for metric in shown_metrics(result):
        metrics.update(bounds(metric_key(lens(result), metric), result.metric(metric)))
    return metrics


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
            first = [metric_key(name, last) for last in FIRST_COLUMNS]
            for key in [*(key for key in first if key in columns), *(key for key in columns if key not in first)]:
                row[key] = metrics[name].get(key)
            row[f"{name}/worst"] = worst_of(model, name)
        table.append(row)
    return table


def series_metrics_of(model: ModelResult, name: str) -> dict[str, float]:
    """`series_metrics` of the model under that lens; empty when it was not measured."""
    result = find(model, name)
    return series_metrics(result) if result else {}


def worst_of(model: ModelResult, name: str) -> str | None:
    """Name of the worst group, and how many tie with it; None when unknown."""
    result = find(model, name)
    return tied(result.worst, len(result.worst)) or None if result else None
