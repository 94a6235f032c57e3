"""A trial that is planned, whatever it trains."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.sweepconfig import SweepConfig
from jobs.sweepfile import MapperTrial, Trial
from services import storage
from services.trials import TrialTask

KEY_VERSION = 1
"""Raised when the same trial would come out with other weights."""


@dataclass(frozen=True)
class PlannedTrial:
    """A trial, the arguments of its network or mapper, and what a worker is asked to do."""

    trial: Trial | MapperTrial
    options: dict[str, Any]
    task: TrialTask


def base_of(config: SweepConfig) -> str:
    """The storage; a local one by its absolute path, so that sources of trained networks hold from anywhere."""
    _, path = storage.filesystem(config.storage)
    return str(Path(path).absolute()) if storage.is_local(config.storage) else config.storage
