"""Whether equal names mean equal measurements: parameters and temperatures of the audits that a board is made of."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from services.errors import ClasswiseError
from services.measures.catalogue import MEASURES
from services.records import Evidence
from tracking.leaderboard.numbers import Number
from tracking.leaderboard.rows import AuditedModel

_RADII = frozenset({"radii", "epsilons", "at"})
"""Parameters that add series and say little of those that two audits share."""


def measure_notes(
    numbers: Sequence[Number], models: Sequence[AuditedModel], measures: Mapping[str, Sequence[Any]]
) -> list[str]:
    """A sentence for each series that the audits measured in different ways, naming what differs.

    Args:
        numbers: what counts for the score.
        measures: the measures of each audit as its fleet file gave them; an audit that is not there is not compared.
    """
    parameters = {audit: _parameters(specs) for audit, specs in measures.items()}
    audits = list(dict.fromkeys(model.audit_id for model in models))
    notes = []
    for lens, series in {number.lens: number.series for number in numbers if number.series}.items():
        known = [fields for audit in audits if (fields := parameters.get(audit, {}).get(series.key))]
        differing = sorted({name for own in known for name in own if len({repr(o.get(name)) for o in known}) > 1})
        if differing:
            differences = [
                f"{name} {' or '.join(dict.fromkeys(json.dumps(o.get(name)) for o in known))}" for name in differing
            ]
            notes.append(f"{lens} was measured in different ways: {', '.join(differences)}")
        temperatures = sorted({model.temperature for model in models if model.temperature})
        if series.evidence is Evidence.CLAIM and len(temperatures) > 1:
            shown = ", ".join(temperatures[:5])
            notes.append(f"{lens} was measured at different temperatures ({shown}): such scores have different scales")
    return notes


def _parameters(specs: Sequence[Any]) -> dict[str, dict[str, Any]]:
    """Parameters of each series of an audit, defaults included; a measure that is not installed here is left out."""
    by_series: dict[str, dict[str, Any]] = {}
    for item in specs:
        fields = {"name": item} if isinstance(item, str) else item
        try:
            measure = MEASURES.get(str(fields.get("name"))).model_validate(fields)
            parameters = {key: value for key, value in measure.model_dump(mode="json").items() if key not in _RADII}
            by_series |= {series.key: parameters for series in measure.series()}
        except (AttributeError, ClasswiseError, ValidationError):
            continue
    return by_series
