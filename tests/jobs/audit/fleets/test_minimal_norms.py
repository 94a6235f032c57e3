"""An audit that measures the smallest distances in both norms, by the example of the docs."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.audit.audit import run_audit
from jobs.audit.judging.fleet_checks import by_class
from jobs.fleetfile.reading import validate_fleet
from jobs.terminal.progress import Quiet
from services.records import LINF_DISTANCE, Outcome


@pytest.mark.slow
def test_both_norms_stand_side_by_side(digits_fleet: dict[str, Any]) -> None:
    text = (Path(__file__).resolve().parents[4] / "docs" / "measures.md").read_text()
    section = text.split("\n## minimal\n")[1].split("\n## ")[0]
    (block,) = re.findall(r"^```yaml\n(.*?)^```", section, re.M | re.S)
    gate = {"measure": "minimal/linf", "metric": "aggregate", "at_least": 0.9 * 0.5}
    data = {**digits_fleet, **yaml.safe_load(block), "gates": [gate], "models": digits_fleet["models"][:2]}
    data["samples"] = {"uri": "sklearn:digits?split=test", "limit": 40}
    result = run_audit(validate_fleet(data), Quiet()).result
    for model in result.models:
        linf, l2 = by_class(model, "minimal/linf"), by_class(model, "minimal/l2")
        assert linf is not None and l2 is not None
        assert linf.series.unit == LINF_DISTANCE and linf.series.bound == 0.5
        near, far = linf.aggregate.value, l2.aggregate.value
        assert near is not None and far is not None and near < far < near * math.sqrt(64)
        assert model.gates[0].outcome is Outcome.FAIL
        assert {attack.name for attack in model.attacks} == {"minimal", "minimal-linf"}
