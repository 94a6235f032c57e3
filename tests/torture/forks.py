"""Functions run in forked children of a process that has imported everything and run nothing: fresh drivers, soon."""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Ended:
    """How a child ended.

    Attributes:
        value: what its function returned, None when it did not return.
        signal: the signal that killed it, 0 when none did.
        returned: whether its function returned.
    """

    value: Any
    signal: int
    returned: bool


class Child:
    """A forked child at work; its output goes to a file, or where the parent's goes."""

    def __init__(self, function: Callable[[], Any], output: str = os.devnull) -> None:
        sys.stdout.flush()
        reader, writer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(reader)
            _run(function, writer, output)
        os.close(writer)
        self._reader, self._ended = reader, False

    def wait(self, seconds: float = 120.0) -> Ended:
        """Wait for its end; one that takes longer is killed.

        Raises:
            TimeoutError: it was.
        """
        output, deadline = b"", time.monotonic() + seconds
        try:
            while select.select([self._reader], [], [], max(0.0, deadline - time.monotonic()))[0]:
                part = os.read(self._reader, 65536)
                if not part:
                    _, status = os.waitpid(self.pid, 0)
                    self._ended = True
                    killed = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
                    return Ended(json.loads(output) if status == 0 else None, killed, status == 0)
                output += part
        finally:
            os.close(self._reader)
        self.kill()
        raise TimeoutError(f"a child took more than {seconds:g} s")

    def kill(self) -> None:
        """End it where it is, and all that it forked; nothing happens when it has ended."""
        if not self._ended:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self._ended = True


def in_fork(function: Callable[[], Any], output: str = os.devnull, seconds: float = 120.0) -> Ended:
    """Run `function`, whose value JSON can hold, in a child; see `Child`."""
    return Child(function, output).wait(seconds)


def _run(function: Callable[[], Any], writer: int, output: str) -> None:
    """The child: it leaves by `os._exit`, so that nothing of the parent's is cleaned up twice."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # nothing outlives the suite
    try:
        if output:
            log = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(log, 1)
            os.dup2(log, 2)
        value = function()
        sys.stdout.flush()
        os.write(writer, json.dumps(value).encode())
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(70)
    os._exit(0)
