"""The command line in this process, and the fleet file that it is given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from typer.testing import CliRunner, Result

from jobs.cli import app


def write(path: Path, **changes: Any) -> Path:
    """Change fields of the fleet file at `path`."""
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **changes}))
    return path


def run(*words: str) -> Result:
    """Run `classwise` with `words`."""
    return CliRunner().invoke(app, list(words))
