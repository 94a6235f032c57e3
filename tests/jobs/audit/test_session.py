"""Stages of an audit: faults by model."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import pytest

from jobs.audit import session as session_module
from jobs.audit.session import Session, source_environment
from jobs.audit.speeds import Speed
from jobs.fleetfile.reading import validate_fleet
from jobs.terminal.progress import Quiet
from services.errors import Problem, WorkerError
from services.measures.pgd import Pgd
from services.records import ModelSpec, Receipt, SampleSpec, ShardTask


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


class Slow:
    """A runner whose task takes until `enough` is set."""

    workers = 1

    def __init__(self, enough: threading.Event) -> None:
        self.enough = enough

    def __enter__(self) -> Slow:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing to end."""

    def run(self, tasks: Sequence[ShardTask]) -> Iterator[Receipt]:
        for task in tasks:
            assert self.enough.wait(20.0), "nobody said how long the stage takes"
            yield Receipt(task, 100, 0, 1.0)


def test_a_stage_says_how_long_it_takes_before_its_first_shard_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "TICK", 0.01)
    said, enough = list[tuple[float, float]](), threading.Event()

    class Heard(Quiet):
        def remaining(self, share: float, seconds: float) -> None:
            said.append((share, seconds))
            enough.set()

    spec = ModelSpec("m", "x:y")
    task = ShardTask("measure", spec, SampleSpec("npz:x"), 0, 100, 0, 8, measure=Pgd(steps=20).canonical())
    with Session(lambda: Slow(enough), Heard(), stop_on_fault=True) as session:  # type: ignore[arg-type, return-value]
        session.speeds["m"] = Speed(0.001, 0.003)
        session.run("measures", [task])
    assert said[0][0] == pytest.approx(0.0, abs=0.05) and said[0][1] == pytest.approx(6.0, abs=0.3)
    assert said[-1] == (1.0, 0.0)


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
