"""What there is little of, in parts: one caller holds at most a share of it, and has it until an answer is sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from weakref import WeakValueDictionary

from anyio import CapacityLimiter, to_thread
from fastapi import Response

from jobs.web.guard import Receive, Scope, Send
from services.errors import Problem, ServiceError

WAITING = 100
"""Requests of one caller that wait for a turn."""


class TooMany(ServiceError):
    """The server has as many audits, streams or requests as its settings allow."""


class Places:
    """Places that are taken or refused; for one loop.

    Args:
        most: there are so many.
        of_one: so many of them are one caller's at most.
    """

    def __init__(self, most: int, of_one: int) -> None:
        self._most, self._of_one = most, of_one
        self._taken: Counter[str] = Counter()

    def take(self, caller: str) -> bool:
        """Whether the caller got a place; then it is theirs until `give_back`."""
        if self._taken.total() >= self._most or self._taken[caller] >= self._of_one:
            return False
        self._taken[caller] += 1
        return True

    def give_back(self, caller: str) -> None:
        self._taken[caller] -= 1
        self._taken += Counter()  # without those that hold none


class Turns:
    """Turns that are waited for, behind requests of the same caller alone; for one loop.

    Args:
        of_one: at the same time, of one caller.
    """

    def __init__(self, of_one: int) -> None:
        self._of_one = of_one
        self._known: WeakValueDictionary[str, CapacityLimiter] = WeakValueDictionary()

    def waiting(self, caller: str) -> int:
        """How many of the caller's requests wait."""
        known = self._known.get(caller)
        return known.statistics().tasks_waiting if known is not None else 0

    async def begin(self, caller: str) -> Callable[[], None]:
        """Wait for a turn; what is returned ends it, from any task.

        Raises:
            TooMany: `WAITING` of the caller's requests wait already.
        """
        if self.waiting(caller) >= WAITING:
            raise TooMany(Problem("requests", f"at most {WAITING} that wait", "more", "read those that were answered"))
        known = self._known.setdefault(caller, CapacityLimiter(self._of_one))
        turn = object()
        await known.acquire_on_behalf_of(turn)
        return lambda: known.release_on_behalf_of(turn)


class Once:
    """What takes long to make and never changes: made once, in a thread, however many ask at the same time.

    Args:
        make: makes it.
    """

    def __init__(self, make: Callable[[], bytes]) -> None:
        self._made, self._own = cache(make), CapacityLimiter(1)

    async def get(self) -> bytes:
        return await to_thread.run_sync(self._made, limiter=self._own)


class UntilSent(Response):
    """An answer, and what is done once it is sent, broken off or never begun.

    Args:
        answer: the answer itself.
        done: called once.
    """

    def __init__(self, answer: Response, done: Callable[[], None]) -> None:
        super().__init__()
        self._answer, self._done = answer, done

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._answer(scope, receive, send)
        finally:
            self._done()
