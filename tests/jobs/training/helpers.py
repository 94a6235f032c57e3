"""The small sweep that tests of training change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jobs.training.sweepfile import Sweep, validate_sweep

BUDGET = {"epsilon": 0.1, "step": 0.05, "steps": 2}


def sweep(storage: Path | str, **changes: Any) -> Sweep:
    """Two methods on 300 digits, small enough to train in a second."""
    data = {
        "sweep": "small",
        "methods": ["erm", {"name": "pgd", "budget": BUDGET}],
        "architectures": [{"name": "small_cnn", "width": 4}],
        "datasets": [{"name": "digits", "limit": 300, "holdout": 0.2, "seed": 3}],
        "recipe": {"epochs": 3, "batch": 32, "lr": 0.1, "weight_decay": 0.0, "select": "last"},
        "storage": str(storage),
        "tracking": {"enabled": False},
        "resources": {"runner": "local", "threads": 1},
    }
    return validate_sweep({**data, **changes})
