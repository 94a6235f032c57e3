"""What a picture shows, free of any drawing library: six kinds of chart serve every figure.

A chart holds full names; shortening is the drawer's business, so that an interactive one can show the whole name.
Missing values are None.
"""

from __future__ import annotations

from dataclasses import dataclass

Values = tuple[float | None, ...]


@dataclass(frozen=True)
class Heatmap:
    """A matrix of values (rows x columns), rows drawn from the top; `label` says what a value is."""

    title: str
    note: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: tuple[Values, ...]
    label: str
    row_label: str = "model"
    column_label: str = "class"


@dataclass(frozen=True)
class Marks:
    """One mark a category, with optional limits."""

    name: str
    values: Values
    low: Values = ()
    high: Values = ()


@dataclass(frozen=True)
class Panel:
    """Marks side by side over one x axis; `whole` where only whole numbers are read off it."""

    label: str
    marks: tuple[Marks, ...]
    whole: bool = False


@dataclass(frozen=True)
class Dots:
    """Categories from the top, one panel a quantity; each value a dot with its interval."""

    title: str
    note: str
    categories: tuple[str, ...]
    panels: tuple[Panel, ...]
    category_label: str


@dataclass(frozen=True)
class Cloud:
    """Points of one scatter panel."""

    x_label: str
    y_label: str
    names: tuple[str, ...]
    x: Values
    y: Values


@dataclass(frozen=True)
class Scatter:
    """Scatter panels side by side."""

    title: str
    note: str
    clouds: tuple[Cloud, ...]


@dataclass(frozen=True)
class Line:
    """One named line over the chart's x values; `place` in the fleet is its colour's, whatever else is drawn."""

    name: str
    y: Values
    place: int | None = None


@dataclass(frozen=True)
class Lines:
    """Lines over shared x values.

    Attributes:
        x: numbers or category names.
        log: logarithmic x axis.
        band: (low, high) on the x axis to shade, with its label.
        vertical: (x, label) to mark.
        falling: the y axis runs downwards (ranks).
        highlight: number of lines that get colour and a label at their end; the others are thin and grey.
    """

    title: str
    note: str
    x_label: str
    y_label: str
    x: tuple[float | str, ...]
    lines: tuple[Line, ...]
    log: bool = False
    band: tuple[float, float, str] | None = None
    vertical: tuple[float, str] | None = None
    falling: bool = False
    highlight: int = 8


@dataclass(frozen=True)
class Radar:
    """Closed lines over the axes, from 0 at the centre to `top`."""

    title: str
    note: str
    axes: tuple[str, ...]
    lines: tuple[Line, ...]
    top: float


@dataclass(frozen=True)
class Strip:
    """Images along one dimension.

    Attributes:
        images: bytes of uint8 (S, H, W, C).
        labels: what the network says at each position.
        down, up: positions of the flips on either side of 0; None where there is none.
    """

    name: str
    images: bytes
    labels: tuple[str, ...]
    down: float | None
    up: float | None


@dataclass(frozen=True)
class Strips:
    """Rows of images over shared positions; drawn as a picture everywhere. `shape` is (H, W, C)."""

    title: str
    note: str
    positions: tuple[float, ...]
    shape: tuple[int, int, int]
    strips: tuple[Strip, ...]


Chart = Heatmap | Dots | Scatter | Lines | Radar | Strips
