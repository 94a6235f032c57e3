"""Answers that are remembered for a moment, so that many callers cost no more than one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from typing import Generic, TypeVar, cast

from services.errors import ClasswiseError

FAULT_SECONDS = 5.0
"""How long at most an error counts as the answer."""

T = TypeVar("T")


class Remembered(Generic[T]):
    """An answer that is computed at most once in so many seconds, however many callers ask for it together.

    An error is an answer, too: while a server is down, callers do not wait for its timeout one after another.
    """

    def __init__(self, make: Callable[[], T], seconds: float) -> None:
        self._make, self._seconds = make, seconds
        self._lock = threading.Lock()
        self._until: float | None = None
        self._value: T | None = None
        self._problem: ClasswiseError | None = None

    def get(self) -> T:
        """The answer, maybe one of a moment ago; raises the ClasswiseError that asking for it raised."""
        with self._lock:
            if self._until is None or monotonic() >= self._until:
                self._refresh()
            if self._problem is not None:
                raise self._problem
            return cast(T, self._value)

    def forget(self) -> None:
        """Ask again the next time."""
        with self._lock:
            self._until = None

    def _refresh(self) -> None:
        self._problem, seconds = None, self._seconds
        try:
            self._value = self._make()
        except ClasswiseError as error:
            self._problem, seconds = error, min(seconds, FAULT_SECONDS)
        self._until = monotonic() + seconds
