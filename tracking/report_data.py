"""The tables of the report as compact values."""

from __future__ import annotations

from typing import Any

from services.records import AuditResult, Estimate, GroupScore, ModelResult, Outcome, SeriesResult
from tracking.names import shorten
from tracking.summary import METRICS, find, lenses
from tracking.tables import finite
from tracking.words import interval, model_words, number

MAX_ROWS = 200_000
"""Rows of the per-class table; above that each profile keeps its weakest classes and the page says so."""

CHIPS = {
    Outcome.PASS: ("✓", "pass"),
    Outcome.FAIL: ("✗", "fail"),
    Outcome.UNDECIDED: ("?", "undecided"),
    Outcome.ERROR: ("!", "error"),
}


def model_cards(audit: AuditResult) -> list[dict[str, Any]]:
    """One entry a model for the verdict table, worst outcome first, then as in the fleet."""
    order = (Outcome.ERROR, Outcome.FAIL, Outcome.UNDECIDED, Outcome.PASS)
    first = lenses(audit)[:1]
    models = sorted(audit.models, key=lambda model: order.index(model.outcome))
    return [_card(model, find(model, first[0]) if first else None) for model in models]


def _card(model: ModelResult, result: SeriesResult | None) -> dict[str, Any]:
    threat = model.spec.threat_model
    return {
        "name": model.spec.name,
        "short": shorten(model.spec.name, 48),
        "outcome": model.outcome.value,
        "sign": CHIPS[model.outcome][0],
        "reasons": model.reasons,
        "words": model_words(model),
        "gates": [(gate.text, gate.outcome.value, CHIPS[gate.outcome][0], gate.reason) for gate in model.gates],
        "threat": f"{threat.norm} {threat.epsilon:.4g}" if threat else "not declared",
        "digest": model.digest[:12],
        "worst": " = ".join(shorten(name, 28) for name in result.worst[:2]) if result else "",
        "cells": [_cell(getattr(result, metric)) if result else _BLANK for metric in METRICS],
    }


_BLANK = {"text": "–", "full": "not measured", "value": ""}


def _cell(estimate: Estimate) -> dict[str, Any]:
    value = finite(estimate.value)
    return {
        "text": "–" if value is None else number(value),
        "full": interval(estimate),
        "value": "" if value is None else f"{value:.6g}",
    }


def class_table(audit: AuditResult) -> dict[str, Any]:
    """All classes of all models and series: names once, rows as small arrays.

    A row is ``[model, series, class index, n, score, low, high, flags]`` with flags 1 worst, 2 not separated from the
    worst, 4 vacuous.
    """
    names = lenses(audit)
    profiles = sum(find(model, name) is not None for model in audit.models for name in names)
    share = MAX_ROWS // max(1, profiles)
    groups: list[dict[int, str]] = [{} for _ in names]
    rows: list[list[Any]] = []
    for place, model in enumerate(audit.models):
        for number_, name in enumerate(names):
            result = find(model, name)
            if result is None:
                continue
            for group in _weakest(result, share):
                groups[number_][group.index] = group.name
                rows.append([place, number_, *_row(result, group)])
    titles = {name: next(f.series.title for m in audit.models if (f := find(m, name))) for name in names}
    total = sum(len(result.groups) for model in audit.models for result in model.series)
    return {
        "models": [model.spec.name for model in audit.models],
        "series": [titles[name] if "/by-" not in name else f"{titles[name]} ({name})" for name in names],
        "groups": groups,
        "rows": rows,
        "total": total,
    }


def _weakest(result: SeriesResult, share: int) -> list[GroupScore]:
    if len(result.groups) <= share:
        return list(result.groups)
    known = sorted(result.groups, key=lambda group: (group.score.value is None, group.score.value or 0.0))
    return known[: max(1, share)]


def _row(result: SeriesResult, group: GroupScore) -> list[Any]:
    score = group.score
    flags = (group.name in result.worst) + 2 * (group.name in result.not_separated) + 4 * score.vacuous
    limits = [None if finite(v) is None else float(f"{v:.4g}") for v in (score.value, score.low, score.high)]
    return [group.index, group.n, *limits, flags]
