"""Traversal strips drawn by matplotlib: one mosaic of images, with frames, labels and flip points over it."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from tracking.figures.charts import Strip, Strips
from tracking.figures.fit import canvas, label, width
from tracking.figures.palette import LINES

TILE = 0.62
"""Inches a tile; a tile is one unit wide, and its label stands in `BELOW` of a unit beneath it."""
BELOW = 0.34
GAP = 0.06


def draw_strips(chart: Strips) -> Figure:
    """Rows of tiles, dimension names on the left, positions on top."""
    count, rows = len(chart.positions), len(chart.strips)
    names = [label(strip.name, 22) for strip in chart.strips]
    high = rows * (1 + BELOW)
    room = {"left": width(names, 8) + 0.35, "right": 0.2, "bottom": 0.15, "top": 0.3}
    figure = canvas(TILE * count, TILE * high, chart.title, chart.note, **room)
    axes = figure.add_subplot()
    axes.set_xlim(0, count)
    axes.set_ylim(high, 0)
    for row, strip in enumerate(chart.strips):
        _row(axes, chart, strip, row * (1 + BELOW))
    axes.set_yticks([row * (1 + BELOW) + 0.5 for row in range(rows)], names, fontsize=8)
    axes.set_xticks([place + 0.5 for place in range(count)], [f"{at:+.1f}" for at in chart.positions], fontsize=7)
    axes.tick_params(length=0)
    axes.xaxis.tick_top()
    axes.spines[["top", "right", "left", "bottom"]].set_visible(False)
    return figure


def _row(axes: Axes, chart: Strips, strip: Strip, top: float) -> None:
    count = len(chart.positions)
    tiles = np.frombuffer(strip.images, dtype=np.uint8).reshape(count, *chart.shape)
    centre = strip.labels[count // 2]
    for place, tile in enumerate(tiles):
        picture = np.repeat(tile, 3, axis=2) if tile.shape[2] == 1 else tile[:, :, :3]
        box = (place + GAP, place + 1 - GAP, top + 1 - GAP, top + GAP)
        axes.imshow(picture, extent=box, aspect="auto", interpolation="nearest", zorder=1)
        flipped = strip.labels[place] != centre
        colour = LINES[1] if flipped else "#BBBBBB"
        frame = Rectangle((place + GAP, top + GAP), 1 - 2 * GAP, 1 - 2 * GAP, fill=False, edgecolor=colour)
        frame.set_linewidth(2.0 if flipped else 0.8)
        axes.add_patch(frame)
        text = label(strip.labels[place], 9)
        axes.text(
            place + 0.5, top + 1.0, text, ha="center", va="top", fontsize=6.5, color=colour if flipped else "#555555"
        )
    for flip in (strip.down, strip.up):
        if flip is not None:
            x = (flip + 1) / 2 * (count - 1) + 0.5
            axes.plot([x, x], [top, top + 1], color=LINES[1], linewidth=1.6, linestyle=(0, (2, 1)), zorder=3)
