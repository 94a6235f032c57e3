"""The command `classwise`: it says which other package stands in the way before it imports its own."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

OWN = ("jobs", "services", "tracking")


def main() -> None:
    """Run the command line, or exit 2 where another package of the same name is found first."""
    if other := in_the_way():
        remedy = "rename that package, take it off PYTHONPATH, or install classwise into an environment of its own"
        sys.stderr.write(f"classwise: expected its own packages {', '.join(OWN)}, found {other}; {remedy}\n")
        raise SystemExit(2)
    from jobs.cli import main as run

    run()


def in_the_way() -> str:
    """Where a package of the same name as one of classwise's lies; "" where none is found before its own."""
    for name in OWN:
        spec = find_spec(name)
        places = list(spec.submodule_search_locations or [spec.origin or ""]) if spec else []
        if not any((Path(place) / _A_PART[name]).exists() for place in places):
            return f"{name} at {places[0]}" if places else f"no package {name}"
    return ""


_A_PART = {"jobs": "cli.py", "services": "records", "tracking": "bundle"}
"""Something that only classwise's own package has."""
