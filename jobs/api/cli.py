"""The commands ``classwise serve`` and ``classwise dashboard``."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from jobs.terminal import console, log_setting
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
    """Show all of it in the browser. Fleets, audits, models, running jobs; for this machine only, until Ctrl-C."""
    with console.exits(json=False):
        try:
            from jobs.api.local_dashboard import serve_local
            from jobs.dashboard.places import places_of

            places = places_of(storage, tracking_uri, schedules)
            with suppress(KeyboardInterrupt):  # how it is ended
                serve_local(places, port, console.say)
        except ImportError as error:
            remedy = "pip install 'classwise[service]'"
            raise ConfigError(Problem("classwise dashboard", "the extra service", str(error), remedy)) from None


def serve(
    settings: Annotated[
        Path, typer.Argument(metavar="SETTINGS", help="Settings file (YAML), such as deploy/compose/settings.yaml.")
    ],
    here: Annotated[bool, typer.Option("--here", help="Serve from this process, without Ray Serve.")] = False,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 8080,
    replicas: Annotated[int, typer.Option(min=1, max=64, help="Copies of the API on Ray Serve.")] = 1,
) -> None:
    """Serve the REST API. On the Ray cluster of RAY_ADDRESS through Ray Serve, or from this process."""
    with console.exits(json=False):
        from jobs.api.serve import serve_here, serve_on_ray
        from jobs.api.settings import load_settings

        loaded = load_settings(settings)
        if here:
            log_setting.start_server_logging()
            with suppress(KeyboardInterrupt):  # how a server is stopped
                serve_here(loaded, host, port)
            return
        serve_on_ray(loaded, host, port, replicas)
        console.say(f"deployed at http://{host}:{port}; end it with: serve shutdown -y")
