"""Where the dashboard reads from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from jobs.schedules.place import schedules_uri
from services.errors import ConfigError, Problem, TrackingError
from services.storage import files

if TYPE_CHECKING:
    from jobs.dashboard.stores import Places


def places_of(base: str, tracking: str | None, schedules: str | None) -> Places:
    """Where the dashboard of this storage reads from: what is asked for, else what the other commands would use.

    Raises:
        ConfigError: there is no such storage.
    """
    from jobs.dashboard.stores import Places

    url = base if "://" in base else str(Path(base).expanduser().absolute())
    if files.is_missing(url):
        remedy = "name the folder that audits were written to, or run classwise demo"
        raise ConfigError(Problem("--storage", "the folder of a storage", url, remedy))
    return Places(url, tracking_of(url, tracking), schedules_uri(schedules))


def tracking_of(base: str, named: str | None) -> str:
    """The MLflow store of a storage, or the one named; "" where there is none."""
    from jobs.fleetfile.mlflow_uri import tracking_uri

    try:
        return tracking_uri(base, named)
    except TrackingError:  # a remote storage, and no server is named
        return ""
