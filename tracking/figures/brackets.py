"""What is proved, claimed and broken of a model, class by class, in one norm each."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

from services.records import L2_DISTANCE, LINF_DISTANCE, Evidence, ModelResult, SeriesResult
from tracking.bundle.group_table import finite
from tracking.figures.charts import Dots, Marks, Panel

MOST = 40
S = TypeVar("S")
BROKEN = "perturbation found (broken)"
BRACKET = {
    "certified radius (proved)": Evidence.CERTIFICATE,
    "GREAT (claimed)": Evidence.CLAIM,
    BROKEN: Evidence.ATTACK,
}
"""The marks of a bracket and what their series are evidence of."""


def panels(series_of: Callable[[Evidence, str], S | None], pixels: int) -> dict[str, dict[str, tuple[S, float]]]:
    """For each distance the marks of a bracket: their series, and what its values are divided by.

    L2 where two of the three are known in L2, and Linf where a perturbation was looked for in Linf: an L2 ball of
    radius r holds the Linf ball of radius ``r / sqrt(pixels)``, so what is proved or claimed in L2 stands at that.

    Args:
        series_of: the series that shows this, in a distance.
        pixels: values of an image, C H W; 0 where not known, and then there is nothing in Linf.
    """
    there = {
        label: (series, 1.0) for label, kind in BRACKET.items() if (series := series_of(kind, L2_DISTANCE)) is not None
    }
    marks = {L2_DISTANCE: there}
    if pixels and (broken := series_of(Evidence.ATTACK, LINF_DISTANCE)) is not None:
        bounds = [label for label in there if BRACKET[label] is not Evidence.ATTACK]
        marks[LINF_DISTANCE] = {
            **{f"{label}, L2 / sqrt(d)": (there[label][0], math.sqrt(pixels)) for label in bounds},
            BROKEN: (broken, 1.0),
        }
    return {unit: each for unit, each in marks.items() if len(each) > 1}


def bracket(model: ModelResult, pixels: int = 0) -> Dots | None:
    """Per class: certified radius (proved), GREAT (claimed), smallest perturbation found (broken), as `panels` says.

    None when there is no panel.
    """
    chosen = panels(partial(distances, model), pixels)
    if not chosen:
        return None
    lines = {
        unit: {label: _values(result, by) for label, (result, by) in marks.items()} for unit, marks in chosen.items()
    }
    every = [result for marks in chosen.values() for result, _ in marks.values()]
    last = list(next(iter(lines.values())).values())[-1]
    classes = {row.index: row.name for result in every for row in result.groups}
    order = sorted(classes, key=lambda index: (_last(last.get(index)), index))[:MOST]
    note = "Class means: robustness lies between the certified radius (proved) and the smallest perturbation found "
    note += "(broken). GREAT claims a radius; a claim to the right of the perturbation found is refuted."
    if len(classes) > len(order):
        note += f" The {len(order)} weakest of {len(classes):,} classes."
    shown = tuple(
        Panel(unit, tuple(Marks(label, tuple(line.get(index) for index in order)) for label, line in marks.items()))
        for unit, marks in lines.items()
    )
    title = f"{model.spec.name}: proved, claimed, broken"
    return Dots(title, note, tuple(classes[index] for index in order), shown, "class")


def distances(model: ModelResult, evidence: Evidence, unit: str = L2_DISTANCE) -> SeriesResult | None:
    """The model's series of distances that show this, over the classes; the plain one before its variants."""
    results = [
        result
        for result in model.series
        if result.grouping == "class" and result.series.evidence is evidence and result.series.unit == unit
    ]
    return min(results, key=lambda result: len(result.series.key), default=None)


def _values(result: SeriesResult, by: float = 1.0) -> Mapping[int, float | None]:
    return {row.index: None if (v := finite(row.score.value)) is None else v / by for row in result.groups}


def _last(value: float | None) -> float:
    """Sort key that puts the undefined last."""
    return math.inf if value is None else value
