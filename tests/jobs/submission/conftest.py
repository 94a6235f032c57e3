"""A fleet to submit, which takes a second, and one that takes long enough to be stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobs.submission.client import AuditClient
from jobs.submission.local_jobs import LocalJobs


@pytest.fixture
def quick_fleet(digits_fleet: dict[str, Any]) -> dict[str, Any]:
    """One well trained network, accuracy only."""
    return {**digits_fleet, "models": digits_fleet["models"][:1], "measures": ["clean"]}


@pytest.fixture
def slow_fleet(quick_fleet: dict[str, Any]) -> dict[str, Any]:
    """Nine shards of an attack that takes about a second each."""
    slow = [{"name": "pgd", "steps": 150, "epsilons": [0.02]}]
    resources = {**quick_fleet["resources"], "shard": 100}
    return {**quick_fleet, "fleet": "slow", "measures": slow, "resources": resources}


@pytest.fixture
def local_client(tmp_path: Path) -> AuditClient:
    """A client whose audits are processes of this machine."""
    storage = str(tmp_path / "runs")
    return AuditClient(LocalJobs(storage), storage=storage, environment={"OMP_NUM_THREADS": "1"})
