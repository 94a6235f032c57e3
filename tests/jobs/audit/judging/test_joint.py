"""Limits for all models of an audit together: in the record, in its places and notes, and in MLflow's metrics."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.audit.audit import run_audit
from jobs.fleetfile.reading import validate_fleet
from jobs.terminal.progress import Quiet
from tracking.bundle.bundle import read_bundle
from tracking.mlflow.layout import child_content


def test_limits_of_a_chosen_model_are_those_of_all_models_together(digits_fleet: dict[str, Any]) -> None:
    done = run_audit(validate_fleet(digits_fleet), Quiet())
    result = done.result
    for model in result.models:
        for series in model.series:
            assert set(series.joint) == {"aggregate", "wcr"}
            for name, joint in series.joint.items():
                own = series.metric(name)
                assert joint.value == own.value
                assert joint.low <= own.low <= own.value <= own.high <= joint.high and joint != own
    places = result.checks["places"]["clean"]["aggregate"]
    assert {name: tuple(between) for name, between in places.items()} == {
        "good": (1, 2),
        "weak": (3, 3),
        "other": (1, 2),
    }
    (note,) = [note for note in result.notes if note.startswith("By clean accuracy ")]
    assert "has the best mean, and " in note and "may truly be better; chosen of 3 models" in note
    metrics = child_content(result, 0).metrics
    assert metrics["clean/aggregate_joint_low"] == pytest.approx(result.models[0].series[0].joint["aggregate"].low)
    assert read_bundle(done.folder).models == result.models


def test_an_audit_of_one_model_chose_none(digits_fleet: dict[str, Any]) -> None:
    digits_fleet["models"] = digits_fleet["models"][:1]
    result = run_audit(validate_fleet(digits_fleet), Quiet()).result
    assert all(not series.joint for series in result.models[0].series)
    assert result.checks["places"] == {"clean": {}, "great-softmax": {}}
