"""Hostile files of every kind: one clear error or a plain value, in bounded time and memory, and no code runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
SECONDS = 20
BYTES = 1_500_000_000
TEXT = 2_000
"""Characters of a message at most: what an attacker wrote is not copied into the logs at length."""


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[dict[str, Any]]]:
    """What came of each attack, in one process with 6 GiB."""
    folder = tmp_path_factory.mktemp("attacks")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(HERE / "attacks.py"), str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=550, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]
    yield [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def test_no_code_runs(reports: list[dict[str, Any]]) -> None:
    assert len(reports) > 200
    assert [each["name"] for each in reports if each["ran"]] == []


def test_each_is_told_or_read(reports: list[dict[str, Any]]) -> None:
    assert [each for each in reports if each["outcome"] == "broken"] == []


def test_in_bounded_time_and_memory(reports: list[dict[str, Any]]) -> None:
    assert [each for each in reports if each["seconds"] > SECONDS or each["bytes"] > BYTES] == []


def test_messages_are_short_and_printable(reports: list[dict[str, Any]]) -> None:
    long = [each["name"] for each in reports if len(each.get("text", "")) > TEXT]
    odd = [each["name"] for each in reports if any(char < " " and char != "\n" for char in each.get("text", ""))]
    assert (long, odd) == ([], [])
