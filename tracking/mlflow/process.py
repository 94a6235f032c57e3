"""Who writes a run, so that a later process can tell whether the writer still lives."""

from __future__ import annotations

import os
import socket
from dataclasses import asdict, dataclass
from json import dumps, loads
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Driver:
    """One process on one boot of one host.

    Attributes:
        host: the host's name; a container has its own.
        boot: id of the kernel's boot, "" where the system has none.
        pid: process id.
        born: start of the process in kernel ticks, which distinguishes a reused pid; "" where unknown.
    """

    host: str
    boot: str
    pid: int
    born: str

    def to_tag(self) -> str:
        return dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_tag(cls, text: str) -> Driver | None:
        """None when the text is no driver's tag."""
        try:
            return cls(**loads(text))
        except (ValueError, TypeError):
            return None

    def is_gone(self) -> bool | None:
        """True when it certainly ended, False when it lives, None when it ran where this process cannot look."""
        if self.host != socket.gethostname():
            return None
        if self.boot != _boot():
            return True
        if not _alive(self.pid):
            return True
        return bool(self.born) and self.born != _born(self.pid)


def this_driver() -> Driver:
    """The calling process."""
    return driver_of(os.getpid())


def driver_of(pid: int) -> Driver:
    """A living process of this machine."""
    return Driver(socket.gethostname(), _boot(), pid, _born(pid))


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _born(pid: int) -> str:
    """Field 22 of ``/proc/PID/stat``; the command before it may hold spaces, so count from its closing bracket."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
