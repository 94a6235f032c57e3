"""One audit's way to its workers: tasks in, receipts out, faults kept by model, the runner started only when needed."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from jobs.audit.speeds import Remaining, Speed, predicted, scouts_first
from jobs.fleetfile.mlflow_uri import reads_mlflow
from jobs.fleetfile.tree import FleetConfig
from jobs.terminal import stop
from jobs.terminal.progress import Reporter
from jobs.terminal.ticks import every
from services.errors import ClasswiseError, Problem, WorkerError
from services.loading.models.schemes.http import token_variable
from services.records import Receipt, ShardTask, TaskFailure
from services.running.runners import LocalRunner, Runner
from services.storage import files
from services.telemetry import counters, logs

RunnerFactory = Callable[[], Runner]
REGISTRY_VARIABLES = ("MLFLOW_TRACKING_", "MLFLOW_REGISTRY_URI", "MLFLOW_S3_ENDPOINT_URL")
"""What the variables begin with by which MLflow finds its registry and artifacts."""

TICK = 5.0
"""Seconds after which the time left is said again while a shard takes longer."""

_log = logging.getLogger("classwise.audit")


def runner_for(config: FleetConfig) -> Runner:
    """The runner that the fleet file asks for, not yet started."""
    resources = config.resources
    if resources.runner == "local":
        from services.running.workers import Worker

        return LocalRunner(Worker("cuda" if resources.gpus else "cpu", _threads(config), config.factories))
    from services.running.cluster import RayRunner, WorkerRequest

    return RayRunner(
        WorkerRequest(
            address=resources.address or os.environ.get("RAY_ADDRESS") or None,
            workers=None if resources.workers == "auto" else resources.workers,
            cpus=resources.cpus,
            gpus=resources.gpus,
            wait_seconds=resources.wait_seconds,
            factories=config.factories,
            confine=config.confine,
            environment=source_environment(config),
            log=logs.inherited(),
        )
    )


def source_environment(config: FleetConfig) -> tuple[tuple[str, str], ...]:
    """What workers need of the driver's environment: where `mlflow:` sources are, and tokens of `http:` models."""
    tokens = {token_variable(model.uri) for model in config.models}
    wanted = REGISTRY_VARIABLES if reads_mlflow(config) else ()
    return tuple((name, value) for name, value in os.environ.items() if name in tokens or name.startswith(wanted))


def _threads(config: FleetConfig) -> int:
    """In process, one worker has the threads that the actors would have had between them."""
    workers = config.resources.workers
    return (os.cpu_count() or 1) if workers == "auto" else max(1, int(workers * config.resources.cpus))


class Session:
    """Runs the stages of an audit. Entering costs nothing; the runner starts with the first task.

    Args:
        factory: makes the runner.
        reporter: is notified of stages and receipts.
        stop_on_fault: raise at the end of a stage in which a model failed; else leave the model out.
    """

    def __init__(self, factory: RunnerFactory, reporter: Reporter, *, stop_on_fault: bool) -> None:
        self._factory = factory
        self._reporter = reporter
        self._stop = stop_on_fault
        self._stack = ExitStack()
        self._runner: Runner | None = None
        self.faults: dict[str, list[Problem]] = {}
        self.forwards: dict[str, int] = {}
        self.seconds: dict[str, float] = {}
        self.speeds: dict[str, Speed] = {}
        self._lost: set[str] = set()
        self.used: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def alive(self, name: str) -> bool:
        """Whether a model has no fault so far."""
        return name not in self.faults

    def fault(self, name: str, problems: Sequence[Problem]) -> None:
        """Note a model's faults, each once: shards that run together report the same one."""
        known = self.faults.setdefault(name, [])
        known.extend(problem for problem in dict.fromkeys(problems) if problem not in known)

    def check(self, error: type[ClasswiseError]) -> None:
        """Raise all faults so far when the fleet file says so.

        Raises:
            ClasswiseError: of the given type, with the problems of all models.
        """
        if self._stop and self.faults:
            raise error([problem for problems in self.faults.values() for problem in problems])

    def run(self, stage: str, tasks: Sequence[ShardTask], *, rows: int = 0) -> list[Receipt]:
        """Run the tasks of models without faults and return the receipts.

        Args:
            rows: images that the stage would handle if nothing were in the cache.
        """
        todo = [task for task in tasks if self.alive(task.model.name)]
        with logs.about(stage=stage):
            self._begin(stage, todo, rows)
            receipts = self._receipts(todo) if todo else []
            self.check(WorkerError)
        return receipts

    def _receipts(self, todo: list[ShardTask]) -> list[Receipt]:
        """Run the tasks; the time left is said after each, and again while one takes long."""
        workers, receipts, turn = self._start().workers, list[Receipt](), threading.Lock()
        remaining = Remaining(todo, lambda task: predicted(task, self.speeds), time.monotonic(), workers)

        def tick() -> None:
            with turn:
                self._reporter.remaining(*remaining.at(time.monotonic()))

        with every(TICK, tick):
            for result in self._results(todo):
                stop.check()
                if isinstance(result, TaskFailure):
                    self._failed(result)
                    with turn:
                        remaining.dropped(result.task)
                    continue
                with turn:
                    self._count(result)
                    self._reporter.remaining(*remaining.done(result, time.monotonic()))
                receipts.append(result)
        return receipts

    def _results(self, todo: list[ShardTask]) -> Iterator[Receipt | TaskFailure[ShardTask]]:
        for part in scouts_first(todo):
            if alive := [task for task in part if self.alive(task.model.name)]:
                yield from self._start().run(alive)

    def note(self, lines: Iterable[str]) -> None:
        """Lines for who watches the audit."""
        for line in lines:
            self._reporter.note(line)

    def take_lost(self) -> set[str]:
        """Models whose logits were deleted before a task could read them, since this was last asked."""
        lost, self._lost = self._lost, set()
        return lost

    def _begin(self, stage: str, todo: Sequence[ShardTask], rows: int) -> None:
        models = len({task.model.name for task in todo})
        missed = sum(task.stop - task.start for task in todo)
        counters.cache_used(stage, max(0, rows - missed), missed)
        logs.event(_log, logging.INFO, "stage begins", shards=len(todo), models=models, cached=max(0, rows - missed))
        self._reporter.stage(stage, len(todo), models)

    def _failed(self, failure: TaskFailure[ShardTask]) -> None:
        """A fault of the model, unless what the task reads was deleted: then it is made again."""
        task, problems = failure.task, [Problem(*problem) for problem in failure.problems]
        name = task.model.name
        if task.source and not files.exists(task.source):
            self._lost.add(name)
            counters.shard_ended(task, "redone")
            logs.event(_log, logging.WARNING, "logits were deleted, made again", model=name, source=task.source)
            return
        counters.shard_ended(task, "failed")
        logs.event(_log, logging.ERROR, "shard failed", model=name, problems="; ".join(map(str, problems)))
        self.fault(name, problems)

    def _count(self, receipt: Receipt) -> None:
        counters.shard_done(receipt)
        name = receipt.task.model.name
        self.forwards[name] = self.forwards.get(name, 0) + receipt.forwards
        self.seconds[name] = self.seconds.get(name, 0.0) + receipt.seconds
        self._reporter.done(receipt)

    def _start(self) -> Runner:
        if self._runner is None:
            self._runner = self._stack.enter_context(self._factory())
        return self._runner
