"""Faults, drawn from a seed and put into a driver at one point of its way; the product has no hooks for them.

A driver passes points: writes and reads of storage, passes through a network, calls to MLflow, stages. `Injector`
counts them, and does what its fault says at the n-th.
"""

from __future__ import annotations

import errno
import io
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any

KINDS = {
    "write": (
        "kill-before", "kill-middle", "kill-after", "torn", "full", "full-once", "read-only", "eio", "slow", "sigterm",
        "sigint",
    ),
    "read": ("kill-before", "eio", "slow", "sigterm"),
    "network": ("kill-before", "raise", "out-of-memory", "exit", "sigterm", "sigint"),
    "mlflow": ("kill-before", "kill-after", "refused", "slow", "sigterm"),
    "stage": ("kill-before", "sigterm"),
    "disk": ("full", "read-only"),
    "shard": ("worker-killed", "node-killed", "head-killed", "kill-before", "sigterm"),
    "server": ("mlflow-killed", "postgres-killed", "frozen", "cut", "cut-briefly", "kill-before", "kill-after"),
}  # fmt: skip
"""What may happen, by the point where it does. `disk` is a real tmpfs: too small, or remounted read-only. `shard` is a
receipt that comes back from Ray; `server` a call to an MLflow server on PostgreSQL."""
LASTING = ("full", "read-only", "slow", "refused")
"""Kinds that stay for the rest of the process."""
WEIGHTS = {"write": 4, "mlflow": 3, "network": 2, "read": 1, "stage": 1, "disk": 1}

MLFLOW_CALLS = (
    "create_experiment", "create_run", "log_artifacts", "log_batch", "log_dict", "log_inputs", "search_runs", "set_tag",
    "set_terminated", "update_run",
)  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """What happens where: at the `at`-th passage (from 1) of a point; of a full disk, `at` is its size in KiB."""

    point: str
    kind: str
    at: int

    def __str__(self) -> str:
        return f"{self.point} {self.kind} @{self.at}"


def draw(seed: int, index: int, counts: dict[str, int]) -> Fault:
    """The fault of schedule `index`: points in turn by their weights, the kind and the passage by chance.

    Args:
        counts: how often an undisturbed audit passes each point; of a disk, how many KiB it needs. Those it does not
            pass are left out.
    """
    chance = random.Random(f"{seed}/{index}")
    points = [point for point, weight in WEIGHTS.items() for _ in range(weight if counts.get(point) else 0)]
    point = points[index % len(points)]
    kind = chance.choice(KINDS[point])
    passages = counts["write"] if (point, kind) == ("disk", "read-only") else counts[point]
    return Fault(point, kind, chance.randint(1, passages))


def draw_at(point: str, seed: int, index: int, passages: int) -> Fault:
    """The fault of schedule `index` at one point: the kinds in turn, the passage by chance."""
    kinds = KINDS[point]
    return Fault(point, kinds[index % len(kinds)], random.Random(f"{seed}/{index}").randint(1, passages))


class Injector:
    """Counts the points a driver passes, and does the fault. For a forked child: nothing is put back.

    Args:
        deeds: what is done to the world outside the driver, by the fault's kind.
    """

    def __init__(self, fault: Fault | None = None, deeds: dict[str, Callable[[], object]] | None = None) -> None:
        self.counts = dict.fromkeys(KINDS, 0)
        self._fault, self._deeds = fault, deeds or {}

    def install(self) -> None:
        """Wrap what the driver calls."""
        from mlflow import MlflowClient

        from jobs.audit.session import Session
        from services.running.workers import Worker
        from services.storage import files

        write, counted = files.write, Worker._counted

        def faulty_write(url: str, fill: Callable[[IO[bytes]], object]) -> None:
            kind = self._passes("write")
            write(url, _faulty_fill(kind, fill) if kind else fill)
            if kind in ("torn", "kill-after"):
                _kill()

        def faulty_network(worker: Worker, loaded: Any) -> Callable[[Any], Any]:
            return self._wrapped("network", counted(worker, loaded))

        files.write = faulty_write
        files.read_bytes = self._wrapped("read", files.read_bytes)
        if self._fault is None or self._fault.point != "shard":  # Ray would send the wrapped class to its workers
            Worker._counted = faulty_network  # type: ignore[method-assign]
        Session._count = self._wrapped("shard", Session._count)  # type: ignore[method-assign]
        Session.run = self._wrapped("stage", Session.run)  # type: ignore[method-assign]
        for name in MLFLOW_CALLS:
            setattr(MlflowClient, name, self._wrapped("mlflow", getattr(MlflowClient, name)))

    def _wrapped(self, point: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def faulty(*arguments: Any, **named: Any) -> Any:
            kind = self._passes(point)
            if kind and kind != "kill-after":
                _happen(kind)
            value = function(*arguments, **named)
            if kind == "kill-after":
                _kill()
            return value

        return faulty

    def _passes(self, point: str) -> str:
        """Count a passage; the kind of fault that happens to the driver at it, "" when none does."""
        self.counts[point] += 1
        fault = self._fault
        where = {"disk": "write", "server": "mlflow"}.get(fault.point, fault.point) if fault else ""
        if fault is None or where != point or self.counts[point] < fault.at:
            return ""
        now = self.counts[point] == fault.at
        if fault.kind in self._deeds:
            if now:
                self._deeds[fault.kind]()
            return ""
        return fault.kind if fault.point != "disk" and (now or fault.kind in LASTING) else ""


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _happen(kind: str) -> None:
    """Do what happens at a point, before what would have been done there."""
    raised: dict[str, BaseException] = {
        "eio": OSError(errno.EIO, os.strerror(errno.EIO)),
        "read-only": OSError(errno.EROFS, os.strerror(errno.EROFS)),
        "raise": ValueError("a network that raises"),
        "out-of-memory": RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 byte"),
        "exit": SystemExit(0),
        "refused": ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED)),
    }
    if kind in raised:
        raise raised[kind]
    if kind == "slow":
        time.sleep(0.02)
    else:
        named = {"kill-before": signal.SIGKILL, "sigterm": signal.SIGTERM, "sigint": signal.SIGINT}
        os.kill(os.getpid(), named[kind])


def _faulty_fill(kind: str, fill: Callable[[IO[bytes]], object]) -> Callable[[IO[bytes]], object]:
    """A `fill` that does its part of a fault: half of the bytes, then the end, or an error."""

    def half(file: IO[bytes]) -> None:
        whole = io.BytesIO()
        fill(whole)
        file.write(whole.getvalue()[: len(whole.getvalue()) // 2])
        file.flush()
        if kind == "kill-middle":
            _kill()
        if kind.startswith("full"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def after(file: IO[bytes]) -> None:
        _happen(kind)
        fill(file)

    if kind in ("kill-middle", "torn", "full", "full-once"):
        return half
    return fill if kind == "kill-after" else after
