"""A request to stop, by Ctrl-C or SIGTERM, that cannot be lost.

A deadline that passes asks in the same way, and ends in an error of its own.

A `KeyboardInterrupt` raised inside a network's forward pass or a library written in C may come out as another error,
and an audit that leaves faulty models out would go on with the next one. So the request is also remembered,
and code that handles an error checks it.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from services.errors import DeadlinePassed, Problem

_requested = threading.Event()
_late = threading.Event()
_handled = threading.Event()
_lock = threading.Lock()


def requested() -> bool:
    """Whether a stop was asked for inside `catching_stops`."""
    return _requested.is_set()


def check() -> None:
    """Raise the stop that was asked for, if one was.

    Raises:
        KeyboardInterrupt: it was.
    """
    if requested():
        raise KeyboardInterrupt


@contextmanager
def catching_stops() -> Iterator[None]:
    """SIGINT and SIGTERM, which a scheduler or Ray sends, raise `KeyboardInterrupt` and are remembered.

    Ray starts jobs with SIGINT blocked, so that a deadline would never arrive: both are unblocked for the block.
    """
    previous: dict[int, Callable[..., Any] | int | None] = {
        number: signal.signal(number, _interrupt) for number in (signal.SIGINT, signal.SIGTERM)
    }
    _handled.set()
    try:
        with _unblocked(previous):
            yield
    finally:
        _handled.clear()
        for number, handler in previous.items():
            signal.signal(number, handler)
        _requested.clear()


@contextmanager
def _unblocked(signals: Iterable[int]) -> Iterator[None]:
    if not hasattr(signal, "pthread_sigmask"):  # no POSIX
        yield
        return
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@contextmanager
def within(seconds: float | None) -> Iterator[None]:
    """Ask for a stop after so many seconds of wall-clock time; None: never.

    Inside `catching_stops` the main thread is interrupted; elsewhere `check` raises it.

    Raises:
        DeadlinePassed: in place of the interrupt, and of whatever error a library makes of it.
    """
    if seconds is None:
        yield
        return
    ended = threading.Event()
    timer = threading.Timer(seconds, _expire, (ended,))
    timer.daemon = True
    timer.start()
    try:
        yield
    except BaseException as error:
        if _late.is_set():
            raise _passed(seconds) from error
        raise
    finally:
        timer.cancel()
        with _lock:
            ended.set()
            if _late.is_set():
                _late.clear()
                _requested.clear()


def _expire(ended: threading.Event) -> None:
    with _lock:
        if ended.is_set() or _requested.is_set():
            return
        _late.set()
        _requested.set()
        ident = threading.main_thread().ident
        if _handled.is_set() and ident is not None:
            signal.pthread_kill(ident, signal.SIGINT)


def _passed(seconds: float) -> DeadlinePassed:
    remedy = "raise it and run the same command again; it goes on from the finished shards"
    return DeadlinePassed(Problem("resources.deadline", f"the end within {seconds:g} s", "more time needed", remedy))


def _interrupt(signum: int, frame: FrameType | None) -> None:
    _requested.set()
    sys.stderr.flush()
    raise KeyboardInterrupt
