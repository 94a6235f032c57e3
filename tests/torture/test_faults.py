"""A few of the fault schedules of ``make torture``, real drivers in a process of their own, and what draws them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from torture.faults import KINDS, draw, draw_at
from torture.forks import in_fork
from torture.verdict import differences

ROOT = Path(__file__).resolve().parents[2]
COUNTS = {"write": 118, "read": 118, "network": 272, "mlflow": 47, "stage": 4, "disk": 7000}


def suite(*options: str) -> subprocess.CompletedProcess[str]:
    """Run the suite, or one of its modules when the first option names it."""
    paths = f"{ROOT}:{ROOT / 'tests'}"
    module = [f"torture.{options[0]}", *options[1:]] if options[0].isalpha() else ["torture", *options]
    return subprocess.run(
        [sys.executable, "-m", *module],
        env={**os.environ, "PYTHONPATH": paths},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=500,
    )


@pytest.mark.slow
def test_schedules_of_faults_end_as_if_nothing_had_happened() -> None:
    count = 12
    done = suite("--count", str(count), "--seed", "7")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(re.findall(r" ok$", done.stdout, re.MULTILINE)) == count
    assert f"{count} schedules" in done.stdout and "SIGKILL, resume" in done.stdout


def test_a_seed_draws_the_same_faults_of_every_kind() -> None:
    drawn = [draw(1, index, COUNTS) for index in range(400)]
    assert drawn == [draw(1, index, COUNTS) for index in range(400)]
    assert drawn != [draw(2, index, COUNTS) for index in range(400)]
    points = Counter(fault.point for fault in drawn)
    assert points["write"] > points["mlflow"] > points["network"] > points["read"] > 20
    assert {(fault.point, fault.kind) for fault in drawn} == {(p, kind) for p in points for kind in KINDS[p]}
    assert all(1 <= fault.at <= COUNTS[fault.point] for fault in drawn)


def test_what_is_not_there_is_not_drawn() -> None:
    assert {draw(1, index, {**COUNTS, "disk": 0}).point for index in range(60)} == set(COUNTS) - {"disk"}
    assert [draw_at("server", 1, index, 47).kind for index in range(len(KINDS["server"]))] == list(KINDS["server"])


def test_a_child_tells_its_value_its_signal_or_that_it_raised() -> None:
    assert in_fork(lambda: [1, "a"]).value == [1, "a"]
    assert in_fork(lambda: os.kill(os.getpid(), 9)).signal == 9
    raised = in_fork(lambda: 1 // 0)
    assert (raised.value, raised.signal, raised.returned) == (None, 0, False)
    with pytest.raises(TimeoutError):
        in_fork(lambda: __import__("time").sleep(60), seconds=0.1)


def test_a_difference_is_told_and_equal_states_have_none() -> None:
    wanted = {"bundles": 1, "scores": {"a": "1", "b": "2"}}
    assert differences(json.loads(json.dumps(wanted)), wanted) == []
    assert differences({"bundles": 2, "scores": {"a": "1", "b": "3"}}, wanted) == [
        "bundles: 2 for 1",
        "scores: 1 differ, first b: 3 for 2",
    ]
    assert len(differences({}, wanted)) == 2
