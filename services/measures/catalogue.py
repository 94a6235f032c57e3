"""The registry of measures: one line a measure."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from services.errors import Problem, SourceError
from services.measures.measure import Measure
from services.registry import Registry

MEASURES: Registry[type[Measure]] = Registry(
    "measure",
    "classwise.measures",
    {
        "clean": "services.measures.clean:Clean",
        "brier": "services.measures.clean:Brier",
        "great": "services.measures.great:Great",
        "pgd": "services.measures.pgd:Pgd",
        "cw": "services.measures.cw:Cw",
        "apgd": "services.measures.apgd:Apgd",
        "autoattack": "services.measures.autoattack:AutoAttackSurvival",
        "square": "services.measures.square:Square",
        "minimal": "services.measures.minimal:Minimal",
        "projection": "services.measures.projection:Projection",
        "pr": "services.measures.probabilistic:Pr",
        "probacc": "services.measures.probabilistic:ProbAcc",
        "binomial": "services.measures.binomial:Binomial",
        "rare": "services.measures.rare:Rare",
        "corruptions": "services.measures.corruptions:Corruptions",
        "radius": "services.measures.radius:Radius",
    },
)


def measure_from(canonical: str) -> Measure:
    """Build a measure from its canonical JSON (`Measure.canonical`).

    Raises:
        SourceError: the files that it names have changed since; their numbers would enter the cache as the old ones'.
    """
    fields: dict[str, Any] = json.loads(canonical)
    for name in ("version", "layout"):
        fields.pop(name, None)
    content = fields.pop("content", "")
    measure = MEASURES.get(fields["name"]).model_validate(fields)
    if content and content != measure.content():
        remedy = "run the audit again when nothing writes there; on a cluster, bring the nodes up to date"
        raise SourceError(Problem(measure.name, "the files that the audit began with", "others", remedy))
    return measure


def could_make(key: str, names: Iterable[str]) -> bool:
    """Whether a measure that goes by one of these names, or any known one, could make this key.

    A key begins with the name of its measure: that much is known of one whose parameters could not be read.
    """
    return key.startswith((*names, *MEASURES.names()))
