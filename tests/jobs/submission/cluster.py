"""A real Ray cluster of one node with its dashboard and a token, in a process group of its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from jobs.submission.ray_jobs import RayJobs
from services.errors import ServiceError
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[3]
TOKEN = "a-token-of-the-tests-and-of-nothing-else"


@dataclass(frozen=True)
class Cluster:
    """Its dashboard, where drivers join it, and the process of its head."""

    address: str
    gcs: str
    token: str
    pid: int
    home: Path


def environment() -> dict[str, str]:
    """What a node's processes need: this checkout, this interpreter as `python`, and the token."""
    binaries = str(Path(sys.executable).parent)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return {
        **kept,
        "PATH": f"{binaries}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": TOKEN,
    }


@contextmanager
def cluster(log: Path) -> Iterator[Cluster]:
    """Start one and end it with the block. A socket's path is short, so its files are not below pytest's folder."""
    home = Path("/tmp") / f"cw-ray-{os.getpid()}"
    port, gcs = free_port(), free_port()
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--num-cpus", "2"]
    command += [
        "--port",
        str(gcs),
        "--node-ip-address",
        "127.0.0.1",
        "--dashboard-port",
        str(port),
        "--dashboard-host",
        "127.0.0.1",
    ]
    command += ["--temp-dir", str(home), "--ray-client-server-port", str(free_port()), "--disable-usage-stats"]
    command += ["--dashboard-agent-listen-port", str(free_port())]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment(), start_new_session=True)
        try:
            address = f"http://127.0.0.1:{port}"
            _wait_for(address, process, log)
            yield Cluster(address, f"127.0.0.1:{gcs}", TOKEN, process.pid, home)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(20)
            _end(home)


def _end(home: Path) -> None:
    """End what outlives the group of the head: workers are in sessions of their own."""
    end = time.monotonic() + 20
    while (pids := leftovers(home)) and time.monotonic() < end:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.2)
    shutil.rmtree(home, ignore_errors=True)


def leftovers(home: Path) -> list[int]:
    """Processes that have this cluster's folder in their command or their environment."""
    results = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                message = (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
            except OSError:
                continue
            if str(home).encode() in message:
                results.append(int(folder.name))
    return results


def _wait_for(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + 90
    while time.monotonic() < end and process.poll() is None:
        try:
            RayJobs(address, token=TOKEN).check()
        except ServiceError:
            time.sleep(0.3)
        else:
            return
    raise AssertionError(f"Ray did not come up:\n{log.read_text()[-3000:]}")
