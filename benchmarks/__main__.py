"""All benchmarks, one after the other: ``python -m benchmarks [NAME ...]``. Each prints ratios against its peer."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

DATA = Path(os.environ.get("CLASSWISE_SHARED_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
NEEDS_DATA = {name: ["--data", str(DATA)] for name in ("attacks", "adequacy", "probabilistic", "rounds", "why")}
ALL = (
    "numerics",
    "coverage",
    "orders",
    "extraction",
    "driver",
    "training",
    "training_job",
    "attacks",
    "adequacy",
    "probabilistic",
    "projection",
    "rounds",
    "why",
)


def main() -> int:
    """Run the named ones, or all; 1 when one missed a limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*ALL, []], help="which; all when left out")
    failed = []
    for name in parser.parse_args().names or ALL:
        print(f"\n== {name}", flush=True)
        if name in NEEDS_DATA and not DATA.is_dir():
            print(f"left out: no real data at {DATA}; set CLASSWISE_SHARED_DATA")
            continue
        command = [sys.executable, "-m", f"benchmarks.{name}", *NEEDS_DATA.get(name, [])]
        if subprocess.run(command).returncode:
            failed.append(name)
    print(f"\nmissed: {', '.join(failed)}" if failed else "\nall limits kept")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
