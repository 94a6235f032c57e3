"""The registry of measures: one line a measure."""

from __future__ import annotations

import json
from typing import Any

from services.measures.base import Measure
from services.registry import Registry

MEASURES: Registry[type[Measure]] = Registry(
    "measure",
    "classwise.measures",
    {
        "clean": "services.measures.clean:Clean",
        "great": "services.measures.great:Great",
        "pgd": "services.measures.pgd:Pgd",
        "cw": "services.measures.cw:Cw",
        "autoattack": "services.measures.autoattack:AutoAttackSurvival",
        "square": "services.measures.square:Square",
        "minimal": "services.measures.minimal:Minimal",
        "pr": "services.measures.probabilistic:Pr",
        "probacc": "services.measures.probabilistic:ProbAcc",
        "binomial": "services.measures.binomial:Binomial",
        "rare": "services.measures.rare:Rare",
        "radius": "services.measures.smoothing:Radius",
    },
)


def measure_from(canonical: str) -> Measure:
    """Build a measure from its canonical JSON (`Measure.canonical`)."""
    fields: dict[str, Any] = json.loads(canonical)
    fields.pop("version", None)
    return MEASURES.get(fields["name"]).model_validate(fields)
