"""A request to stop within an epoch, SIGTERM of a node that goes or Ctrl-C: what is done is kept first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

from services.errors import Interrupted, Problem

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class AtOnce(BaseException):
    """A signal came where nothing is lost."""


class Stopping:
    """Holds SIGTERM and SIGINT back until the step under way is kept; a second signal is not held back.

    Only in the main thread, which alone gets signals; one that is ignored stays ignored.

    Args:
        also: another request, asked after each step.
    """

    def __init__(self, also: Callable[[], bool]) -> None:
        self._also = also
        self._before: dict[int, Any] = {}
        self._heard: int | None = None
        self._at_once = False

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            handlers = {number: signal.getsignal(number) for number in SIGNALS}
            self._before = {number: each for number, each in handlers.items() if each not in (signal.SIG_IGN, None)}
            for number in self._before:
                signal.signal(number, self._hear)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._at_once = False
        self._deliver()

    @property
    def heard(self) -> bool:
        """Whether a signal came."""
        return self._heard is not None

    @property
    def asked(self) -> bool:
        """Whether to stop."""
        return self.heard or self._also()

    def at_once(self, now: bool) -> None:
        """From here on a signal, or one that came before, interrupts by `AtOnce`; or is held back again."""
        self._at_once = now
        if now and self.heard:
            raise AtOnce

    def stop(self) -> None:
        """Hand the signal to what handled it before, which may go on.

        Raises:
            Interrupted: there was none, but the other request.
        """
        if not self.heard:
            remedy = "run it again; it goes on from the last step"
            raise Interrupted(Problem("training", "to finish", "a request to stop", remedy))
        self._deliver()

    def _deliver(self) -> None:
        self._restore()
        number, self._heard = self._heard, None
        if number is not None:
            signal.raise_signal(number)

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self.heard:
            self._deliver()
            return
        self._heard = number
        if self._at_once:
            raise AtOnce


def never() -> bool:
    """No other request."""
    return False
