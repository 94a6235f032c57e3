"""A Ray that an audit starts on a laptop has no port that the network can reach."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from tests.listening import others_can_reach

HOLD = """
import sys
from services.running.cluster import RayRunner, WorkerRequest
with RayRunner(WorkerRequest(workers=1, cpus=1.0, factories=("services.training.*",), wait_seconds=120)):
    print("up", flush=True)
    sys.stdin.readline()
"""


def test_an_embedded_ray_listens_on_the_loopback_alone() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == "up\n"
        time.sleep(2.0)  # its agents open their ports a moment later
        assert others_can_reach([process.pid]) == {}
    finally:
        process.communicate("\n", timeout=60)
    assert process.returncode == 0
