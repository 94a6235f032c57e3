"""The smallest gap that samples decide: profiles so far from a threshold are decided, and nearer ones are not."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from jobs.audit.judging.assemble import Grouping, series_result
from jobs.audit.judging.decidable import smallest_gaps
from jobs.audit.judging.gates import judge
from jobs.fleetfile.reading import Fleet, validate_fleet
from services.records import Outcome, SampleFacts

COUNTS = (400, 100, 150)


def fleet(metric: str, **gate: Any) -> Fleet:
    return validate_fleet(
        {
            "fleet": "f",
            "models": [{"name": "m", "uri": "logits:none.npz"}],
            "samples": {"uri": "npz:none.npz"},
            "measures": ["clean"],
            "gates": [{"measure": "clean", "metric": metric, **gate}],
        }
    )


def gaps(made: Fleet) -> dict[str, float]:
    facts = SampleFacts("npz:x", "d", sum(COUNTS), (1, 8, 8), ("a", "b", "c"), COUNTS)
    (sentence,) = smallest_gaps(made, facts)
    return {outcome: float(gap) for outcome, gap in re.findall(r"(pass|fail) from ([0-9.]+) away", sentence)}


def outcome(made: Fleet, mean: float) -> Outcome:
    labels = np.repeat(np.arange(3), COUNTS)
    place = np.concatenate([np.arange(count) for count in COUNTS])
    scores = (place < np.rint(mean * np.array(COUNTS))[labels]).astype(float)
    (series,) = made.series().values()
    result = series_result(series, scores, {}, Grouping("class", labels, ("a", "b", "c")), made.config)
    (gate,) = made.config.gates
    return judge(gate, result.metric(gate.metric)).outcome


@pytest.mark.parametrize("metric", ["wcr", "aggregate", "p10", "fp"])
@pytest.mark.parametrize("side", ["at_least", "at_most"])
def test_profiles_beyond_the_gap_are_decided_and_nearer_ones_are_not(metric: str, side: str) -> None:
    made = fleet(metric, **{side: 0.7})
    found = gaps(made)
    assert set(found) == {"pass", "fail"}
    for name, gap in found.items():
        sign = 1 if (name == "pass") == (side == "at_least") else -1
        assert outcome(made, 0.7 + sign * (gap + 0.012)) is Outcome(name)
        assert outcome(made, 0.7 + sign * (gap - 0.02)) is Outcome.UNDECIDED


def test_a_threshold_that_no_profile_clears_is_not_promised() -> None:
    assert "pass" not in gaps(fleet("wcr", at_least=0.999))
    assert set(gaps(fleet("rdi", at_most=0.01))) == {"fail"}
    assert gaps(fleet("nrgc", at_most=0.2)).keys() == {"pass", "fail"}
