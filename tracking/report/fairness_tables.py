"""What the report says of attributes in tables: one an attribute, one a mapper, one of generated samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from services.records import AuditResult, Estimate, ModelResult
from services.records.fairness import METRICS
from tracking.bundle.fairness import GAPS, attributes, fairness_of, projection_of, projections
from tracking.bundle.group_table import finite
from tracking.bundle.summary import find
from tracking.bundle.words import interval, number, share_words
from tracking.names import shorten

Table = dict[str, Any]
"""``title``, ``note``, ``heads`` (text and what it means) and ``rows`` (a model and its cells)."""


def attribute_tables(audit: AuditResult) -> list[Table]:
    """The tables that have something to say, one row a model."""
    tables = [_gaps(audit, grouping) for grouping in attributes(audit)]
    tables += [_tolerance(audit, series) for series in projections(audit)]
    return [*tables, *_generated(audit)]


def _gaps(audit: AuditResult, grouping: str) -> Table:
    rows, sizes = [], ""
    for model in audit.models:
        if (result := fairness_of(model, grouping)) is None:
            continue
        listed = list(zip(result.groups, result.sizes, strict=True))
        sizes = ", ".join(f"{shorten(name, 40)} ({size:,})" for name, size in listed[:8])
        clean = find(model, "clean")
        cells = [_cell(clean.aggregate if clean else Estimate(None, reason="not measured"))]
        cells += [_cell(result.worst[metric], _of(result.worst_task[metric])) for metric in METRICS]
        rows.append(_row(model, cells))
    note = f"Groups and their samples: {sizes}. 0 is no gap. Each cell is the decision with the largest gap, "
    note += "“it is this class or not”, and its interval; the intervals hold for all classes jointly."
    heads = [("accuracy", "share of samples classified correctly")]
    heads += [(GAPS[metric].short, f"gap in {GAPS[metric].of}") for metric in METRICS]
    return {"title": f"Gaps between groups of {grouping}", "note": note, "heads": heads, "rows": rows}


def _of(task: str) -> str:
    return f"class {task}" if task else ""


def _tolerance(audit: AuditResult, series: str) -> Table:
    rows = []
    for model in audit.models:
        if (projection := projection_of(model, series)) is None:
            continue
        weakest = min(projection.dimensions, key=lambda axis: (axis.tol.value is None, axis.tol.value or 0.0))
        overall = projection.overall
        cells = [_cell(overall.tol), _cell(overall.dev), _cell(overall.cou), _cell(weakest.tol, weakest.name)]
        rows.append(_row(model, [*cells, _cell(Estimate(overall.censored), words=share_words)]))
    heads = [
        ("Tol", "how far the latent factors move before the label does, of at most 2; higher is better"),
        ("Dev", "how lopsided that range is, in latent units; 0 is balanced"),
        ("Cou", "how unevenly the tolerance is spread over the factors; its interval is approximate"),
        ("least tolerant", "the factor with the smallest Tol"),
        (
            "never flips",
            "share of directions in which the label stays to the end of the range: Tol is a lower bound",
        ),
    ]
    note = "Every latent factor of the mapper is moved until the label changes. Compare models under one mapper only."
    return {"title": f"Tolerance to attributes ({series})", "note": note, "heads": heads, "rows": rows}


def _generated(audit: AuditResult) -> Iterator[Table]:
    lenses = list(dict.fromkeys(gap.lens for model in audit.models for gap in model.generated))
    for lens in lenses:
        rows = []
        for model in audit.models:
            gap = next((gap for gap in model.generated if gap.lens == lens), None)
            if gap is not None:
                rows.append(_row(model, [_cell(gap.test), _cell(gap.train), _cell(gap.gap)]))
        heads = [
            ("these samples", "the mean over the audit's own samples"),
            ("generated", "the mean over samples of the generative model, which the score's theorem asks for"),
            ("difference", "generated minus these; the two share no samples"),
        ]
        note = "The GREAT score's theorem speaks of samples of a generative model; on a test set it is an estimate for "
        note += "that set. Whether the generator's images show what they are labelled is its doing: see clean."
        yield {"title": f"{lens} on generated samples", "note": note, "heads": heads, "rows": rows}


def _row(model: ModelResult, cells: Sequence[dict[str, str]]) -> dict[str, Any]:
    return {"name": model.spec.name, "short": shorten(model.spec.name, 48), "cells": cells}


def _cell(estimate: Estimate, of: str = "", words: Any = None) -> dict[str, str]:
    value = finite(estimate.value)
    full = interval(estimate) if words is None else words(estimate)
    low_high = full.partition(" (")[2].rstrip(")") if estimate.low is not None or estimate.high is not None else ""
    return {
        "text": "–" if value is None else number(value) if words is None else words(estimate),
        "interval": low_high,
        "of": shorten(of, 28) if of else "",
        "full": full,
        "value": "" if value is None else f"{value:.6g}",
    }
