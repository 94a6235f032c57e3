"""What is proved, claimed and broken of a model, class by class, in one norm each."""

from __future__ import annotations

import math
from collections.abc import Mapping

from services.records import L2_DISTANCE, LINF_DISTANCE, Evidence, ModelResult, SeriesResult
from tracking.bundle.group_table import finite
from tracking.figures.charts import Dots, Marks, Panel

MOST = 40
BRACKET = {
    "certified radius (proved)": Evidence.CERTIFICATE,
    "GREAT (claimed)": Evidence.CLAIM,
    "perturbation found (broken)": Evidence.ATTACK,
}
"""The marks of a bracket and what their series are evidence of."""


def bracket(model: ModelResult, pixels: int = 0) -> Dots | None:
    """Per class: certified radius (proved), GREAT (claimed), smallest perturbation found (broken).

    A panel of L2 distances where two of the three are known in L2, and one of Linf distances where a perturbation was
    looked for in Linf: an L2 ball of radius r holds the Linf ball of radius ``r / sqrt(pixels)``, so what is proved or
    claimed in L2 stands at that. None when there is no panel.

    Args:
        pixels: values of an image, C H W; 0 where not known, and then there is no panel of Linf.
    """
    there = {label: result for label, evidence in BRACKET.items() if (result := distances(model, evidence))}
    lines = {L2_DISTANCE: {label: _values(result) for label, result in there.items()}}
    found = distances(model, Evidence.ATTACK, LINF_DISTANCE)
    if found is not None and pixels:
        bounds = [label for label in there if BRACKET[label] is not Evidence.ATTACK]
        lines[LINF_DISTANCE] = {
            **{f"{label}, L2 / sqrt(d)": _values(there[label], math.sqrt(pixels)) for label in bounds},
            "perturbation found (broken)": _values(found),
        }
    panels = {unit: marks for unit, marks in lines.items() if len(marks) > 1}
    if not panels:
        return None
    last = list(next(iter(panels.values())).values())[-1]
    classes = {
        row.index: row.name for result in (*there.values(), *([found] if found else [])) for row in result.groups
    }
    order = sorted(classes, key=lambda index: (_last(last.get(index)), index))[:MOST]
    note = "Class means: robustness lies between the certified radius (proved) and the smallest perturbation found "
    note += "(broken). GREAT claims a radius; a claim to the right of the perturbation found is refuted."
    if len(classes) > len(order):
        note += f" The {len(order)} weakest of {len(classes):,} classes."
    shown = tuple(
        Panel(unit, tuple(Marks(label, tuple(line.get(index) for index in order)) for label, line in marks.items()))
        for unit, marks in panels.items()
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
