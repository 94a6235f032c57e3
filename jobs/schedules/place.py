"""Where schedules are kept."""

from __future__ import annotations

import os

DEFAULT = "sqlite:///classwise-runs/schedules.db"
"""Below the folder where a command runs, whatever storages its fleets have: one scheduler serves them all."""


def schedules_uri(named: str | None = None) -> str:
    """The database of schedules: the one that is named, else CLASSWISE_SCHEDULES, else the default."""
    return named or os.environ.get("CLASSWISE_SCHEDULES") or DEFAULT
