"""The same audits with an MLflow server on PostgreSQL that is killed, stands still, or is cut off."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from .drivers import Bench, Deeds
from .faults import Fault
from .servers import Mlflow, Network, Postgres, postgres_binaries

SECONDS = "3"
"""That a call to MLflow may take here; a user's default is a minute."""


class ServerBench(Bench):
    """Drivers in a network namespace of their own, where there may be one; the servers outside it."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.network = _network(stack)
            self._postgres = Postgres(_binaries(), self.home / "postgres.log")
            stack.callback(self._postgres.close)
            self._postgres.start()
            host = self.network.host if self.network else "127.0.0.1"
            self._mlflow = Mlflow(self._postgres.uri, self.home, host)
            stack.callback(self._mlflow.kill)
            self._mlflow.start()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def tracking(self, name: str) -> dict[str, Any]:
        return {"uri": self._mlflow.uri, "experiment": name}

    def state(self, storage: Path) -> dict[str, Any]:
        from .verdict import state_of

        return state_of(str(storage), self._postgres.uri, storage.name)

    def enter(self) -> None:
        os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] = SECONDS
        if self.network is not None:
            self.network.enter()

    def deeds(self, storage: Path) -> Deeds:
        by_name: Deeds = {
            "mlflow-killed": lambda: self._mlflow.signal(signal.SIGKILL),
            "postgres-killed": self._postgres.kill,
            "frozen": lambda: self._mlflow.signal(signal.SIGSTOP),
        }
        if self.network is not None:
            by_name |= {"cut": self.network.cut, "cut-briefly": self._cut_briefly}
        return by_name

    def repair(self, storage: Path, fault: Fault) -> None:
        if fault.kind == "frozen":
            self._mlflow.signal(signal.SIGCONT)
        if fault.kind == "postgres-killed":
            self._postgres.kill()
            self._postgres.start()
        if fault.kind == "mlflow-killed":
            self._mlflow.kill()
            self._mlflow.start()
        if self.network is not None:
            self.network.repair()

    def _cut_briefly(self) -> None:
        if self.network is not None:
            self.network.cut()
            subprocess.Popen(["sh", "-c", f"sleep 1.5; {self.network.mending}"], start_new_session=True)


def _network(stack: ExitStack) -> Network | None:
    try:
        network = Network()
    except OSError:
        return None
    stack.callback(network.close)
    return network


def _binaries() -> Path:
    result = postgres_binaries()
    if result is None:
        raise SystemExit("PostgreSQL is not installed: no initdb in /usr/lib/postgresql/*/bin or on the PATH")
    return result
