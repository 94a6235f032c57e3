"""What several of these tests do."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def gated(fleet: dict[str, Any], at_least: float) -> dict[str, Any]:
    """The fleet with a gate on its accuracy."""
    return {**fleet, "gates": [{"measure": "clean", "metric": "aggregate", "at_least": at_least}]}


def wait_until(ready: Callable[[], bool], seconds: float = 300.0) -> None:
    """Poll, or fail the test."""
    end = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < end, "it did not come about in time"
        time.sleep(0.05)


def shards(storage: Path) -> list[Path]:
    """Finished score shards."""
    return sorted(storage.rglob("cache/scores/**/*.parquet"))


def modified(paths: list[Path]) -> dict[Path, int]:
    """When each was written."""
    return {path: path.stat().st_mtime_ns for path in paths}
