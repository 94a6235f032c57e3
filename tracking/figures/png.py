"""Charts drawn by matplotlib, for the eye: PNG files beside the runs."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from tracking.figures.charts import Chart, Cloud, Dots, Heatmap, Lines, Marks, Radar, Scatter
from tracking.figures.palette import GREY, LINES, SCALE, SHAPES
from tracking.names import shorten

MOST_LABELS = 12
"""Points of a scatter panel that get their name written beside them."""


def draw(chart: Chart) -> Figure:
    """The chart as a figure of its own: no pyplot, no global state, safe in any thread."""
    drawers: dict[type, Callable[[Any], Figure]] = {
        Heatmap: _heatmap,
        Dots: _dots,
        Scatter: _scatter,
        Lines: _lines,
        Radar: _radar,
    }
    return drawers[type(chart)](chart)


@lru_cache(maxsize=32)
def png_bytes(chart: Chart) -> bytes:
    """The chart as a PNG file; drawn once where a folder and a page both want it.

    Characters that the font lacks come out as boxes; the page beside the picture has them.
    """
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
        draw(chart).savefig(file, format="png")
    return file.getvalue()


def _figure(width: float, height: float, chart: Chart) -> Figure:
    figure = Figure(figsize=(width, height), dpi=110, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    figure.suptitle(_text(chart.title, 70), fontsize=12, fontweight="bold")
    if chart.note:
        figure.supxlabel(_wrapped(chart.note, int(width * 14)), fontsize=8.5, color="#444444")
    return figure


def _text(text: str, limit: int = 26) -> str:
    """A label; ``$`` would start mathematics."""
    return shorten(text, limit).replace("$", r"\$")


def _wrapped(text: str, width: int) -> str:
    return fill(" ".join(text.split()).replace("$", r"\$")[:400], width)


def _numbers(values: Sequence[float | None]) -> np.ndarray:
    return np.array([math.nan if value is None else value for value in values], dtype=float)


def _heatmap(chart: Heatmap) -> Figure:
    rows, columns = len(chart.rows), len(chart.columns)
    figure = _figure(3.6 + 0.42 * max(columns, 8), 2.2 + 0.3 * max(rows, 4), chart)
    axes = figure.add_subplot()
    grid = np.array([_numbers(row) for row in chart.values]).reshape(rows, columns)
    axes.set_facecolor("#DDDDDD")
    image = axes.imshow(np.ma.masked_invalid(grid), aspect="auto", cmap=SCALE)
    axes.set_xticks(range(columns), [_text(name, 18) for name in chart.columns], rotation=55, ha="right", fontsize=8)
    axes.set_yticks(range(rows), [_text(name, 34) for name in chart.rows], fontsize=8)
    if rows * columns <= 250:
        _write_cells(axes, grid, image)
    figure.colorbar(image, ax=axes, label=_text(chart.label, 50), fraction=0.05, pad=0.02)
    return figure


def _write_cells(axes: Axes, grid: np.ndarray, image: Any) -> None:
    for (row, column), value in np.ndenumerate(grid):
        dark = not math.isnan(value) and image.norm(value) < 0.55
        text = "–" if math.isnan(value) else f"{value:.2f}"
        axes.text(column, row, text, ha="center", va="center", fontsize=7, color="white" if dark else "black")


def _dots(chart: Dots) -> Figure:
    count = len(chart.categories)
    figure = _figure(3.2 + 3.1 * len(chart.panels), 1.9 + 0.26 * max(count, 4), chart)
    grid = figure.subplots(1, len(chart.panels), sharey=True, squeeze=False)
    for axes, panel in zip(grid[0], chart.panels, strict=True):
        for position, marks in enumerate(panel.marks):
            _mark(axes, marks, position, len(panel.marks), count)
        axes.set_xlabel(_text(panel.label, 46), fontsize=8.5)
        axes.grid(axis="x", color="#E4E4E4")
        axes.set_axisbelow(True)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(axis="y", length=0)
        if len(panel.marks) > 1:
            axes.legend(fontsize=8, loc="best")
    grid[0][0].set_yticks(range(count), [_text(name, 36) for name in chart.categories], fontsize=8)
    grid[0][0].set_ylim(count - 0.4, -0.6)
    return figure


def _mark(axes: Axes, marks: Marks, position: int, of: int, count: int) -> None:
    y = np.arange(count) + (position - (of - 1) / 2) * 0.2
    x = _numbers(marks.values)
    if marks.low and marks.high:
        low, high = (np.where(np.isnan(side), x, side) for side in map(_numbers, (marks.low, marks.high)))
        axes.hlines(y, low, high, color=LINES[position % 8], alpha=0.55, linewidth=2.2)
    axes.plot(x, y, SHAPES[position % 8], color=LINES[position % 8], markersize=5, label=_text(marks.name, 40))


def _scatter(chart: Scatter) -> Figure:
    figure = _figure(1.2 + 4.6 * len(chart.clouds), 4.8, chart)
    grid = figure.subplots(1, len(chart.clouds), squeeze=False)
    for axes, cloud in zip(grid[0], chart.clouds, strict=True):
        _cloud(axes, cloud)
    return figure


def _cloud(axes: Axes, cloud: Cloud) -> None:
    x, y = _numbers(cloud.x), _numbers(cloud.y)
    axes.plot(x, y, "o", color=LINES[0], markersize=6, alpha=0.8)
    known = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
    for index in _spread(x, y, known):
        label = _text(cloud.names[index], 20)
        place = (x[index], y[index])
        axes.annotate(
            label, place, xytext=(0, 7), textcoords="offset points", ha="center", fontsize=6.5, color="#333333"
        )
    axes.margins(0.18)
    axes.set_xlabel(_text(cloud.x_label, 46), fontsize=9)
    axes.set_ylabel(_text(cloud.y_label, 46), fontsize=9)
    axes.grid(color="#E9E9E9")
    axes.spines[["top", "right"]].set_visible(False)


def _spread(x: np.ndarray, y: np.ndarray, known: np.ndarray) -> list[int]:
    """Points to label: greedily those apart from the ones labelled already, so that labels do not collide."""
    if known.size == 0:
        return []
    scale_x, scale_y = (float(np.ptp(side[known])) or 1.0 for side in (x, y))
    chosen: list[int] = []
    for index in known:
        clear = all(
            abs(x[index] - x[other]) / scale_x > 0.36 or abs(y[index] - y[other]) / scale_y > 0.08 for other in chosen
        )
        if clear and len(chosen) < MOST_LABELS:
            chosen.append(int(index))
    return chosen


def _lines(chart: Lines) -> Figure:
    figure = _figure(8.6, 4.9, chart)
    axes = figure.add_subplot()
    named = isinstance(chart.x[0], str)
    x = np.arange(len(chart.x)) if named else np.array(chart.x, dtype=float)
    for position, line in reversed(list(enumerate(chart.lines))):
        _line(axes, x, _numbers(line.y), line.name, position if position < chart.highlight else None)
    if chart.log:
        axes.set_xscale("log")
    _marked(axes, chart)
    if named:
        step = max(1, len(chart.x) // 12)
        axes.set_xticks(x[::step], [_text(str(name), 18) for name in chart.x[::step]], fontsize=8)
    if chart.falling:
        axes.invert_yaxis()
    axes.set_xlabel(chart.x_label, fontsize=9)
    axes.set_ylabel(_text(chart.y_label, 40), fontsize=9)
    axes.grid(color="#EEEEEE")
    axes.spines[["top", "right"]].set_visible(False)
    if len(chart.lines) > 1 or chart.band or chart.vertical:
        figure.legend(fontsize=7.5, loc="outside right center", frameon=False, reverse=True)
    return figure


def _line(axes: Axes, x: np.ndarray, y: np.ndarray, name: str, position: int | None) -> None:
    if position is None:
        axes.plot(x, y, color=GREY, linewidth=0.7, alpha=0.5)
        return
    marker = SHAPES[position % 8] if len(x) <= 30 else None
    axes.plot(x, y, color=LINES[position % 8], marker=marker, linewidth=1.8, markersize=4, label=_text(name, 30))


def _marked(axes: Axes, chart: Lines) -> None:
    if chart.band is not None:
        low, high, label = chart.band
        axes.axvspan(low, high, color=LINES[4], alpha=0.25, label=_text(label, 40))
    if chart.vertical is not None:
        axes.axvline(chart.vertical[0], color=LINES[1], linestyle="--", label=_text(chart.vertical[1], 40))


def _radar(chart: Radar) -> Figure:
    figure = _figure(7.4, 5.6, chart)
    axes: Any = figure.add_subplot(projection="polar")
    angles = np.linspace(0, 2 * np.pi, len(chart.axes), endpoint=False)
    for position, line in enumerate(chart.lines):
        values = _numbers(line.y)
        colour = LINES[position % 8]
        closed = (np.append(angles, angles[0]), np.append(values, values[0]))
        axes.plot(*closed, color=colour, marker=SHAPES[position % 8], markersize=4, label=_text(line.name, 28))
        axes.fill(angles, np.nan_to_num(values), color=colour, alpha=0.06)
    axes.set_xticks(angles, [_text(name, 16) for name in chart.axes], fontsize=8)
    axes.set_theta_offset(np.pi / 2)
    axes.set_theta_direction(-1)
    axes.set_ylim(0, chart.top * 1.05)
    axes.tick_params(axis="y", labelsize=7, colors="#666666")
    figure.legend(fontsize=8, loc="outside right center", frameon=False)
    return figure
