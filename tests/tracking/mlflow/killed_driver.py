"""A driver that logs an audit and stands still in the middle of it, for test_mlflow_kill."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path
from types import FrameType

from services.errors import Interrupted, Problem
from tracking.bundle import bundle
from tracking.mlflow import artifacts
from tracking.mlflow.audits import log_audit


def stop(number: int, frame: FrameType | None) -> None:
    raise Interrupted(Problem("audit", "to finish", f"signal {number}"))


def stand_still(*arguments: object) -> None:
    Path(sys.argv[3]).write_text("in the middle")
    time.sleep(120)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, stop)
    artifacts.child_files = stand_still  # type: ignore[assignment]
    result = bundle.read_bundle(sys.argv[1])
    log_audit(result, sys.argv[1], tracking_uri=sys.argv[2], experiment=sys.argv[4], registry_models=False)
