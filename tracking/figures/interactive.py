"""Charts as plotly figures in plain JSON values, for the report: full names on hover, short ones on the axes.

Plotly reads a little HTML in texts, so every text that a user gave is escaped. Colours of paper and text are left to
the page, which has a light and a dark form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from math import ceil, log10
from typing import Any

from tracking.bundle.group_table import finite
from tracking.figures.charts import Chart, Cloud, Dots, Heatmap, Lines, Marks, Panel, Radar, Scatter
from tracking.figures.palette import GREY, LINES, style
from tracking.figures.point_names import spread
from tracking.names import shorten

SYMBOLS = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "x", "star")
_MAX_HOVER = 300
MOST_WRITTEN = 250
"""Cells of a heat map that get their number written in them."""

Json = dict[str, Any]


def to_plotly(chart: Chart) -> Json:
    """``{"data": [...], "layout": {...}}``, accepted by ``plotly.graph_objects.Figure`` and ``Plotly.newPlot``."""
    makers: dict[type, Callable[[Any], tuple[list[Json], Json]]] = {
        Heatmap: _heatmap,
        Dots: _dots,
        Scatter: _scatter,
        Lines: _lines,
        Radar: _radar,
    }
    data, layout = makers[type(chart)](chart)
    margin = {"l": 10, "r": 16, "t": 12, "b": 10}
    return {"data": data, "layout": {"margin": margin, "font": {"size": 12}, "hovermode": "closest", **layout}}


def _full(text: str) -> str:
    return escape(shorten(text, _MAX_HOVER), quote=False)


def _short(text: str, limit: int = 24) -> str:
    return escape(shorten(text, limit), quote=False)


def _rounded(values: Sequence[float | None]) -> list[float | None]:
    return [None if finite(value) is None else float(f"{value:.5g}") for value in values]


def _ticks(names: Sequence[str], limit: int = 24) -> Json:
    return {
        "tickmode": "array",
        "tickvals": list(range(len(names))),
        "ticktext": [_short(name, limit) for name in names],
        "automargin": True,
        "ticklabelstandoff": 5,
        "zeroline": False,
    }


def _heatmap(chart: Heatmap) -> tuple[list[Json], Json]:
    hover = [
        [
            f"{_full(row)}<br>{_full(column)}<br>{_text(value)}"
            for column, value in zip(chart.columns, line, strict=True)
        ]
        for row, line in zip(chart.rows, chart.values, strict=True)
    ]
    trace: Json = {
        "type": "heatmap",
        "z": [_rounded(line) for line in chart.values],
        "hovertext": hover,
        "hoverinfo": "text",
        "colorscale": "Cividis",
        "colorbar": {"thickness": 12},
        "xgap": 1,
        "ygap": 1,
    }
    if len(chart.rows) * len(chart.columns) <= MOST_WRITTEN:
        written = [["" if finite(value) is None else f"{value:.3f}" for value in line] for line in chart.values]
        trace |= {"text": written, "texttemplate": "%{text}", "textfont": {"size": 10}}
    column_axis = {**_ticks(chart.columns, 18), "tickangle": -45, "showgrid": False, "title": _axis(chart.column_label)}
    row_axis = {**_ticks(chart.rows, 34), "autorange": "reversed", "showgrid": False, "title": _axis(chart.row_label)}
    layout = {"height": 200 + 24 * max(4, len(chart.rows)), "xaxis": column_axis, "yaxis": row_axis}
    return [trace], layout


def _text(value: float | None) -> str:
    if value is None:
        return "undefined"
    return f"{value:.2g}" if 0 < abs(value) < 0.001 else f"{value:.4f}"


def _axis(label: str) -> Json:
    return {"text": _short(label, 44), "font": {"size": 12}, "standoff": 8}


def _dots(chart: Dots) -> tuple[list[Json], Json]:
    count = len(chart.categories)
    y_axis = {**_ticks(chart.categories, 30), "range": [count - 0.4, -0.6], "title": _axis(chart.category_label)}
    layout: Json = {"height": 120 + 22 * max(4, count), "yaxis": y_axis, "showlegend": False}
    layout |= {"grid": {"rows": 1, "columns": len(chart.panels), "xgap": 0.06}}
    traces = []
    for place, panel in enumerate(chart.panels):
        axis = "" if place == 0 else str(place + 1)
        layout[f"xaxis{axis}"] = {
            "title": _axis(panel.label),
            "automargin": True,
            "rangemode": "tozero",
            "nticks": 7,
            "domain": _domain(place, len(chart.panels)),
            **(_whole(value for marks in panel.marks for value in marks.values) if panel.whole else {}),
        }
        traces += [_marks(chart, panel, position, f"x{axis}") for position in range(len(panel.marks))]
        if len(panel.marks) > 1:
            layout |= {"showlegend": True, "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom"}}
    return traces, layout


def _whole(values: Iterable[float | None], *, first: int = 0, most: int = 7) -> Json:
    """Ticks at whole numbers, at most about so many: counts and ranks have no others."""
    top = max((value for value in values if value is not None), default=1.0)
    return {"tickformat": "d", "tick0": first, "dtick": max(1, ceil(top / most))}


def _domain(place: int, of: int) -> list[float]:
    gap = 0.04
    width = (1 - gap * (of - 1)) / of
    start = place * (width + gap)
    return [start, min(1.0, start + width)]


def _marks(chart: Dots, panel: Panel, position: int, axis: str) -> Json:
    marks: Marks = panel.marks[position]
    shift = (position - (len(panel.marks) - 1) / 2) * 0.2
    trace: Json = {
        "type": "scatter",
        "mode": "markers",
        "name": _short(marks.name, 40),
        "xaxis": axis,
        "yaxis": "y",
        "x": _rounded(marks.values),
        "y": [index + shift for index in range(len(marks.values))],
        "marker": {"color": LINES[position % 8], "symbol": SYMBOLS[position % 8], "size": 8},
        "cliponaxis": False,
        "text": [_hover(chart.categories[index], marks, index) for index in range(len(marks.values))],
        "hoverinfo": "text",
    }
    if marks.low and marks.high:
        trace["error_x"] = {
            "type": "data",
            "symmetric": False,
            "array": _differences(marks.high, marks.values),
            "arrayminus": _differences(marks.values, marks.low),
            "thickness": 2,
            "width": 0,
        }
    return trace


def _differences(upper: Sequence[float | None], lower: Sequence[float | None]) -> list[float | None]:
    pairs = zip(upper, lower, strict=True)
    return _rounded([None if high is None or low is None else max(0.0, high - low) for high, low in pairs])


def _hover(category: str, marks: Marks, index: int) -> str:
    text = f"{_full(category)}<br>{_full(marks.name)} {_text(marks.values[index])}"
    if marks.low and marks.low[index] is not None:
        text += f"<br>at least {_text(marks.low[index])}"
    if marks.high and marks.high[index] is not None:
        text += f"<br>at most {_text(marks.high[index])}"
    return text


def _scatter(chart: Scatter) -> tuple[list[Json], Json]:
    layout: Json = {"height": 430, "showlegend": False}
    traces = []
    for place, cloud in enumerate(chart.clouds):
        axis = "" if place == 0 else str(place + 1)
        domain = _domain(place, len(chart.clouds))
        domain = [domain[0] + (0.05 if place else 0.0), domain[1]]
        common = {"automargin": True, "zeroline": False}
        layout[f"xaxis{axis}"] = {**common, "title": _axis(cloud.x_label), "domain": domain}
        layout[f"yaxis{axis}"] = {**common, "title": _axis(cloud.y_label), "anchor": f"x{axis}"}
        traces.append(_cloud(cloud, axis))
    return traces, layout


def _cloud(cloud: Cloud, axis: str) -> Json:
    named = set(spread(cloud))
    points = zip(cloud.names, cloud.x, cloud.y, strict=True)
    hover = [
        f"{_full(name)}<br>{_short(cloud.x_label, 44)} {_text(x)}<br>{_short(cloud.y_label, 44)} {_text(y)}"
        for name, x, y in points
    ]
    return {
        "type": "scatter",
        "mode": "markers+text",
        "x": _rounded(cloud.x),
        "y": _rounded(cloud.y),
        "xaxis": f"x{axis}",
        "yaxis": f"y{axis}",
        "text": [_short(name, 20) if place in named else "" for place, name in enumerate(cloud.names)],
        "textposition": "top center",
        "textfont": {"size": 10},
        "cliponaxis": False,
        "hovertext": hover,
        "hoverinfo": "text",
        "marker": {"size": 10, "color": LINES[0], "opacity": 0.8},
    }


def _lines(chart: Lines) -> tuple[list[Json], Json]:
    named = isinstance(chart.x[0], str)
    x: list[Any] = list(range(len(chart.x))) if named else list(chart.x)
    traces = [_line(chart, position, x) for position in reversed(range(len(chart.lines)))]
    x_axis: Json = _ticks([str(name) for name in chart.x], 20) if named else {"automargin": True}
    x_axis["title"] = _axis(chart.x_label)
    if chart.log:
        x_axis["type"] = "log"
    y_axis: Json = {"title": _axis(chart.y_label), "automargin": True, "zeroline": False}
    if chart.falling:
        ranks = (rank for line in chart.lines for rank in line.y)
        y_axis |= {"autorange": "reversed", **_whole(ranks, first=1, most=10)}
    legend = {"traceorder": "reversed", "orientation": "h", "y": -0.2, "yanchor": "top"}
    layout = {"height": 460, "xaxis": x_axis, "yaxis": y_axis, "showlegend": len(chart.lines) > 1, "legend": legend}
    return traces, {**layout, **_marked(chart)}


def _line(chart: Lines, position: int, x: list[Any]) -> Json:
    line = chart.lines[position]
    bright = position < chart.highlight
    colour, shape = style(position if line.place is None else line.place)
    return {
        "type": "scatter",
        "mode": "lines+markers" if bright and len(x) <= 30 else "lines",
        "name": _short(line.name, 30),
        "x": x,
        "y": _rounded(line.y),
        "text": [
            f"{_full(line.name)}<br>{_full(str(at))}: {_text(value)}" for at, value in zip(chart.x, line.y, strict=True)
        ],
        "hoverinfo": "text",
        "showlegend": bright,
        "line": {"color": LINES[colour] if bright else GREY, "width": 2 if bright else 0.8},
        "marker": {"symbol": SYMBOLS[shape], "size": 7},
        "opacity": 1 if bright else 0.5,
    }


def _marked(chart: Lines) -> Json:
    shapes: list[Json] = []
    notes: list[Json] = []
    whole = {"yref": "paper", "y0": 0, "y1": 1}
    if chart.band is not None:
        low, high, label = chart.band
        band = {"type": "rect", "x0": low, "x1": high, "fillcolor": LINES[4], "opacity": 0.25, "line": {"width": 0}}
        shapes.append({**band, **whole, "layer": "below"})
        notes.append(_remark(chart, low, label, 0.08))
    if chart.vertical is not None:
        at, label = chart.vertical
        shapes.append({"type": "line", "x0": at, "x1": at, **whole, "line": {"color": LINES[1], "dash": "dash"}})
        notes.append(_remark(chart, at, label, 0.98))
    return {"shapes": shapes, "annotations": notes}


def _remark(chart: Lines, at: float, label: str, height: float) -> Json:
    """A text beside a mark, on the side where there is room; on a log axis plotly wants the exponent."""
    position = log10(at) if chart.log else at
    numbers = [float(value) for value in chart.x]
    ends = (log10(min(numbers)), log10(max(numbers))) if chart.log else (min(numbers), max(numbers))
    right = position - ends[0] > (ends[1] - ends[0]) / 2
    place = {"x": position, "yref": "paper", "y": height, "xanchor": "right" if right else "left"}
    return {**place, "text": _short(label, 60), "showarrow": False}


def _radar(chart: Radar) -> tuple[list[Json], Json]:
    names = [_short(name, 18) for name in chart.axes]
    traces = []
    for position, line in enumerate(chart.lines):
        values = _rounded(line.y)
        colour, shape = style(position if line.place is None else line.place)
        hover = [f"{_full(line.name)}<br>{_full(n)} {_text(v)}" for n, v in zip(chart.axes, line.y, strict=True)]
        traces.append(
            {
                "type": "scatterpolar",
                "name": _short(line.name, 30),
                "r": [*values, values[0]],
                "theta": [*range(len(names)), 0],
                "thetaunit": "radians",
                "text": [*hover, hover[0]],
                "hoverinfo": "text",
                "line": {"color": LINES[colour], "width": 2},
                "marker": {"symbol": SYMBOLS[shape], "size": 6},
                "mode": "lines+markers",
            }
        )
    step = 360 / len(names)
    for trace in traces:
        trace["theta"] = [index * step for index in trace["theta"]]
        trace["thetaunit"] = "degrees"
    angular = {
        "tickmode": "array",
        "tickvals": [index * step for index in range(len(names))],
        "ticktext": names,
        "direction": "clockwise",
        "rotation": 90,
    }
    polar = {
        "radialaxis": {"range": [0, chart.top * 1.05], "angle": 90, "tickangle": 90, "nticks": 5},
        "angularaxis": angular,
        "bgcolor": "rgba(0,0,0,0)",
    }
    legend = {"orientation": "h", "x": 0.5, "xanchor": "center", "y": -0.1, "yanchor": "top"}
    return traces, {"height": 480, "polar": polar, "legend": legend, "margin": {"l": 60, "r": 60, "t": 40, "b": 10}}
