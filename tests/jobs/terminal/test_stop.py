"""A stop arrives whatever the process inherited: Ray starts its jobs with Ctrl-C's signal blocked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

WAITS = """
import signal, time
from jobs.terminal import stop
from services.errors import DeadlinePassed
print(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []), flush=True)
try:
    with stop.catching_stops():
        try:
            with stop.within({deadline}):
                print("waits", flush=True)
                time.sleep(60)
        except (DeadlinePassed, KeyboardInterrupt) as error:
            print(type(error).__name__, stop.requested(), flush=True)
finally:
    print(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []), flush=True)
"""


def blocked() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGTERM])


@pytest.mark.skipif(os.name != "posix", reason="signals are blocked by a mask of POSIX")
@pytest.mark.parametrize(("deadline", "sent"), [("0.3", None), ("60", signal.SIGINT), ("60", signal.SIGTERM)])
def test_a_stop_arrives_where_its_signal_was_blocked_by_who_started_the_process(
    deadline: str, sent: signal.Signals | None
) -> None:
    words, began = [sys.executable, "-c", WAITS.format(deadline=deadline)], time.monotonic()
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, preexec_fn=blocked) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline().strip() for _ in range(2)]
        if sent is not None:
            process.send_signal(sent)
        try:
            rest = process.communicate(timeout=30)[0].split("\n")
        except subprocess.TimeoutExpired:
            process.kill()
            pytest.fail("it never heard of it")
    ended = "DeadlinePassed False" if sent is None else "KeyboardInterrupt True"
    assert lines == ["True", "waits"] and rest[:2] == [ended, "True"]
    assert time.monotonic() - began < 30
