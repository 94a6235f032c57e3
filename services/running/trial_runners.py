"""What runs the trials of a sweep: a Protocol, and the in-process runner that tests and small sweeps use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Protocol, Self

from services.errors import ClasswiseError
from services.records import TaskFailure
from services.records.trials import TrialTask
from services.running.runners import failure
from services.training.data.sets import TrainingSet
from services.training.trial import Event, TrialWorker

TrialEvent = Event | TaskFailure[TrialTask]


class SweepRunner(Protocol):
    """Runs trials on one or many workers and reports the events of each, in order.

    Closing gives every resource back, whether the trials ended or not.
    """

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def run(self, tasks: Sequence[TrialTask]) -> Iterator[TrialEvent]:
        """Run the trials. One that raises or keeps killing its workers ends as a `TaskFailure`; the others go on.

        Raises:
            ClasswiseError: there are no workers, or none that starts.
        """
        ...


class LocalSweep:
    """One worker in this process, one trial after the other."""

    def __init__(self, worker: TrialWorker, sets: Mapping[str, TrainingSet]) -> None:
        self._worker, self._sets = worker, sets
        self._threads = 0

    def __enter__(self) -> Self:
        import torch

        self._threads = torch.get_num_threads()
        self._worker.ready()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        import torch

        torch.set_num_threads(self._threads)

    def run(self, tasks: Sequence[TrialTask]) -> Iterator[TrialEvent]:
        """Run the trials in their order."""
        for task in tasks:
            try:
                yield from self._worker.run(task, self._sets[task.data])
            except ClasswiseError as error:
                yield failure(task, error)
