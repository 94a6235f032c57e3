"""The command ``classwise dashboard``."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated

import typer

from jobs.terminal import console
from services.errors import ConfigError, Problem

_STORAGE = "Folder or URL that audits were written to."
_URI = "MLflow store; default: MLFLOW_TRACKING_URI, else the storage's own."
_DB = "Database of schedules; default: CLASSWISE_SCHEDULES, else classwise-runs/schedules.db."


def dashboard(
    storage: Annotated[str, typer.Option(metavar="URL", help=_STORAGE)] = "classwise-runs",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of 127.0.0.1 to listen on; 0 takes any.")] = 8765,
    tracking_uri: Annotated[str | None, typer.Option(help=_URI)] = None,
    schedules: Annotated[str | None, typer.Option(metavar="URI", help=_DB)] = None,
) -> None:
    """Show fleets, audits, models and running jobs in the browser; for this machine only, until Ctrl-C."""
    with console.exits(json=False):
        try:
            from jobs.dashboard.serve import places_of, serve_local

            places = places_of(storage, tracking_uri, schedules)
            with suppress(KeyboardInterrupt):  # how it is ended
                serve_local(places, port, console.say)
        except ImportError as error:
            remedy = "pip install 'classwise[service]'"
            raise ConfigError(Problem("classwise dashboard", "the extra service", str(error), remedy)) from None
