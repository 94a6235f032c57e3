"""Something that is done again and again while a long call runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context


@contextmanager
def every(seconds: float, act: Callable[[], None]) -> Iterator[None]:
    """Call `act` every so many seconds, in a thread that has the caller's context, until the block ends."""
    ended, failures = threading.Event(), list[Exception]()

    def turns() -> None:
        try:
            while not ended.wait(seconds):
                act()
        except Exception as error:  # as it would be where `act` is called: the caller's
            failures.append(error)

    thread = threading.Thread(target=copy_context().run, args=(turns,), name="ticks", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    if failures:
        raise failures[0]
