"""Colours that people with any colour vision can distinguish (Okabe and Ito 2008), and a perceptually even scale."""

from __future__ import annotations

LINES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7A5C00", "#5B5B5B")
"""Yellow, the eighth of the set, is too faint on white; a dark olive and a grey stand in."""

SHAPES = ("o", "s", "^", "D", "v", "P", "X", "*")
"""Markers of matplotlib: colour is never the only sign."""


def style(place: int) -> tuple[int, int]:
    """Positions of colour and shape for the model at that place of the fleet: no two of 64 models share both."""
    return place % 8, (place + place // 8) % 8


GREY = "#9A9A9A"
SCALE = "cividis"
"""A scale made for colour-blind readers, dark to light."""
