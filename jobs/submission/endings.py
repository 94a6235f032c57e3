"""How audits ended, remembered: a list of a thousand asks the storage for those that changed and not for all.

What an attempt said at its end stays, so an ending of the attempt that the job server knows needs no look at all. For
one that it has forgotten the file's stamp is compared.
"""

from __future__ import annotations

import threading

from jobs.submission.submission import Ending, read_ending
from services.errors import StorageError
from services.storage import files

KEPT = 10_000
"""Endings that are remembered; the first to come is the first to go."""

_Stamp = tuple[int, str]


class Endings:
    """Reads endings and keeps those that are final. One for a client; threads may share it."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[_Stamp, Ending]] = {}
        self._lock = threading.Lock()

    def read(self, folder: str, attempt: str) -> Ending | None:
        """How the audit of a folder ended.

        Args:
            attempt: the one that the job server knows, whose ending needs no look; empty to look in any case.
        """
        known = self._kept.get(folder)
        if known is not None and known[1].attempt == attempt:
            return known[1]
        stamp = _stamp(folder)
        if stamp is None:
            return None
        if known is not None and known[0] == stamp:
            return known[1]
        ending = read_ending(folder)
        if ending is not None and ending.state != "running":
            self._keep(folder, stamp, ending)
        return ending

    def _keep(self, folder: str, stamp: _Stamp, ending: Ending) -> None:
        with self._lock:
            self._kept[folder] = (stamp, ending)
            if len(self._kept) > KEPT:
                del self._kept[next(iter(self._kept))]


def _stamp(folder: str) -> _Stamp | None:
    try:
        return files.stamp(files.join(folder, "ending.json"))
    except StorageError:
        return None
