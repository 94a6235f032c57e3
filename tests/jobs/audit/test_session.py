"""Stages of an audit: faults by model."""

from __future__ import annotations

import pytest

from jobs.audit.session import Session, source_environment
from jobs.fleetfile.reading import validate_fleet
from jobs.terminal.progress import Quiet
from services.errors import Problem, WorkerError


def never() -> None:
    pytest.fail("a runner was started")


def test_shards_in_flight_together_tell_a_fault_once() -> None:
    first, other = Problem("m", "a file", "none"), Problem("m", "logits", "a tuple")
    with Session(never, Quiet(), stop_on_fault=True) as session:  # type: ignore[arg-type]
        session.fault("m", [first, first])
        session.fault("m", [first, other])
        assert session.faults == {"m": [first, other]}
        with pytest.raises(WorkerError) as caught:
            session.run("logits", [])
    assert caught.value.problems == (first, other)


@pytest.mark.parametrize(("uri", "logged"), [("mlflow:models:/net/1", True), ("timm:resnet18", False)])
def test_workers_are_told_where_the_registry_is_when_they_need_it(
    uri: str, logged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = {"MLFLOW_TRACKING_URI": "http://m:5000", "MLFLOW_REGISTRY_URI": "http://r", "MLFLOW_S3_ENDPOINT_URL": "s"}
    for name, value in {**wanted, "MLFLOW_RUN_ID": "of somebody else"}.items():
        monkeypatch.setenv(name, value)
    data = {"fleet": "f", "samples": {"uri": "npz:s.npz"}, "models": [{"name": "a", "uri": uri}]}
    by_name = dict(source_environment(validate_fleet(data).config))
    assert {name: by_name.get(name) for name in wanted} == (wanted if logged else dict.fromkeys(wanted))
    assert "MLFLOW_RUN_ID" not in by_name
