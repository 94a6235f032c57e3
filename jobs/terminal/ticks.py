"""Something that is done again and again while a long call runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context


@contextmanager
def every(seconds: float, act: Callable[[], None]) -> Iterator[None]:
    """Call `act` every so many seconds, in a thread that has the caller's context, until the block ends."""
    ended = threading.Event()

    def turns() -> None:
        while not ended.wait(seconds):
            act()

    thread = threading.Thread(target=copy_context().run, args=(turns,), name="ticks", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
