"""A trial that is planned, whatever it trains."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.training.sweep_tree import SweepConfig
from jobs.training.sweepfile import MapperTrial, Trial, label_of
from services.records.trials import Kind, TrialTask
from services.storage import files
from tracking.bundle.training_bundle import trial_folder

KEY_VERSION = 1
"""Raised when the same trial would come out with other weights."""


@dataclass(frozen=True)
class PlannedTrial:
    """A trial, the arguments of its network or mapper, and what a worker is asked to do."""

    trial: Trial | MapperTrial
    options: dict[str, Any]
    task: TrialTask


def planned(
    trial: Trial | MapperTrial,
    options: dict[str, Any],
    config: SweepConfig,
    *,
    key: str,
    method: str,
    architecture: str,
    workers: int = 1,
    kind: Kind = "network",
) -> PlannedTrial:
    """The trial with its task; `key` is of everything that its weights depend on."""
    task = TrialTask(
        name=trial.name,
        key=key,
        folder=trial_folder(base_of(config), config.sweep, trial.name, key),
        method=method,
        recipe=json.dumps(trial.recipe.model_dump(mode="json"), sort_keys=True),
        architecture=architecture,
        options=tuple(sorted(options.items())),
        data=label_of(trial.dataset),
        workers=workers,
        kind=kind,
    )
    return PlannedTrial(trial, options, task)


def base_of(config: SweepConfig) -> str:
    """The storage; a local one by its absolute path, so that sources of trained networks hold from anywhere."""
    _, path = files.filesystem(config.storage)
    return str(Path(path).absolute()) if files.is_local(config.storage) else config.storage
