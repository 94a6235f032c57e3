"""Room for texts in a picture: measured once and laid out in inches, where matplotlib's solvers draw several times."""

from __future__ import annotations

from collections.abc import Iterable
from textwrap import wrap

from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

from tracking.names import shorten

DPI = 90
_NOTE_SIZE = 8.5
_LINE = 0.155
_TITLE = 0.5
_EDGE = 0.12


def label(text: str, limit: int = 26) -> str:
    """A label; ``$`` would start mathematics."""
    return shorten(text, limit).replace("$", r"\$")


def width(texts: Iterable[str], size: float) -> float:
    """Width in inches of the longest of the texts at a font size in points."""
    font = FontProperties(size=size)
    return max((text_to_path.get_text_width_height_descent(text, font, False)[0] for text in texts), default=0.0) / 72


def canvas(wide: float, high: float, title: str, note: str, **margins: float) -> Figure:
    """A figure with its title above, its note below, and the axes' room between: no pyplot, no global state.

    Args:
        wide, high: size of the axes' room in inches, labels not counted.
        margins: ``left``, ``right``, ``top`` and ``bottom`` in inches, for labels and legends.
    """
    left, right, top, bottom = (margins.get(side, _EDGE) for side in ("left", "right", "top", "bottom"))
    whole = wide + left + right
    lines = wrap(" ".join(note.split()).replace("$", r"\$")[:400], int(whole * 14))
    top, bottom = top + _TITLE, bottom + _EDGE + _LINE * len(lines)
    figure = Figure(figsize=(whole, high + top + bottom), dpi=DPI, facecolor="white")
    tall = high + top + bottom
    figure.text(0.5, 1 - _EDGE / tall, label(title, int(whole * 9)), ha="center", va="top", size=12, weight="bold")
    figure.text(0.5, _EDGE / tall, "\n".join(lines), ha="center", va="bottom", size=_NOTE_SIZE, color="#444444")
    figure.subplots_adjust(left=left / whole, right=1 - right / whole, bottom=bottom / tall, top=1 - top / tall)
    return figure


def below_title(figure: Figure) -> float:
    """Height, as a share of the figure, of a legend between title and axes."""
    return 1 - (_TITLE - 0.06) / float(figure.get_figheight())
