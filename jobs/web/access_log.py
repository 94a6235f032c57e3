"""A log line a request: who called, from where, what came of it. Paths stand in it without their query.

A query may hold what nobody should read: someone who mistakes the header writes ``?token=``.
"""

from __future__ import annotations

import logging

from jobs.web.access import Caller
from jobs.web.guard import App, Scope
from jobs.web.timed import Timed
from services.telemetry import logs

_log = logging.getLogger("classwise.access")


class AccessLog(Timed):
    """ASGI middleware.

    Args:
        app: what is logged, refusals included.
        quiet: paths, asked for every few seconds, that are logged at level debug while they are well.
    """

    def __init__(self, app: App, *, quiet: frozenset[str] = frozenset()) -> None:
        super().__init__(app)
        self._quiet = quiet

    def answered(self, scope: Scope, status: int, seconds: float) -> None:
        """Log it."""
        quiet = scope["path"] in self._quiet and status < 400
        caller = scope.get("state", {}).get("caller")
        logs.event(
            _log,
            logging.DEBUG if quiet else logging.INFO,
            f"{scope['method']} {_printable(scope['path'])} {status}",
            caller=caller.name if isinstance(caller, Caller) else "",
            address=(scope.get("client") or ("",))[0],
            ms=round(1000 * seconds),
        )


def _printable(path: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in path[:500])
