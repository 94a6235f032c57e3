"""A sweep: from a sweep file to trained networks in storage, each logged to MLflow when its trial ends."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from jobs.audit import versions
from jobs.terminal import stop
from jobs.training.halving import rungs, stopped
from jobs.training.mlflow_trials import TrialLog, trial_log
from jobs.training.planned import PlannedTrial
from jobs.training.progress import TrainReporter
from jobs.training.sweep_plan import TrainPlan, plan_training
from jobs.training.sweep_tree import SweepConfig
from jobs.training.sweepfile import Sweep
from jobs.training.trial_result import DONE, trial_result
from services.errors import Interrupted, Problem, StorageError
from services.records import TaskFailure
from services.records.trials import (
    Begun,
    EpochDone,
    EpochPoint,
    SweepResult,
    TrialDone,
    TrialReport,
    TrialResult,
    TrialTask,
)
from services.running.trial_runners import LocalSweep, SweepRunner
from services.storage import files
from services.telemetry.redaction import redacted_tree
from services.training.epochs.checkpoints import is_whole, save_weights
from services.training.trial import TrialWorker
from tracking.bundle.training_bundle import read_curves, read_trial, write_sweep, write_trial

RunnerFactory = Callable[[TrainPlan, Sequence[PlannedTrial]], SweepRunner]


@dataclass(frozen=True)
class Trained:
    """A sweep all of whose trials have ended, its folder, its plan, and where a person should look."""

    result: SweepResult
    folder: str
    plan: TrainPlan
    where_to_look: tuple[str, ...] = ()


def run_sweep(
    sweep: Sweep,
    reporter: TrainReporter,
    *,
    check: Callable[[TrainPlan], None] = lambda plan: None,
    runner: RunnerFactory | None = None,
) -> Trained:
    """Train what is not trained yet and write what came of it.

    Args:
        check: called before anything is trained; raises what stands against it.

    Raises:
        ClasswiseError: nothing was trained (configuration, data, preflight, resources), or there are no workers;
            finished epochs are in storage and the same call goes on from them.
        Interrupted: a stop was asked for.
    """
    try:
        return _run(sweep, reporter, check, runner or (lambda plan, todo: runner_for(sweep.config, plan, todo)))
    except KeyboardInterrupt:
        remedy = "run the same command again; it goes on from the last step of each trial"
        raise Interrupted(Problem("training", "to finish", "a request to stop", remedy)) from None


def runner_for(config: SweepConfig, plan: TrainPlan, todo: Sequence[PlannedTrial]) -> SweepRunner:
    """The runner that the sweep file asks for, not yet started."""
    resources = config.resources
    if resources.runner == "local":
        threads = resources.threads or os.cpu_count() or 1
        return LocalSweep(TrialWorker("cuda" if resources.gpus else "cpu", threads), plan.sets)
    from services.running.cluster import WorkerRequest
    from services.running.sweeps import RaySweep

    request = WorkerRequest(
        address=resources.address or os.environ.get("RAY_ADDRESS") or None,
        workers=None if resources.trials == "auto" else min(resources.trials, len(todo)),
        most=len(todo),
        cpus=resources.cpus,
        gpus=resources.gpus,
        threads=resources.threads or 0,
        gang=resources.workers,
        wait_seconds=resources.wait_seconds,
    )
    return RaySweep(request, plan.sets)


def _run(sweep: Sweep, reporter: TrainReporter, check: Callable[[TrainPlan], None], factory: RunnerFactory) -> Trained:
    started = _now()
    files.require_writable(sweep.config.storage, "storage")
    plan = plan_training(sweep)
    check(plan)
    for note in plan.notes:
        reporter.note(note)
    with alone(plan.folder):
        return _trained(sweep, plan, reporter, factory, started)


def _trained(sweep: Sweep, plan: TrainPlan, reporter: TrainReporter, factory: RunnerFactory, started: str) -> Trained:
    config = sweep.config
    reporter.sweep([item.task.name for item in plan.trials], [item.trial.recipe.epochs for item in plan.trials])
    with trial_log(config, reporter) as log:
        results = dict(_known(plan, reporter, log))
        todo = [item for item in plan.trials if item.task.name not in results]
        if todo:
            _copy_starts(plan)
            with factory(plan, todo) as runner:
                points = _curves(plan, results) if config.halving else {}
                for ended in _train(runner, todo, sweep, plan, reporter, log, points):
                    results[ended.name] = ended
        trials = tuple(results[item.task.name] for item in plan.trials)
        config_json = redacted_tree(config.model_dump(mode="json", by_alias=True))
        result = SweepResult(config.sweep, started, _now(), trials, config_json, versions.installed())
        write_sweep(result, plan.folder)
        look = log.finish(result, plan.folder)
    return Trained(result, plan.folder, plan, (f"training {plan.folder}", *look))


def _copy_starts(plan: TrainPlan) -> None:
    """Lay the weights that fine-tunings start from where all workers find them."""
    for url, start in plan.starts.items():
        if not is_whole(url):
            save_weights(url, start.state)


def _known(plan: TrainPlan, reporter: TrainReporter, log: TrialLog) -> Iterator[tuple[str, TrialResult]]:
    """Trials that ended in an earlier run; one that failed is tried again."""
    for item in plan.trials:
        result = read_trial(item.task.folder)
        if result is not None and result.key == item.task.key and result.state in DONE and _has_weights(result):
            reporter.ended(result)
            log.trial(result, item.task.folder)
            yield item.task.name, result


def _curves(plan: TrainPlan, known: Mapping[str, TrialResult]) -> dict[str, list[EpochPoint]]:
    """The epochs of trials that ended in an earlier run."""
    return {item.task.name: list(read_curves(item.task.folder)) for item in plan.trials if item.task.name in known}


def _has_weights(result: TrialResult) -> bool:
    """Whether its weights lie whole where it says; not so when someone removed or cut them, or moved the storage."""
    return not result.weights or is_whole(result.weights)


def _train(
    runner: SweepRunner,
    todo: Sequence[PlannedTrial],
    sweep: Sweep,
    plan: TrainPlan,
    reporter: TrainReporter,
    log: TrialLog,
    points: dict[str, list[EpochPoint]],
) -> Iterator[TrialResult]:
    """Results as trials end, each written and reported before the next event is read.

    Where the sweep is halved, all trials come to a rung before the weaker ones end and the others go on.

    Args:
        points: epochs of the trials that ended earlier, by name; those of the others are added.
    """
    by_name, halving, left = {item.task.name: item for item in todo}, sweep.config.halving, list(sweep.networks)

    def ended(name: str, report: TrialReport) -> TrialResult:
        item = by_name.pop(name)
        result = trial_result(item, report, sweep.config.sweep, plan.sets[item.task.data].facts)
        write_trial(result, report.points, item.task.folder)
        reporter.ended(result)
        log.trial(result, item.task.folder)
        return result

    for rung in (*rungs(halving, sweep.networks), None):
        waiting: dict[str, TrialReport] = {}
        for event in runner.run([replace(item.task, until=rung) for item in by_name.values()]):
            stop.check()
            name = event.task.name
            if isinstance(event, Begun):
                reporter.begun(name, event.done)
            elif isinstance(event, EpochDone):
                points.setdefault(name, []).append(event.point)
                reporter.epoch(name, event.point)
            else:
                report = event.report if isinstance(event, TrialDone) else _failed(event, points.get(name, []))
                points[name] = list(report.points)
                if report.state == "dropped":
                    waiting[name] = report
                else:
                    yield ended(name, report)
        weaker = stopped(halving, rung, left, points) if halving and rung else {}
        left = [trial for trial in left if trial.name not in weaker]
        for name in weaker.keys() & waiting.keys():
            yield ended(name, replace(waiting[name], reason=weaker[name]))


def _failed(event: TaskFailure[TrialTask], points: Sequence[EpochPoint]) -> TrialReport:
    """What is known of a trial that raised or whose workers died."""
    reason = "; ".join(str(Problem(*problem)) for problem in event.problems)
    return TrialReport("failed", reason, None, 0, tuple(points))


@contextmanager
def alone(folder: str) -> Iterator[None]:
    """Two commands that train one sweep would write the same checkpoints; a local folder is locked against that."""
    from filelock import FileLock, Timeout

    if not files.is_local(folder):
        yield
        return
    Path(folder).mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(Path(folder) / ".lock", timeout=0):
            yield
    except Timeout:
        remedy = "wait for the other, or give the sweep another name or storage"
        raise StorageError(Problem(folder, "one command at a time to train a sweep", "another one", remedy)) from None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
