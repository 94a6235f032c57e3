"""A log line a request: who called, from where, what came of it. Paths stand in it without their query.

A query may hold what nobody should read: someone who mistakes the header writes ``?token=``.
"""

from __future__ import annotations

import logging
import time

from jobs.web.access import Caller
from jobs.web.guard import App, Message, Receive, Scope, Send
from services.telemetry import logs

_log = logging.getLogger("classwise.access")


class AccessLog:
    """ASGI middleware.

    Args:
        app: what is logged, refusals included.
        quiet: paths, asked for every few seconds, that are logged at level debug while they are well.
    """

    def __init__(self, app: App, *, quiet: frozenset[str] = frozenset()) -> None:
        self._app, self._quiet = app, quiet

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
            quiet = scope["path"] in self._quiet and status < 400
            caller = scope.get("state", {}).get("caller")
            logs.event(
                _log,
                logging.DEBUG if quiet else logging.INFO,
                f"{scope['method']} {_printable(scope['path'])} {status}",
                caller=caller.name if isinstance(caller, Caller) else "",
                address=(scope.get("client") or ("",))[0],
                ms=round(1000 * (time.perf_counter() - began)),
            )


def _printable(path: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in path[:500])
