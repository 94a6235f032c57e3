"""Stores in SQLite and PostgreSQL, and a clock that is moved by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from jobs.fleetfile.reading import Fleet, validate_fleet
from jobs.schedules.store import Store

SERVERS = Path(__file__).resolve().parents[2] / "tracking" / "mlflow" / "test_server.py"


def _servers() -> ModuleType:
    spec = spec_from_file_location("postgres_of_the_tracking_tests", SERVERS)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


postgres = _servers().postgres
"""The private PostgreSQL of the tracking tests."""


class Clock:
    """A time that only the test moves."""

    def __init__(self, now: datetime) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def forward(self, **by: float) -> datetime:
        self.now += timedelta(**by)
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock(datetime(2026, 11, 28, 1, 0, tzinfo=UTC))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(f"sqlite:///{tmp_path}/db/schedules.db")
    yield opened
    opened.close()


@pytest.fixture
def make_fleet(tmp_path: Path) -> Callable[..., Fleet]:
    """A function to a fleet that is only ever named, not audited."""

    def make(name: str = "shop") -> Fleet:
        data: dict[str, Any] = {
            "fleet": name,
            "models": [{"name": "m", "uri": "logits:/data/m.npz"}],
            "samples": {"uri": "npz:/data/s.npz"},
            "storage": str(tmp_path / "runs"),
        }
        return validate_fleet(data)

    return make
