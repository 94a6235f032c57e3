"""Servers that tests start, kill and start again: PostgreSQL, MLflow, and a network between them that can be cut."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ports import free_port as free_port

BINARIES = [Path(folder) for folder in sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")), reverse=True)]
CLONE_NEWNET = 0x40000000


def begun(command: list[str], log: Path, **environment: str) -> subprocess.Popen[bytes]:
    """Start a process in a group of its own; its output is added to `log`."""
    with log.open("ab") as output:
        return subprocess.Popen(
            command, stdout=output, stderr=output, env={**os.environ, **environment}, start_new_session=True
        )


def ended(process: subprocess.Popen[bytes], end_with: signal.Signals) -> None:
    """End a process and its group."""
    for number in (end_with, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(15)
            return


def wait_for(ready: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until a server answers.

    Raises:
        AssertionError: it ended, or took two minutes; with the end of its log.
    """
    end = time.monotonic() + 120
    while time.monotonic() < end and process.poll() is None:
        if ready():
            return
        time.sleep(0.2)
    raise AssertionError(f"{process.args!r} did not come up:\n{log.read_text()[-2000:]}")


def as_postgres(command: list[str]) -> list[str]:
    """PostgreSQL refuses to run as root."""
    return ["runuser", "-u", "postgres", "--", *command] if os.geteuid() == 0 else command


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


def accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def postgres_binaries() -> Path | None:
    """The folder of initdb and postgres; None where they are not installed, or could not be run by this user."""
    result = shutil.which("initdb")
    folders = [
        folder for folder in (*BINARIES, *([Path(result).parent] if result else [])) if (folder / "initdb").exists()
    ]
    able = os.geteuid() != 0 or shutil.which("runuser") is not None
    return folders[0] if folders and able else None


class Postgres:
    """A PostgreSQL of its own in a short path below /tmp. `start` after `kill` recovers as after a crash."""

    def __init__(self, binaries: Path, log: Path) -> None:
        self._binaries, self._log = binaries, log
        self.home = Path("/tmp") / f"classwise-pg-{os.getpid()}"
        self.port = free_port()
        self.uri = f"postgresql+psycopg://classwise@127.0.0.1:{self.port}/postgres"
        self._process: subprocess.Popen[bytes] | None = None
        self.home.mkdir(mode=0o777)
        self.home.chmod(0o777)
        make = [str(binaries / "initdb"), "-D", str(self.home / "data"), "-A", "trust", "-U", "classwise", "--no-sync"]
        subprocess.run(as_postgres(make), check=True, capture_output=True, cwd="/")

    def start(self) -> None:
        """Start, and wait until it takes connections."""
        serve = [str(self._binaries / "postgres"), "-D", str(self.home / "data"), "-p", str(self.port)]
        self._process = begun(as_postgres([*serve, "-k", str(self.home)]), self._log)
        wait_for(self._answers, self._process, self._log)

    def _answers(self) -> bool:
        """It listens before it has recovered, and refuses those who come then."""
        import psycopg

        try:
            psycopg.connect(
                f"host=127.0.0.1 port={self.port} user=classwise dbname=postgres", connect_timeout=2
            ).close()
        except psycopg.OperationalError:
            return False
        return True

    def kill(self) -> None:
        """SIGKILL the server and every backend, as a lost machine would."""
        me = (self.home / "data" / "postmaster.pid").read_text().split()[0]
        children = [child.split()[0] for child in _processes() if child.split()[1] == me]
        for pid in (me, *children):
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        if self._process is not None:
            ended(self._process, signal.SIGKILL)

    def close(self) -> None:
        """End it and remove its files."""
        if self._process is not None and self._process.poll() is None:
            ended(self._process, signal.SIGQUIT)
        shutil.rmtree(self.home, ignore_errors=True)


def _processes() -> list[str]:
    """Lines of a process id and its parent's."""
    return subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout.splitlines()


class Mlflow:
    """An MLflow server with one worker."""

    def __init__(self, store: str, folder: Path, host: str = "127.0.0.1") -> None:
        self.port, self._log = free_port(), folder / "mlflow.log"
        self.uri = f"http://{host}:{self.port}"
        self._command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", store, "--workers", "1"]
        self._command += ["--artifacts-destination", str(folder / "artifacts")]
        self._command += ["--host", host, "--port", str(self.port), "--allowed-hosts", "*"]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start, and wait until it answers."""
        self._process = begun(self._command, self._log, MLFLOW_SERVER_ENABLE_JOB_EXECUTION="false")
        wait_for(lambda: answers(f"{self.uri}/health"), self._process, self._log)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to all its processes."""
        if self._process is not None:
            os.killpg(self._process.pid, number)

    def kill(self) -> None:
        """SIGKILL all its processes."""
        if self._process is not None:
            ended(self._process, signal.SIGKILL)


class Network:
    """A network namespace with one way out, to `host`, that can be cut: packets are lost without a word.

    Raises:
        OSError: this process may not make one (it takes CAP_NET_ADMIN).
    """

    host, _inside = "10.231.7.1", "10.231.7.2"

    def __init__(self) -> None:
        self._name = f"cw{os.getpid()}"
        self._outside = f"nsenter --net=/proc/{os.getpid()}/ns/net"
        made = [
            f"netns add {self._name}",
            f"link add {self._name}h type veth peer name {self._name}n netns {self._name}",
            f"addr add {self.host}/30 dev {self._name}h",
            f"link set {self._name}h up",
            f"-n {self._name} addr add {self._inside}/30 dev {self._name}n",
            f"-n {self._name} link set {self._name}n up",
            f"-n {self._name} link set lo up",
        ]
        for command in made:
            _ip(command)

    def enter(self) -> None:
        """Move the calling process into the namespace."""
        with Path(f"/var/run/netns/{self._name}").open() as handle:
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.setns(handle.fileno(), CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")

    def cut(self) -> None:
        """Take the far end of the link down."""
        subprocess.run(f"{self._outside} ip link set {self._name}h down", shell=True, check=True)

    def repair(self) -> None:
        """Bring it up."""
        subprocess.run(self.mending, shell=True, check=True)

    @property
    def mending(self) -> str:
        """The command that brings the link up, for any process."""
        return f"{self._outside} ip link set {self._name}h up"

    def close(self) -> None:
        """Remove it."""
        subprocess.run(["ip", "netns", "del", self._name], check=False, capture_output=True)


def _ip(arguments: str) -> None:
    done = subprocess.run(["ip", *arguments.split()], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"ip {arguments}: {done.stderr.strip()}")
