"""Whether the head of a Ray cluster still answers.

A driver whose head is gone is ended by Ray after a minute with exit code 1, which says that a gate failed. So the loop
that waits for workers looks itself, and gives up a little sooner, with a reason.
"""

from __future__ import annotations

import os
import socket
import time

from services.errors import Problem, ResourceError

RECONNECT = "RAY_gcs_rpc_server_reconnect_timeout_s"
"""Ray's own setting: how long it tries, in seconds, before it ends the process."""
PART = 0.7
"""Of that time after which the head is given up; one that is started again sooner is found again."""
EVERY = 1.0


class HeadWatch:
    """Looks at a TCP address, once a second at most.

    Args:
        address: ``host:port`` of the head's cluster store.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self.gone = False
        self._patience = PART * float(os.environ.get(RECONNECT, 60))
        self._looked, self._silent_since = time.monotonic(), 0.0

    def check(self) -> None:
        """Look, when it is time to.

        Raises:
            ResourceError: the head has not answered for longer than one can wait.
        """
        now = time.monotonic()
        if now - self._looked >= EVERY:
            self._looked = now
            self._look()

    def wait(self) -> None:
        """Return once the head answers: before what would ask it, and be ended when it does not.

        Raises:
            ResourceError: as `check`.
        """
        while not self._look():
            time.sleep(EVERY / 5)

    def _look(self) -> bool:
        if self._answers():
            self._silent_since = 0.0
            return True
        self._silent_since = self._silent_since or time.monotonic()
        self.gone = time.monotonic() - self._silent_since > self._patience
        if self.gone:
            remedy = "look why it ended; with a cluster that runs, the same command goes on from the finished shards"
            actual = f"none for {self._patience:g} s"
            raise ResourceError(Problem(f"the head of Ray at {self.address}", "an answer", actual, remedy))
        return False

    def _answers(self) -> bool:
        host, _, port = self.address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=2.0).close()
        except OSError:
            return False
        return True
