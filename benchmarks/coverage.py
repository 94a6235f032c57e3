"""How often intervals and tests miss, by simulation: the tests marked slow of `services.numerics`, two minutes.

``python -m benchmarks.coverage``. Over 2,000 data sets or more each, intervals miss at most as often as they say.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    """Run them; 1 when one misses too often."""
    command = [sys.executable, "-m", "pytest", "-v", "-m", "slow", "tests/services/numerics"]
    return int(subprocess.run(command, cwd=ROOT).returncode != 0)


if __name__ == "__main__":
    sys.exit(main())
