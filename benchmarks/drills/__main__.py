"""Run a drill."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import typer

from benchmarks.drills.head import head
from benchmarks.drills.load import load
from benchmarks.drills.night import night
from benchmarks.drills.stackside import stack_in
from services.errors import ClasswiseError


def main() -> int:
    """Parse, run one drill, and return the exit code."""
    parser = argparse.ArgumentParser("benchmarks.drills", description=__doc__)
    parser.add_argument("drill", choices=["load", "head", "night"])
    parser.add_argument("--dir", default="classwise-stack", help="folder of the stack")
    parser.add_argument("--submissions", type=int, default=50, help="audits submitted at the same time")
    parser.add_argument("--schedules", type=int, default=20, help="schedules due at the same time")
    parser.add_argument("--poll", default="", help="address that is asked all along; default: GET /v1/audits")
    parser.add_argument("--page", type=Path, help="keep the dashboard open in Chromium too; its last picture goes here")
    parser.add_argument("--seconds", type=float, default=1800, help="give up after so long")
    options = parser.parse_args()
    try:
        layout = stack_in(Path(options.dir).resolve())
        if options.drill != "load":
            return {"head": head, "night": night}[options.drill](layout)
        return load(
            layout,
            submissions=options.submissions,
            schedules=options.schedules,
            poll=options.poll,
            picture=options.page,
            seconds=options.seconds,
        )
    except ClasswiseError as error:
        typer.echo(f"drill: {error}", err=True)
        return 2


if __name__ == "__main__":
    sys.exit(main())
