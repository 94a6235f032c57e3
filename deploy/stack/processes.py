"""Starts processes that outlive the command, and ends those that it started: no others, whatever their ids became.

A record names the process by id, start time and boot, so an id that the system gave to somebody else is not taken for
ours. What a process starts in turn is known by the mark in its environment.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from deploy.stack.layout import Layout, write_private
from services.errors import Problem, ServiceError

MARK = "CLASSWISE_STACK"
PART = "CLASSWISE_STACK_PART"
KILL_SECONDS = 10.0


@dataclass(frozen=True)
class Part:
    """One process of the stack.

    Attributes:
        ready: whether it serves; raises nothing.
        prepare: what is done each time before it starts.
        finish: what is done once it serves.
        user: who runs it, when it is not whoever runs the command.
        stop: the signal that ends it in order.
        patience: seconds until it is ended by force.
        needs: parts without which it cannot go on: when one of them starts anew, so does this.
    """

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    ready: Callable[[], bool]
    prepare: Callable[[], None] = lambda: None
    finish: Callable[[], None] = lambda: None
    user: str | None = None
    stop: signal.Signals = signal.SIGTERM
    patience: float = 20.0
    needs: tuple[str, ...] = field(default=())


def start(layout: Layout, part: Part) -> subprocess.Popen[bytes]:
    """Start a part in a session of its own, and record it."""
    part.prepare()
    environment = {**part.environment, MARK: layout.mark, PART: part.name}
    with log_of(layout, part.name).open("ab") as log:
        process = subprocess.Popen(
            list(part.command),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            cwd=layout.folder,
            start_new_session=True,
            user=part.user,
            group=part.user,
            extra_groups=None if part.user is None else [],
        )
    record = {"pid": process.pid, "started": _started(process.pid), "boot": boot_id()}
    write_private(layout["run"] / f"{part.name}.json", json.dumps(record))
    return process


def wait_ready(layout: Layout, part: Part, process: subprocess.Popen[bytes], seconds: float = 180.0) -> None:
    """Wait until a started part serves.

    Raises:
        ServiceError: it ended, or took too long; with the end of its log.
    """
    end = time.monotonic() + seconds
    while not part.ready():
        if process.poll() is not None or time.monotonic() > end:
            actual = f"it ended with {process.returncode}" if process.returncode is not None else "no answer"
            tail = log_of(layout, part.name).read_text(errors="replace").strip()[-1500:]
            remedy = f"its log, {log_of(layout, part.name)}, ends with:\n{tail}"
            raise ServiceError(Problem(part.name, f"to serve within {seconds:g} s", actual, remedy))
        time.sleep(0.2)
    part.finish()


def stop(layout: Layout, part: Part) -> bool:
    """End a part and all that it started: in order, else by force. False when nothing of it ran."""
    leader = running(layout, part.name)
    if leader is not None:
        _send(os.killpg, leader, part.stop)
        _wait(lambda: running(layout, part.name) is None, part.patience)
    return kill(layout, part.name) or leader is not None


def kill(layout: Layout, name: str) -> bool:
    """End a part at once and without warning, as a power cut does. False when nothing of it ran.

    Raises:
        ServiceError: something of it does not end.
    """
    any_alive, end = False, time.monotonic() + KILL_SECONDS
    while True:  # what is ended last may have started something meanwhile
        leader, others = running(layout, name), marked(layout.mark, name)
        if leader is None and not others:
            (layout["run"] / f"{name}.json").unlink(missing_ok=True)
            return any_alive
        if time.monotonic() > end:
            raise ServiceError(Problem(name, "to end when it is killed", f"processes {leader}, {others}"))
        any_alive = True
        if leader is not None:
            _send(os.killpg, leader, signal.SIGKILL)
        for pid in others:
            _send(os.kill, pid, signal.SIGKILL)
        time.sleep(0.1)


def running(layout: Layout, name: str) -> int | None:
    """The id of a part's process, while it is the one that was started."""
    try:
        record = json.loads((layout["run"] / f"{name}.json").read_text())
        pid, same = int(record["pid"]), record["boot"] == boot_id()
        return pid if same and record["started"] == _started(pid) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def marked(mark: str, name: str | None = None) -> list[int]:
    """Processes with the mark of a stack in their environment, of one part or of all."""
    wanted = [f"{MARK}={mark}".encode()] + ([f"{PART}={name}".encode()] if name else [])
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError):  # it ended, or is somebody else's
                environment = (entry / "environ").read_bytes().split(b"\0")
                if all(word in environment for word in wanted) and _started(int(entry.name)) is not None:
                    pids.append(int(entry.name))
    return pids


def log_of(layout: Layout, name: str) -> Path:
    """Where a part's output goes."""
    return layout["logs"] / f"{name}.log"


def _started(pid: int) -> str | None:
    """When a process started, in ticks since the boot; None when it is gone or a zombie."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if words[0] in "ZX" else words[19]


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _send(how: Callable[[int, int], None], pid: int, sign: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        how(pid, sign)


def _wait(ready: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not ready() and time.monotonic() < end:
        time.sleep(0.1)
