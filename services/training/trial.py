"""One trial on a worker: from its task to trained weights in storage, reported epoch by epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import cast

from services.devices import is_out_of_memory, started
from services.errors import ClasswiseError, Problem, ResourceError, WorkerError, ends_worker, raised_at
from services.records.trials import Begun, EpochDone, EpochPoint, Shares, State, TrialDone, TrialReport, TrialTask
from services.training.architectures.build import build
from services.training.counts import ClassCounts, EpochRecord
from services.training.data.sets import TrainingSet
from services.training.epochs.checkpoints import load_weights
from services.training.epochs.listener import TrainReport
from services.training.epochs.loop import epochs, prepared
from services.training.epochs.peers import Peers
from services.training.epochs.run import Run
from services.training.epochs.stopping import never
from services.training.mappers.trial import mapper_events
from services.training.methods import method_from
from services.training.recipe import Recipe

Event = Begun | EpochDone | TrialDone


class TrialWorker:
    """Trains on one device, as a plain class: Ray knows it only through `services.running.sweeps`.

    Args:
        device: "cpu", "cuda", or "auto".
        threads: torch threads; 0 leaves torch's default.
        stopping: whether to stop, asked after each step, beside signals.
    """

    def __init__(self, device: str = "auto", threads: int = 0, stopping: Callable[[], bool] = never) -> None:
        self._device, self._threads, self._stopping = device, threads, stopping

    def ready(self) -> str:
        """Start torch and return the device in use."""
        return started(self._device, self._threads)

    def run(self, task: TrialTask, data: TrainingSet) -> Iterator[Event]:
        """Train a trial from where its storage stands; each event follows what it reports.

        Raises:
            ClasswiseError: the trial cannot be trained, for a reason a user can act on.
            WorkerError: anything else, with the original error's text.
        """
        try:
            yield from events(task, data, stopping=self._stopping)
        except ClasswiseError:
            raise
        except (Exception, SystemExit) as error:
            if ends_worker(error):
                raise
            raise as_trial_error(task, error) from error


def events(
    task: TrialTask, data: TrainingSet, peers: Peers | None = None, stopping: Callable[[], bool] = never
) -> Iterator[Event]:
    """What happens to a trial: it begins, epochs end, it ends."""
    if task.kind == "mapper":
        yield from mapper_events(task, data)
        return
    recipe = Recipe.model_validate_json(task.recipe)
    network = build(task.architecture, seed=recipe.seed, **dict(task.options))
    if task.start is not None:
        network.load_state_dict(load_weights(task.start.file))
    run = prepared(
        network,
        data.train,
        data.held,
        method=method_from(task.method),
        recipe=recipe,
        storage=task.folder,
        peers=peers,
        stopping=stopping,
        extra=data.extra,
    )
    yield Begun(task, run.resumed_at)
    for record in () if _waits(task, run) else epochs(run):
        yield EpochDone(task, point_of(record))
        if _waits(task, run):
            break
    report = _report(run.report())
    yield TrialDone(task, replace(report, state="dropped") if _waits(task, run) else report)


def _waits(task: TrialTask, run: Run) -> bool:
    """Whether a trial with epochs left has come to where it waits."""
    done = len(run.progress.records)
    return task.until is not None and done >= task.until and not run.progress.stopped


def point_of(record: EpochRecord) -> EpochPoint:
    """An epoch's counts as shares."""
    held = None if record.validation is None else _shares(record.validation)
    loss = record.loss_sum / record.samples
    shares = _shares(record.train)
    return EpochPoint(record.epoch, loss, record.rate, record.seconds, shares, held, judging=record.judging)


def _shares(counts: ClassCounts) -> Shares:
    rows = None if counts.robust is None else tuple(zip(counts.robust, counts.total, strict=True))
    per_class = None if rows is None else tuple(right / n if n else None for right, n in rows)
    return Shares(counts.accuracy("clean"), counts.accuracy("robust"), counts.accuracy("worst-class"), per_class)


def _report(report: TrainReport) -> TrialReport:
    points = tuple(point_of(record) for record in report.records)
    return TrialReport(cast(State, report.stopped), report.reason, report.selected, report.resumed_at, points)


def as_trial_error(task: TrialTask, error: BaseException) -> ClasswiseError:
    """The message of an unexpected error."""
    if is_out_of_memory(error):
        remedy = "lower recipe.batch, give the trial more of a GPU (resources.gpus), or train fewer side by side"
        return ResourceError(Problem(task.title, "memory for a batch", "out of memory", remedy))
    remedy = "fix it and run the sweep again; finished epochs are kept"
    return WorkerError(Problem(task.title, "the trial to finish", raised_at(error), remedy))
