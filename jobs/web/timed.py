"""What middleware that looks at answers has in common: when a request began, and with which status it ended."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod

from jobs.web.guard import App, Message, Receive, Scope, Send


class Timed(ABC):
    """ASGI middleware that hears of every HTTP request once it is answered; 500 where it raised before an answer.

    Args:
        app: what is looked at, refusals included.
    """

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = int(message["status"])
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            self.answered(scope, status, time.perf_counter() - began)

    @abstractmethod
    def answered(self, scope: Scope, status: int, seconds: float) -> None:
        """A request ended."""
