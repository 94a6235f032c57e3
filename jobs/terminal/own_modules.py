"""Modules of the user's beside the fleet file: found where the command runs, as `python -m`, uvicorn and pytest do."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def find_here() -> None:
    """Look for modules in the working folder too, after everything installed; so do the processes that are started.

    At the end of the path: a file of the user's called as an installed package does not stand in its place.
    """
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    known = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    if here not in known:
        os.environ["PYTHONPATH"] = os.pathsep.join([*known, here])
