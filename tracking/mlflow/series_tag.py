"""Which series a run has, as tags of it: who reads its metrics makes their keys from these and takes none apart."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from itertools import count
from typing import Any

from pydantic import TypeAdapter, ValidationError

from services.records import ModelResult, Series
from tracking.bundle.summary import lens, tied

TAG = "classwise.series"
MAX_TAG = 8_000


@dataclass(frozen=True, slots=True)
class Measured:
    """A series of a run.

    Attributes:
        lens: prefix of its metrics.
        grouping: "class" or a column.
        series: what it is.
        worst: the groups with the smallest score.
    """

    lens: str
    grouping: str
    series: Series
    worst: str = ""


def series_tags(model: ModelResult) -> dict[str, str]:
    """The series of a model in as many tags as it takes: ``classwise.series``, ``classwise.series.1``, ..."""
    measured = [
        Measured(lens(result), result.grouping, result.series, tied(result.worst, len(result.worst)))
        for result in model.series
    ]
    return dict(zip(_names(), _texts([json.dumps(_brief(each), default=str) for each in measured]), strict=False))


def series_of(tags: Mapping[str, str]) -> tuple[Measured, ...] | None:
    """The series that a run's tags list; None for a run without them, as those of 0.1.0, or with damaged ones."""
    if TAG not in tags:
        return None
    texts = []
    for name in _names():
        if name not in tags:
            break
        texts.append(tags[name])
    try:
        return tuple(_MEASURED.validate_python([each for text in texts for each in json.loads(text)]))
    except (ValueError, ValidationError):
        return None


_MEASURED = TypeAdapter(list[Measured])


def _names() -> Iterator[str]:
    yield TAG
    yield from (f"{TAG}.{number}" for number in count(1))


def _texts(parts: list[str]) -> Iterator[str]:
    """JSON lists of the parts, each as long as a tag may be."""
    held: list[str] = []
    for part in parts:
        if held and sum(map(len, held)) + len(part) + 2 * len(held) + 4 > MAX_TAG:
            yield f"[{', '.join(held)}]"
            held = []
        held.append(part)
    if held:
        yield f"[{', '.join(held)}]"


def _brief(measured: Measured) -> dict[str, Any]:
    """As plain values, without what is as by default."""
    defaults = {each.name: each.default for each in fields(Series) if each.default is not MISSING}
    series = {name: value for name, value in asdict(measured.series).items() if value != defaults.get(name, MISSING)}
    return {**asdict(measured), "series": series}
