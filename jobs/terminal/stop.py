"""A request to stop, by Ctrl-C or SIGTERM, that cannot be lost.

A `KeyboardInterrupt` raised inside a network's forward pass or a library written in C may come out as another error,
and an audit that is told to leave faulty models out would go on with the next one. So the request is also remembered,
and whoever handles an error asks for it.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_asked = threading.Event()


def asked() -> bool:
    """Whether a stop was asked for inside `heeding`."""
    return _asked.is_set()


def check() -> None:
    """Raise the stop that was asked for, if one was.

    Raises:
        KeyboardInterrupt: it was.
    """
    if asked():
        raise KeyboardInterrupt


@contextmanager
def heeding() -> Iterator[None]:
    """SIGINT and SIGTERM, which a scheduler or Ray sends, raise `KeyboardInterrupt` and are remembered."""
    previous: dict[int, Callable[..., Any] | int | None] = {
        number: signal.signal(number, _interrupt) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        _asked.clear()


def _interrupt(signum: int, frame: FrameType | None) -> None:
    _asked.set()
    sys.stderr.flush()
    raise KeyboardInterrupt
