"""One self-contained HTML file of boards in which weights move and the ranking follows, offline.

The page holds the numbers in full precision and computes composites, places, ranges and the Pareto front itself, by the
formulas of `services.numerics.ranking.composite`; a test holds the two together. All text from runs is set as text.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from tracking.figures.palette import GREY, LINES
from tracking.leaderboard.known_numbers import Catalogue
from tracking.leaderboard.numbers import Number, Part
from tracking.leaderboard.rows import NOT_MEASURED, Board, Entry
from tracking.names import shorten
from tracking.report.markup import embedded, environment, source


def render(boards: Sequence[Board], *, store: str, notes: Sequence[str] = (), made: datetime | None = None) -> str:
    """The page as text."""
    data = {"boards": [board_data(board) for board in boards], "colours": list(LINES), "grey": GREY}
    return (
        environment()
        .get_template("leaderboard.html")
        .render(
            boards=len(boards),
            rows=sum(len(board.entries) for board in boards),
            heading=shorten(boards[0].title, 120) if len(boards) == 1 else "Leaderboard",
            store=store,
            notes=notes,
            made=f"{made or datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
            data=embedded(data),
            style=source("report.css", "leaderboard.css"),
            script=source("common.js", "composite.js", "scatter.js", "leaderboard.js"),
        )
    )


def board_data(board: Board) -> dict[str, Any]:
    """A board as compact values; a cell is ``[value, low, high, sd]``, or the reason why there is no value."""
    catalogue, keys = board.catalogue, board.keys
    place = {key: index for index, key in enumerate(keys)}
    metrics = [
        {"name": metric.name, "title": metric.title, "column": place[metric.key], "weight": metric.weight}
        for metric in board.metrics
        if metric.key in place
    ]
    classes = [place.get(key, -1) for key in board.class_keys]
    return {
        "title": board.title,
        "lens": board.lens,
        "notes": list(board.notes),
        "columns": [
            {
                "key": catalogue[key].short,
                "lower": catalogue[key].lower_is_better,
                "time": catalogue[key].part is Part.TRAINING,
            }
            for key in keys
        ],
        "metrics": metrics,
        "criteria": [place[key] for key in board.criteria],
        "classes": classes,
        "rows": [_row(board, entry, keys, catalogue) for entry in board.entries],
    }


def _row(board: Board, entry: Entry, keys: Sequence[str], catalogue: Catalogue) -> dict[str, Any]:
    return {
        "name": entry.name,
        "dataset": entry.dataset,
        "threat": entry.threat_model,
        "architecture": entry.architecture,
        "method": entry.method,
        "n": entry.count,
        "seeds": ", ".join(entry.seeds),
        "worst": entry.worst.get(board.lens, ""),
        "source": entry.source,
        "cells": [_cell(entry, catalogue[key]) for key in keys],
    }


def _cell(entry: Entry, number: Number) -> list[float | None] | str:
    estimate = entry.numbers.get(number.key, NOT_MEASURED)
    if estimate.value is None:
        return estimate.reason or NOT_MEASURED.reason
    return [estimate.value, *number.limits(estimate), entry.spreads.get(number.key)]
