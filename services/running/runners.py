"""What runs shard tasks: a Protocol, and the in-process runner that tests and small audits use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Protocol, Self

from services.errors import ClasswiseError
from services.records import Receipt, ShardTask, TaskFailure
from services.running.dispatch import Dispatcher, T
from services.running.workers import Worker


class Runner(Protocol):
    """Runs tasks on one or many workers and yields a receipt as each is done, in any order.

    Closing gives every resource back, whether the tasks ended or not.
    """

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    @property
    def workers(self) -> int:
        """How many workers there are."""
        ...

    def run(self, tasks: Sequence[ShardTask]) -> Iterator[Receipt | TaskFailure[ShardTask]]:
        """Run the tasks. One that raises or keeps killing its workers ends as a `TaskFailure`; its model is dropped.

        Raises:
            ClasswiseError: there are no workers, or none that starts; receipts already yielded stay valid.
        """
        ...


class LocalRunner:
    """One worker in this process."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    @property
    def workers(self) -> int:
        """How many workers there are."""
        return 1

    def run(self, tasks: Sequence[ShardTask]) -> Iterator[Receipt | TaskFailure[ShardTask]]:
        """Run the tasks one after the other, a model's together."""
        queue = Dispatcher(tasks)
        while (task := queue.next_for("local")) is not None:
            try:
                receipt = self._worker.run(task)
            except ClasswiseError as error:
                queue.failed("local", task)
                yield failure(task, error)
            else:
                queue.succeeded("local", task)
                yield receipt


def failure(task: T, error: ClasswiseError) -> TaskFailure[T]:
    """The record of a task that raised."""
    return TaskFailure(task, tuple((p.where, p.expected, p.found, p.remedy) for p in error.problems))
