"""Charts drawn by matplotlib, for the eye: PNG files beside the runs."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from tracking.figures.charts import Chart, Cloud, Dots, Heatmap, Lines, Marks, Radar, Scatter, Strips
from tracking.figures.fit import below_title, canvas, label, width
from tracking.figures.palette import GREY, LINES, SCALE, SHAPES, style
from tracking.figures.point_names import numbers, spread
from tracking.figures.strips import draw_strips


def draw(chart: Chart) -> Figure:
    """The chart as a figure of its own: no pyplot, no global state, safe in any thread."""
    drawers: dict[type, Callable[[Any], Figure]] = {
        Heatmap: _heatmap,
        Dots: _dots,
        Scatter: _scatter,
        Lines: _lines,
        Radar: _radar,
        Strips: draw_strips,
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
        figure = draw(chart)
        FigureCanvasAgg(figure)
        figure.savefig(file, format="png")
    return file.getvalue()


def _heatmap(chart: Heatmap) -> Figure:
    rows, columns = [label(name, 34) for name in chart.rows], [label(name, 18) for name in chart.columns]
    slanted = width(columns, 8)
    room = {"left": max(width(rows, 8), 0.6 * slanted) + 0.45, "bottom": 0.85 * slanted + 0.5, "right": 1.1}
    wide, high = 0.42 * max(len(columns), 8), 0.27 * max(len(rows), 4)
    figure = canvas(wide, high, chart.title, chart.note, **room)
    axes = figure.add_subplot()
    grid = np.array([numbers(row) for row in chart.values]).reshape(len(rows), len(columns))
    axes.set_facecolor("#DDDDDD")
    image = axes.imshow(np.ma.masked_invalid(grid), aspect="auto", cmap=SCALE)
    axes.set_xticks(range(len(columns)), columns, rotation=55, ha="right", rotation_mode="anchor", fontsize=8)
    axes.set_yticks(range(len(rows)), rows, fontsize=8)
    axes.set_xlabel(label(chart.column_label, 40), fontsize=9)
    axes.set_ylabel(label(chart.row_label, 40), fontsize=9)
    if grid.size <= 250:
        _write_cells(axes, grid, image)
    box = axes.get_position()
    bar = figure.add_axes((box.x1 + 0.12 / figure.get_figwidth(), box.y0, 0.14 / figure.get_figwidth(), box.height))
    figure.colorbar(image, cax=bar).set_label(label(chart.label, max(12, int(high * 12))), size=8)
    bar.tick_params(labelsize=7)
    return figure


def _write_cells(axes: Axes, grid: np.ndarray, image: Any) -> None:
    for (row, column), value in np.ndenumerate(grid):
        dark = not math.isnan(value) and image.norm(value) < 0.55
        text = "–" if math.isnan(value) else f"{value:.2f}"
        axes.text(column, row, text, ha="center", va="center", fontsize=7, color="white" if dark else "black")


def _dots(chart: Dots) -> Figure:
    count, panels = len(chart.categories), len(chart.panels)
    names = [label(name, 36) for name in chart.categories]
    several = any(len(panel.marks) > 1 for panel in chart.panels)
    room = {"left": width(names, 8) + 0.5, "right": 0.3, "bottom": 0.6, "top": 0.3 if several else 0.0}
    wide = max(2.9 * panels, 5.2 if several else 4.0)
    figure = canvas(wide, 0.26 * max(count, 4), chart.title, chart.note, **room)
    grid = figure.subplots(1, panels, sharey=True, squeeze=False, gridspec_kw={"wspace": 0.12})
    for axes, panel in zip(grid[0], chart.panels, strict=True):
        for position, marks in enumerate(panel.marks):
            _mark(axes, marks, position, len(panel.marks), count)
        axes.set_xlabel(label(panel.label, 40), fontsize=8)
        axes.grid(axis="x", color="#E4E4E4")
        axes.set_axisbelow(True)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(axis="y", length=0)
        axes.tick_params(axis="x", labelsize=8)
        axes.locator_params(axis="x", nbins=6, integer=panel.whole)
    if several:
        marked = grid[0][0].get_legend_handles_labels()
        place = (0.5, below_title(figure))
        figure.legend(*marked, fontsize=8, loc="upper center", bbox_to_anchor=place, ncols=3, frameon=False)
    grid[0][0].set_yticks(range(count), names, fontsize=8)
    grid[0][0].set_ylabel(label(chart.category_label, 40), fontsize=9)
    grid[0][0].set_ylim(count - 0.4, -0.6)
    return figure


def _mark(axes: Axes, marks: Marks, position: int, of: int, count: int) -> None:
    y = np.arange(count) + (position - (of - 1) / 2) * 0.2
    x = numbers(marks.values)
    if marks.low and marks.high:
        low, high = (np.where(np.isnan(side), x, side) for side in map(numbers, (marks.low, marks.high)))
        axes.hlines(y, low, high, color=LINES[position % 8], alpha=0.55, linewidth=2.2)
    axes.plot(x, y, SHAPES[position % 8], color=LINES[position % 8], markersize=5, label=label(marks.name, 40))


def _scatter(chart: Scatter) -> Figure:
    panels = len(chart.clouds)
    figure = canvas(4.4 * panels, 3.6, chart.title, chart.note, left=0.85, right=0.25, bottom=0.6)
    grid = figure.subplots(1, panels, squeeze=False, gridspec_kw={"wspace": 0.24})
    for axes, cloud in zip(grid[0], chart.clouds, strict=True):
        _cloud(axes, cloud)
    return figure


def _cloud(axes: Axes, cloud: Cloud) -> None:
    x, y = numbers(cloud.x), numbers(cloud.y)
    axes.plot(x, y, "o", color=LINES[0], markersize=6, alpha=0.8)
    style: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "fontsize": 7, "color": "#333333"}
    for index in spread(cloud):
        axes.annotate(label(cloud.names[index], 20), (x[index], y[index]), xytext=(0, 7), **style)
    axes.margins(0.18)
    axes.set_xlabel(label(cloud.x_label, 46), fontsize=9)
    axes.set_ylabel(label(cloud.y_label, 46), fontsize=9)
    axes.grid(color="#E9E9E9")
    axes.spines[["top", "right"]].set_visible(False)


def _lines(chart: Lines) -> Figure:
    named = isinstance(chart.x[0], str)
    keyed = len(chart.lines) > 1 or chart.band is not None or chart.vertical is not None
    keys = [label(line.name, 30) for line in chart.lines[: chart.highlight]]
    keys += [label(mark[-1], 40) for mark in (chart.band, chart.vertical) if mark is not None]
    ticks = [label(str(name), 18) for name in chart.x[:: max(1, len(chart.x) // 12)]] if named else []
    crowded = len(ticks) * (width(ticks, 8) + 0.15) > 6.0
    right = width(keys, 8) + 0.75 if keyed else 0.3
    slanted = 0.5 * width(ticks, 8) if crowded else 0.0
    figure = canvas(6.0, 3.6, chart.title, chart.note, left=0.85, right=right, bottom=0.6 + slanted)
    axes = figure.add_subplot()
    x = np.arange(len(chart.x)) if named else np.array(chart.x, dtype=float)
    for position, line in reversed(list(enumerate(chart.lines))):
        look = style(position if line.place is None else line.place) if position < chart.highlight else None
        _line(axes, x, numbers(line.y), line.name, look)
    if chart.log:
        axes.set_xscale("log")
    _marked(axes, chart)
    if named:
        slant: dict[str, Any] = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if crowded else {}
        axes.set_xticks(x[:: max(1, len(chart.x) // 12)], ticks, fontsize=8, **slant)
    _finish(axes, chart)
    if keyed:
        place = (axes.get_position().x1 + 0.1 / figure.get_figwidth(), 0.5)
        figure.legend(fontsize=8, loc="center left", bbox_to_anchor=place, frameon=False, reverse=True)
    return figure


def _finish(axes: Axes, chart: Lines) -> None:
    if chart.falling:
        axes.invert_yaxis()
        axes.locator_params(axis="y", integer=True)
    axes.set_xlabel(label(chart.x_label, 60), fontsize=9)
    axes.set_ylabel(label(chart.y_label, 40), fontsize=9)
    axes.grid(color="#EEEEEE")
    axes.spines[["top", "right"]].set_visible(False)


def _line(axes: Axes, x: np.ndarray, y: np.ndarray, name: str, look: tuple[int, int] | None) -> None:
    if look is None:
        axes.plot(x, y, color=GREY, linewidth=0.7, alpha=0.5)
        return
    colour, shape = LINES[look[0]], SHAPES[look[1]] if len(x) <= 30 else None
    axes.plot(x, y, color=colour, marker=shape, linewidth=1.8, markersize=4, label=label(name, 30))


def _marked(axes: Axes, chart: Lines) -> None:
    if chart.band is not None:
        low, high, text = chart.band
        axes.axvspan(low, high, color=LINES[4], alpha=0.25, label=label(text, 40))
    if chart.vertical is not None:
        axes.axvline(chart.vertical[0], color=LINES[1], linestyle="--", label=label(chart.vertical[1], 40))


def _radar(chart: Radar) -> Figure:
    names = [label(name, 16) for name in chart.axes]
    beside = width(names, 8) + 0.35
    keys = width([label(line.name, 28) for line in chart.lines], 8) + 0.8
    room = {"left": beside, "right": beside + keys, "top": 0.2, "bottom": 0.3}
    figure = canvas(4.0, 4.0, chart.title, chart.note, **room)
    axes: Any = figure.add_subplot(projection="polar")
    angles = np.linspace(0, 2 * np.pi, len(chart.axes), endpoint=False)
    for position, line in enumerate(chart.lines):
        values = numbers(line.y)
        colour, shape = style(position if line.place is None else line.place)
        closed = (np.append(angles, angles[0]), np.append(values, values[0]))
        axes.plot(*closed, color=LINES[colour], marker=SHAPES[shape], markersize=4, label=label(line.name, 28))
        axes.fill(angles, np.nan_to_num(values), color=LINES[colour], alpha=0.06)
    axes.set_xticks(angles, names, fontsize=8)
    axes.set_theta_offset(np.pi / 2)
    axes.set_theta_direction(-1)
    axes.set_ylim(0, chart.top * 1.05)
    axes.tick_params(axis="y", labelsize=7, colors="#666666")
    place = (axes.get_position().x1 + beside / figure.get_figwidth(), 0.5)
    figure.legend(fontsize=8, loc="center left", bbox_to_anchor=place, frameon=False)
    return figure
