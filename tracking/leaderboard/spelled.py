"""Keys that come as text alone: metrics of runs of 0.1.0, published tables, and what a user writes in an option.

The one place of the leaderboard that takes a key apart. What runs of today measured, they say themselves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from pydantic import TypeAdapter

from services.records import Series
from services.records.upgrade import typed
from tracking.leaderboard.numbers import AGGREGATE, SECONDS, SHOWN, Number, Part

_SERIES = TypeAdapter(Series)
_SHARES = ("clean", "pgd", "apgd", "cw", "square", "autoattack", "pr", "probacc", "binomial")


def number(text: str) -> Number:
    """What a text means: a series alone means its aggregate."""
    if text == SECONDS.key:
        return SECONDS
    head, _, rest = text.partition("/")
    if head == Part.GAP and rest:
        return Number(text, Part.GAP, "", rest, _series(rest))
    lens, _, metric = text.rpartition("/")
    if not lens or metric not in SHOWN:
        lens, metric = text, AGGREGATE
    series, _, column = lens.partition("/by-")
    return Number(f"{lens}/{metric}", Part.TEST, metric, lens, _series(series), column or "class")


def is_number(key: str) -> bool:
    """Whether a metric of a run is one that a leaderboard shows."""
    head, _, metric = key.rpartition("/")
    return (bool(head) and metric in SHOWN) or key.startswith(f"{Part.GAP}/") or key == SECONDS.key


def today(metrics: Mapping[str, float]) -> dict[str, float]:
    """The metrics as they are called today: 0.1.0 logged the refuted share as falsified."""
    renamed = {}
    for key, value in metrics.items():
        stem, mark, side = key.rpartition("/falsified")
        renamed[f"{stem}/refuted{side}" if mark else key] = value
    return renamed


def weakest(metrics: Mapping[str, float]) -> dict[str, str]:
    """Name of the class with the smallest score, by series, as the keys ``SERIES/class/c003_cat`` have it."""
    least: dict[str, tuple[float, str]] = {}
    for key, value in metrics.items():
        lens, kind, group = key.rpartition("/class/")
        if kind and lens and (lens not in least or value < least[lens][0]):
            index, _, name = group.partition("_")
            least[lens] = (value, name or index.removeprefix("c").lstrip("0") or "0")
    return {lens: name for lens, (_, name) in least.items()}


def _series(key: str) -> Series:
    series: Series = _SERIES.validate_python(typed({"key": key, "title": key, "bound": math.inf}))
    share = series.family in _SHARES or (series.attack and series.threat is not None and series.family != "minimal")
    return replace(series, bound=1.0 if share else math.inf)
