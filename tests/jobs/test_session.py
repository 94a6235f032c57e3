"""Stages of an audit: faults by model."""

from __future__ import annotations

import pytest

from jobs.progress import Quiet
from jobs.session import Session
from services.errors import Problem, WorkerError


def never() -> None:
    pytest.fail("a runner was started")


def test_shards_in_flight_together_tell_a_fault_once() -> None:
    one, other = Problem("m", "a file", "none"), Problem("m", "logits", "a tuple")
    with Session(never, Quiet(), stop_on_fault=True) as session:  # type: ignore[arg-type]
        session.fault("m", [one, one])
        session.fault("m", [one, other])
        assert session.faults == {"m": [one, other]}
        with pytest.raises(WorkerError) as caught:
            session.run("logits", [])
    assert caught.value.problems == (one, other)
