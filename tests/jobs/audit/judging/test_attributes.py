"""Group metrics of an audit's decisions: fairlearn's values on real networks, gates, and what is undefined."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pytest
from fairlearn.metrics import (
    demographic_parity_difference,
    equal_opportunity_difference,
    equalized_odds_difference,
)

from jobs.audit.audit import Finished, run_audit
from jobs.fleetfile.reading import validate_fleet
from jobs.terminal.progress import Quiet
from services.errors import ConfigError
from services.loading.samples.source import open_samples
from services.records import Outcome
from tracking.bundle.bundle import read_bundle
from tracking.bundle.scores import read_kept_scores


@pytest.fixture
def fleet(digits_fleet: dict[str, Any]) -> dict[str, Any]:
    """Two networks on digits, divided by brightness."""
    data = deepcopy(digits_fleet)
    data["models"] = data["models"][:2]
    data["samples"]["uri"] += "&attributes=brightness,contrast"
    data["groups"] = ["brightness", "class*contrast", "brightness*contrast"]
    data["gates"] = [
        {"measure": "clean", "metric": "eodd", "grouping": "brightness", "at_most": 0.9},
        {"measure": "clean", "metric": "dp", "grouping": "brightness", "at_most": 0.0},
    ]
    return data


def audited(data: dict[str, Any]) -> Finished:
    return run_audit(validate_fleet(data), Quiet())


def test_gaps_are_fairlearns_for_every_class_and_attribute_and_survive_the_bundle(fleet: dict[str, Any]) -> None:
    done = audited(fleet)
    config = validate_fleet(fleet).config
    samples = open_samples(config.sample_spec())
    for index, model in enumerate(done.result.models):
        assert [result.grouping for result in model.fairness] == ["brightness", "brightness*contrast"]
        result, scores = model.fairness[0], read_kept_scores(done.folder, index, model.spec)
        groups, decided = samples.groups["brightness"], scores["clean:predicted"]
        assert dict(zip(result.groups, result.sizes, strict=True)) == {
            str(name): int((groups == name).sum()) for name in np.unique(groups)
        }
        assert len(result.tasks) == result.n_tasks == 10
        for task in result.tasks:
            truth, decision = samples.labels == task.index, decided == task.index
            by = {"sensitive_features": groups}
            expected = {
                "dp": demographic_parity_difference(truth, decision, **by),
                "eopp": equal_opportunity_difference(truth, decision, **by),
                "eodd": equalized_odds_difference(truth, decision, **by),
                "aodd": equalized_odds_difference(truth, decision, agg="mean", **by),
            }
            for metric, value in expected.items():
                outcome = task.gaps[metric]
                assert outcome.value == pytest.approx(value, abs=1e-12)
                assert outcome.low <= outcome.value <= outcome.high
        for metric, worst in result.worst.items():
            values = {task.task: task.gaps[metric].value for task in result.tasks}
            assert worst.value == max(values.values()) == values[result.worst_task[metric]]
    assert read_bundle(done.folder).models == done.result.models


def test_gates_on_gaps_are_judged_on_their_bounds(fleet: dict[str, Any]) -> None:
    loose, tight = audited(fleet).result.models[0].gates
    assert (loose.text, tight.text) == ("clean eodd by brightness <= 0.9", "clean dp by brightness <= 0")
    assert loose.estimate.high is not None
    assert loose.outcome is (Outcome.PASS if loose.estimate.high <= 0.9 else Outcome.UNDECIDED)
    assert tight.outcome is (Outcome.FAIL if tight.estimate.low > 0 else Outcome.UNDECIDED)  # type: ignore[operator]


def test_an_attribute_of_one_group_is_undefined_and_a_gate_on_it_an_error(fleet: dict[str, Any]) -> None:
    fleet["samples"]["uri"] = fleet["samples"]["uri"].replace("brightness", "brightness@0")
    model = audited(fleet).result.models[0]
    assert model.fairness[0].worst["dp"].value is None
    assert any("brightness has one group only" in note for note in model.notes)
    assert model.gates[0].outcome is Outcome.ERROR


@pytest.mark.parametrize(
    ("gate", "said"),
    [
        ({"measure": "great", "grouping": "brightness"}, "expected clean for metric eodd, found 'great'"),
        ({"measure": "clean"}, "expected an attribute for metric eodd, found 'class'"),
        ({"measure": "clean", "grouping": "class*contrast"}, "expected an attribute for metric eodd"),
        ({"measure": "clean", "grouping": "brightness", "at_most": 40}, r"expected a threshold in \[0, 1\]"),
    ],
)
def test_a_gate_that_cannot_be_judged_is_refused_at_once(
    fleet: dict[str, Any], gate: dict[str, Any], said: str
) -> None:
    fleet["gates"] = [{"metric": "eodd", "at_most": 0.1, **gate}]
    with pytest.raises(ConfigError, match=said):
        validate_fleet(fleet)
