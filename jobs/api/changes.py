"""The audit log: who changed what, one JSON object a line, apart from other logs.

Lines are appended to a file of their own that nobody but the server's user may read, or go to the logger
`classwise.changes` when no file is named. A server whose audit log cannot be written does not start.
"""

from __future__ import annotations

import json
import logging
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from services.errors import ConfigError, Problem
from services.telemetry.redaction import redacted_tree

_log = logging.getLogger("classwise.changes")


class ChangeLog:
    """Appends changes.

    Args:
        path: the file; "" for the logger.

    Raises:
        ConfigError: the file cannot be written.
    """

    def __init__(self, path: str = "") -> None:
        self._path = path
        if path:
            try:
                Path(path).parent.mkdir(parents=True, exist_ok=True)
                os.close(self._opened())
            except OSError as error:
                raise ConfigError(Problem("audit_log", "a file that can be appended to", f"{path}: {error}")) from None

    def record(self, action: str, caller: str, **fields: Any) -> None:
        """Append one change: `submit`, `cancel`, `hook`, or one of these that was refused."""
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps(redacted_tree({"time": at, "action": action, "caller": caller, **fields}))
        if not self._path:
            _log.info("%s", line)
            return
        try:
            file = self._opened()
            try:
                os.write(file, f"{line}\n".encode())  # one write: lines of two processes do not mix
            finally:
                os.close(file)
        except OSError as error:
            _log.error("the audit log cannot be written (%s): %s", error, line)

    def _opened(self) -> int:
        """Opened anew each time, so that a log may be rotated by moving it."""
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
