"""The drills on a small stack: a killed head, and a few submissions at once."""

from __future__ import annotations

import subprocess
import sys

import pytest

from benchmarks.drills.night import plans
from tests.deploy.conftest import ROOT, Stack


def drill(stack: Stack, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.drills", *words, "--dir", str(stack.layout.folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=500)


@pytest.mark.slow
def test_after_a_killed_head_everything_goes_on(stack: Stack) -> None:
    process = drill(stack, "head")
    assert process.returncode == 0, process.stdout + process.stderr[-3000:]
    assert "of them done again                           0" in process.stdout


@pytest.mark.slow
def test_under_load_nothing_is_lost_and_nothing_doubled(stack: Stack) -> None:
    process = drill(stack, "load", "--submissions", "6", "--schedules", "3", "--seconds", "400")
    assert process.returncode == 0, process.stdout + process.stderr[-3000:]


def test_the_night_expects_one_of_each_and_two_in_the_hour_that_comes_twice() -> None:
    made = plans("x")
    assert len(made) == 20 and [plan.expected() for plan in made] == [1] * 19 + [12]
