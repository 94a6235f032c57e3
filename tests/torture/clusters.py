"""A real Ray cluster of a head and a node, with a token, whose processes can be killed one by one."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from .servers import begun, ended, free_port

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "a-token-of-the-tests-and-of-nothing-else"
HASTE = {
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_failure_threshold": "3",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_initial_delay_ms": "0",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "10",
}
"""A dead node is noticed in seconds, and a dead head given up after ten; Ray's defaults are 16 s and a minute."""


def environment() -> dict[str, str]:
    """What drivers and nodes need: this checkout, this interpreter as `python`, and the token."""
    return {
        **HASTE,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}",
        "OMP_NUM_THREADS": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": TOKEN,
    }


class Cluster:
    """A head with one core and a node with one; `start` after `kill_head` is a new cluster at the same address."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self.home = Path("/tmp") / f"cw-t-{os.getpid()}"
        self.address = f"127.0.0.1:{free_port()}"
        self._head: subprocess.Popen[bytes] | None = None
        self._node: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start both, and wait until both are there."""
        port = self.address.rpartition(":")[2]
        self._head = self._start("--head", "--port", port, "--temp-dir", str(self.home), "--include-dashboard", "false")
        _until(lambda: len(self._named("raylet")) == 1, 60, "the head did not come up", self._log)
        self.start_node()

    def start_node(self) -> None:
        """Start the node."""
        before = len(self._named("raylet"))
        self._node = self._start("--address", self.address)
        _until(lambda: len(self._named("raylet")) == before + 1, 60, "the node did not come up", self._log)

    def kill_worker(self) -> None:
        """SIGKILL one of the processes that do shards."""
        workers = self.workers()
        if workers:
            _kill(random.choice(workers))

    def kill_node(self) -> None:
        """SIGKILL the node: its raylet and what stands beside it; its workers end with the raylet."""
        self._kill_group(self._node)

    def kill_head(self) -> None:
        """SIGKILL the head, its store of cluster state included."""
        self._kill_group(self._head)

    def workers(self) -> list[int]:
        """Processes that do shards."""
        return self._named("ray::Worker")

    def close(self) -> None:
        """End every process of the cluster and remove its files."""
        for process in (self._node, self._head):
            if process is not None:
                ended(process, signal.SIGKILL)
        with suppress(AssertionError):
            _until(self._swept, 20, "processes of the cluster stay", self._log)
        shutil.rmtree(self.home, ignore_errors=True)

    def _start(self, *options: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--num-cpus", "1"]
        command += ["--node-ip-address", "127.0.0.1", "--disable-usage-stats", *options]
        return begun(command, self._log, **environment(), CLASSWISE_TORTURE=str(self.home))

    def _kill_group(self, process: subprocess.Popen[bytes] | None) -> None:
        if process is not None:
            for pid in _descendants(process.pid):
                _kill(pid)

    def _swept(self) -> bool:
        mine = self._named("")
        for pid in mine:
            _kill(pid)
        return not mine

    def _named(self, start: str) -> list[int]:
        """Processes of this cluster whose command has that start, or whose program has that name."""
        results = []
        for folder in Path("/proc").iterdir():
            if not folder.name.isdigit() or int(folder.name) == os.getpid():
                continue
            try:
                command = (folder / "cmdline").read_bytes().decode(errors="replace")
                message = command + (folder / "environ").read_bytes().decode(errors="replace")
            except OSError:
                continue
            program = command.partition("\0")[0]
            if str(self.home) in message and (program.startswith(start) or Path(program).name == start):
                results.append(int(folder.name))
        return results


def _descendants(pid: int) -> list[int]:
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout.split()
    pairs = list(zip(map(int, listed[::2]), map(int, listed[1::2]), strict=True))
    results = [pid]
    for known in results:
        results += [child for child, parent in pairs if parent == known]
    return results


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _until(ready: Callable[[], bool], seconds: float, complaint: str, log: Path) -> None:
    end = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < end, f"{complaint}: {log.read_text(errors='replace')[-2000:]}"
        time.sleep(0.2)
