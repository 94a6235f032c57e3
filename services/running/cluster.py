"""Ray: actors, placement, death and replacement. Beside `services.running.sweeps` nothing else knows it.

A `Pool` holds workers, each a plain class as an actor that holds so many cores or so much of a GPU. Workers pull tasks,
a few at a time, so that the next one is there when one ends. An actor that dies, with its process or its node, is
replaced and its tasks are done again by any free worker; an actor that cannot be placed is waited for only so long, and
the message says what was asked for and what is there. `RayRunner` is the pool that audits.
"""

from __future__ import annotations

import atexit
import logging
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar

import ray
from ray.exceptions import RayError, RayTaskError

from services.errors import ClasswiseError, Problem, ResourceError, WorkerError, one_line
from services.records import Receipt, ShardTask, TaskFailure
from services.running.dispatch import REMEDY, Dispatcher, T
from services.running.headwatch import HeadWatch
from services.running.loopback import without_other_nodes
from services.running.ray_metrics import RayMirror
from services.running.runners import failure
from services.running.workers import Worker
from services.telemetry import counters, logs
from services.telemetry.logs import LogSetting

R = TypeVar("R")
START_ATTEMPTS = 3
"""Workers that may die in a row in one place before they are ready."""
TICK_SECONDS = 0.5

_log = logging.getLogger("classwise.cluster")


@dataclass(frozen=True)
class WorkerRequest:
    """What is asked of Ray.

    Attributes:
        address: of a cluster; None starts one in this process tree and ends it afterwards.
        workers: number of actors, or None for one a GPU (when `gpus`) or one a core.
        most: the largest number of actors there is work for.
        cpus, gpus: of each actor. A GPU actor holds no core, else it would starve everything else.
        threads: of torch in each; 0 means one a core held.
        gang: workers that each actor starts and waits for; above 1 the actor itself holds nothing.
        wait_seconds: how long to be without any placed worker.
        factories: modules that `factory:` and `generator:` may import on the workers.
        confine: folders outside of which workers open nothing that a fleet names; None: anywhere.
        environment: variables that the workers need (where the model registry is).
        log: how the workers log.
    """

    address: str | None = None
    workers: int | None = None
    most: int | None = None
    cpus: float = 1.0
    gpus: float = 0.0
    threads: int = 0
    gang: int = 1
    wait_seconds: float = 60.0
    factories: tuple[str, ...] = ()
    confine: tuple[str, ...] | None = None
    environment: tuple[tuple[str, str], ...] = ()
    log: LogSetting | None = None

    @property
    def each(self) -> str:
        """What a worker holds, for people: a GPU or a share of one, else cores."""
        return f"{self.gpus:g} GPU" if self.gpus else f"{self.cpus:g} CPU"


@dataclass
class _Slot:
    """A place for one worker: the actor now in it, the reference that resolves when it is ready, and its forerunners
    that died before they were."""

    actor: Any
    starting: Any | None
    failed_starts: int = 0
    pending: dict[Any, Any] = field(default_factory=dict)


class Pool(Generic[T, R]):
    """Runs tasks on Ray actors. Use as a context manager: leaving it gives every actor and GPU back.

    A subclass says what a worker is and how a task is sent to it.

    Raises:
        ResourceError: on entering, when the cluster cannot be reached or is smaller than what is asked.
    """

    in_flight: ClassVar[int] = 2
    remedy: ClassVar[str] = REMEDY

    def __init__(self, request: WorkerRequest) -> None:
        self._request = request
        self.slots: list[_Slot] = []
        self._own_cluster = False
        self._open = ExitStack()
        self._head: HeadWatch | None = None

    def __enter__(self) -> Self:
        try:
            self._connect()
            self._open.enter_context(counters.METER.mirrored(RayMirror()))
            self._head = HeadWatch(ray.get_runtime_context().gcs_address)
            count = self._count()
            self.slots = [self._place() for _ in range(count)]
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    @property
    def workers(self) -> int:
        """How many workers there are."""
        return len(self.slots)

    def _worker(self) -> tuple[type, tuple[Any, ...]]:
        """The worker's class and the arguments of its constructor behind device and threads."""
        raise NotImplementedError

    def _send(self, actor: Any, task: T) -> Any:
        """Ask an actor to do a task; returns what `ray.wait` waits for."""
        return actor.run.remote(task)

    def _take(self, ref: Any) -> tuple[R, Literal["begun", "advanced", "done"]]:
        """The value that is ready, and how far its task is with it."""
        return ray.get(ref), "done"

    def run(self, tasks: Sequence[T]) -> Iterator[R | TaskFailure[T]]:
        """Run the tasks.

        Raises:
            ResourceError: no worker could be placed for `wait_seconds`, or the head of the cluster is gone.
            WorkerError: workers keep dying before they are ready.
        """
        for index, slot in enumerate(self.slots):
            if slot.pending:  # of a run that was closed before its end: these tasks are awaited no more
                self._replace(index)
        queue: Dispatcher[T] = Dispatcher(tasks, remedy=self.remedy)
        deadline = time.monotonic() + self._request.wait_seconds
        while not queue.finished:
            if self._head is not None:
                self._head.check()
            self._feed(queue)
            for ref in self._ready_refs():
                result = self._settle(ref, queue)
                if result is not None:
                    yield result
            self._levels(queue)
            if any(slot.starting is None for slot in self.slots):
                deadline = time.monotonic() + self._request.wait_seconds
            elif time.monotonic() > deadline:
                raise ResourceError(self._not_placed())

    # --- one turn of the loop ------------------------------------------------------------------------------------

    def _levels(self, queue: Dispatcher[T]) -> None:
        counters.METER.count(counters.QUEUE, queue.pending)
        counters.METER.count(counters.RUNNING, sum(len(slot.pending) for slot in self.slots))
        counters.METER.count(counters.WORKERS, sum(slot.starting is None for slot in self.slots))

    def _redone(self, task: T) -> None:
        """A task that a lost worker had is going to be done again."""

    def _feed(self, queue: Dispatcher[T]) -> None:
        for _ in range(self.in_flight):
            for index, slot in enumerate(self.slots):
                if slot.starting is None and len(slot.pending) < self.in_flight:
                    task = queue.next_for(index)
                    if task is not None:
                        slot.pending[self._send(slot.actor, task)] = task

    def _ready_refs(self) -> list[Any]:
        refs = [ref for slot in self.slots for ref in (slot.starting, *slot.pending) if ref is not None]
        ready, _ = ray.wait(refs, num_returns=1, timeout=TICK_SECONDS)
        if ready and len(refs) > 1:
            ready, _ = ray.wait(refs, num_returns=len(refs), timeout=0)
        return list(ready)

    def _settle(self, ref: Any, queue: Dispatcher[T]) -> R | TaskFailure[T] | None:
        """Take the result of a finished call: a value, a failure, or a death to recover from."""
        index = next((i for i, s in enumerate(self.slots) if ref in s.pending or ref is s.starting), None)
        if index is None:
            return None  # of an actor already replaced in this turn
        slot = self.slots[index]
        task: T | None = slot.pending.get(ref)
        try:
            value, stage = self._take(ref) if task is not None else (ray.get(ref), "done")
        except RayTaskError as error:
            return self._raised(index, ref, task, error, queue)
        except RayError as error:
            return self._lost(index, error, queue)
        if task is None:
            slot.starting = None
            return None
        if stage == "advanced":
            queue.progressed(task)
        elif stage == "done":
            del slot.pending[ref]
            queue.succeeded(index, task)
        result: R = value
        return result

    def _lost(self, index: int, error: RayError, queue: Dispatcher[T]) -> TaskFailure[T] | None:
        """Replace a worker that is gone, or whose result is: killed, out of memory, with its node, or unreachable.

        Ray has a dozen errors for this. Tasks are idempotent, so one answer does for all: end what may still live.
        """
        slot = self.slots[index]
        failed_starts = slot.failed_starts + 1 if slot.starting is not None else 0
        if failed_starts >= START_ATTEMPTS:
            remedy = "look at the logs of Ray; does classwise import on every node?"
            actual = f"{failed_starts} workers died during startup, the last with {_message(error)}"
            raise WorkerError(Problem("workers", "workers that start", actual, remedy))
        counters.METER.count(counters.DEATHS)
        logs.event(_log, logging.WARNING, "worker lost and replaced", worker=index, cause=_message(error))
        self._replace(index, failed_starts)
        suspect = next(iter(slot.pending.values()), None)
        try:
            for task in queue.died(index):
                self._redone(task)
        except WorkerError as fault:
            return failure(suspect, fault) if suspect is not None else None
        return None

    def _replace(self, index: int, failed_starts: int = 0) -> None:
        if self._head is not None:
            self._head.wait()
        ray.kill(self.slots[index].actor, no_restart=True)
        self.slots[index] = self._place(failed_starts)

    def _raised(
        self, index: int, ref: Any, task: T | None, error: RayTaskError, queue: Dispatcher[T]
    ) -> TaskFailure[T]:
        cause = error.cause if isinstance(error.cause, ClasswiseError) else None
        if task is None:
            raise cause or WorkerError(Problem("worker", "to start", _message(error))) from None
        del self.slots[index].pending[ref]
        queue.failed(index, task)
        unknown = WorkerError(Problem(task.title, "the task to finish", _message(error)))
        return failure(task, cause or unknown)

    # --- the cluster ---------------------------------------------------------------------------------------------

    def _connect(self) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        # Ray's accelerator override: a worker without GPUs sees none, as it was before Ray 2.50.
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "1")
        if ray.is_initialized():
            return
        self._own_cluster = True  # from here on, so that a start which is interrupted is cleaned up as well
        try:
            with _signals_kept():
                _init(self._request.address)
        except Exception as error:  # Ray raises plain Exception, RuntimeError, ConnectionError and its own
            raise ResourceError(_unreachable(self._request.address, error)) from error

    def _count(self) -> int:
        """How many actors to place, after comparing what is asked with what the cluster has."""
        request, have = self._request, ray.cluster_resources()
        cpus, gpus = have.get("CPU", 0.0), have.get("GPU", 0.0)
        each = (request.gpus or request.cpus) * request.gang
        possible = int((gpus if request.gpus else cpus) / each) if each else (request.workers or 1)
        wanted = request.workers or min(possible, request.most or possible)
        fits_a_node = any(_node_fits(node, request) for node in ray.nodes() if node["Alive"])
        if wanted > possible or not possible or not fits_a_node:
            count = (wanted or 1) * request.gang
            need = f"{count} worker{'' if count == 1 else 's'} of {request.each}"
            remedy = "lower resources.workers, cpus or gpus, or add nodes"
            raise ResourceError(Problem("resources", need, f"a cluster of {cpus:g} CPU and {gpus:g} GPU", remedy))
        return wanted

    def _place(self, failed_starts: int = 0) -> _Slot:
        request = self._request
        worker, arguments = self._worker()
        remote: Any = ray.remote(worker)
        cpus, gpus = (0 if request.gpus else request.cpus, request.gpus) if request.gang == 1 else (0, 0)
        options: dict[str, Any] = {"num_cpus": cpus, "num_gpus": gpus, "max_restarts": 0}
        device = "cuda" if request.gpus else "cpu"
        actor = remote.options(**options).remote(device, request.threads or max(1, int(request.cpus)), *arguments)
        return _Slot(actor, actor.ready.remote(), failed_starts)

    def _not_placed(self) -> Problem:
        request, free = self._request, ray.available_resources()
        actual = f"{free.get('CPU', 0.0):g} CPU and {free.get('GPU', 0.0):g} GPU free after {request.wait_seconds:g} s"
        remedy = "stop what holds them, or raise resources.wait_seconds"
        return Problem("resources", f"room for a worker of {request.each}", actual, remedy)

    def _close(self) -> None:
        slots, self.slots = self.slots, []
        if self._head is not None and self._head.gone:
            # Whatever is asked of a head that is gone ends this process with exit code 1; its workers end with it.
            atexit.unregister(ray.shutdown)
            self._open.close()
            return
        try:
            for slot in slots if ray.is_initialized() else ():
                ray.kill(slot.actor, no_restart=True)
        finally:
            for level in (counters.QUEUE, counters.RUNNING, counters.WORKERS):
                counters.METER.count(level, 0)
            self._open.close()
            if self._own_cluster:
                ray.shutdown()


class RayRunner(Pool[ShardTask, Receipt]):
    """Audits: each actor is a `services.running.workers.Worker` that does shards."""

    def _worker(self) -> tuple[type, tuple[Any, ...]]:
        request = self._request
        return Worker, (request.factories, request.log, request.environment, request.confine)

    def _redone(self, task: ShardTask) -> None:
        counters.shard_ended(task, "redone")


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Restore the handler of SIGTERM: `ray.init` replaces it, and would end the audit by `sys.exit`, silently."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.getsignal(signal.SIGTERM)
    try:
        yield
    except SystemExit:
        raise KeyboardInterrupt from None
    finally:
        if previous is not None:
            signal.signal(signal.SIGTERM, previous)


def _init(address: str | None) -> None:
    """Join the cluster at `address`, or start one here; on a busy machine the start is tried once more."""
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    if address:
        ray.init(address=address, **quiet)
        return
    with without_other_nodes():
        try:
            ray.init(include_dashboard=False, **quiet)
        except Exception as error:
            if "timed out during startup" not in str(error):
                raise
            ray.shutdown()
            ray.init(include_dashboard=False, **quiet)


def _message(error: Exception) -> str:
    """The end of Ray's long texts, which says what happened."""
    return " ".join(str(error).split())[-500:] or type(error).__name__


def _node_fits(node: dict[str, Any], request: WorkerRequest) -> bool:
    have = node["Resources"]
    return bool(have.get("GPU", 0.0) >= request.gpus and (request.gpus or have.get("CPU", 0.0) >= request.cpus))


def _unreachable(address: str | None, error: Exception) -> Problem:
    text = one_line(error, 300) or type(error).__name__
    if "token" in text.lower() or "401" in text or "unauthenticated" in text.lower():
        remedy = "set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN (or RAY_AUTH_TOKEN_PATH) to the cluster's token"
    else:
        remedy = "check resources.address and RAY_ADDRESS, or leave both out for an embedded Ray"
    return Problem(address or "embedded Ray", "a Ray cluster that answers", text, remedy)
