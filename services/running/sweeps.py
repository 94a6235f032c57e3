"""Trials on Ray: packed side by side on shares of GPUs or on cores, each reported epoch by epoch by its actor.

A training set is put into the object store once; a node fetches it once, and its trials read it without a copy. A trial
whose worker died goes on, on another worker, from its last checkpoint; deaths count against it only while it gets no
epoch further. A trial that several workers share is run by Ray Train; losing one of them is a death like any other.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal, NoReturn

import ray

from services.errors import ClasswiseError, Problem, ResourceError, WorkerError
from services.records.trials import EpochDone, TrialDone, TrialTask
from services.running.cluster import Pool, WorkerRequest
from services.storage import files
from services.training.data.sets import TrainingSet
from services.training.trial import Event, TrialWorker, as_trial_error

STEP_SECONDS = 20.0
"""That workers have to keep their step when a sweep is stopped: Kubernetes gives 30 in all."""
RUN = "ray-train"
"""Ray Train's own folder in a trial's, while it runs."""


class RaySweep(Pool[TrialTask, Event]):
    """Each actor trains one trial at a time, by itself or with a gang of workers."""

    in_flight: ClassVar[int] = 1
    remedy: ClassVar[str] = "look for the out-of-memory killer; lower recipe.batch or resources.trials"

    def __init__(self, request: WorkerRequest, sets: Mapping[str, TrainingSet]) -> None:
        super().__init__(request)
        self._sets, self.data_refs = sets, dict[str, Any]()

    def _worker(self) -> tuple[type, tuple[Any, ...]]:
        return (TrialWorker, (_cancelled,)) if self._request.gang == 1 else (Conductor, (self._request,))

    def _send(self, actor: Any, task: TrialTask) -> Any:
        if task.data not in self.data_refs:
            self.data_refs[task.data] = ray.put(self._sets[task.data])
        ref = self.data_refs[task.data]
        return actor.run.options(num_returns="streaming").remote(task, ref if self._request.gang == 1 else [ref])

    def _take(self, ref: Any) -> tuple[Event, Literal["begun", "advanced", "done"]]:
        event: Event = ray.get(next(ref))
        if isinstance(event, TrialDone):
            return event, "done"
        return event, "advanced" if isinstance(event, EpochDone) else "begun"

    def _close(self) -> None:
        """Trials under way keep their step before their workers are ended."""
        trials = [ref for slot in self.slots for ref in slot.pending] if self._request.gang == 1 else []
        if trials and ray.is_initialized() and not (self._head and self._head.gone):
            for trial in trials:
                ray.cancel(trial)
            ray.wait([trial.completed() for trial in trials], num_returns=len(trials), timeout=STEP_SECONDS)
        super()._close()


def _cancelled() -> bool:
    """Whether the driver asked this worker to stop."""
    return bool(ray.get_runtime_context().is_canceled())


class Conductor:
    """Trains a trial on a gang of Ray Train's workers; holds no core itself.

    Args:
        device, threads: of each worker.
        request: what each worker holds, and how long to wait for all of them.
    """

    def __init__(self, device: str, threads: int, request: WorkerRequest) -> None:
        self._threads, self._request = threads, request

    def ready(self) -> str:
        """Nothing to start."""
        return "none"

    def run(self, task: TrialTask, data: list[Any]) -> Iterator[Event]:
        """Train a trial from where its storage stands.

        A gang that lost a worker takes this process with it, so that the pool begins again as after any other death.

        Raises:
            ClasswiseError: the trial cannot be trained, or there is no room for its workers.
        """
        from ray.util.queue import Empty, Queue

        mailbox, faults = Queue(actor_options={"num_cpus": 0}), list[BaseException]()
        training = threading.Thread(target=self._fit, args=(task, data, mailbox, faults), daemon=True)
        training.start()
        done: TrialDone | None = None
        try:
            while training.is_alive() or not mailbox.empty():
                try:
                    message = mailbox.get(timeout=0.5)
                except Empty:
                    continue
                if isinstance(message, ClasswiseError):
                    raise message
                if isinstance(message, TrialDone):
                    done = message  # reported once Ray Train has cleaned up
                else:
                    yield message
        finally:
            mailbox.shutdown(force=True)
        if done is None:
            self._give_up(task, faults[0] if faults else RuntimeError("it ended without a word"))
        files.remove(files.join(task.folder, RUN))
        yield done

    def _fit(self, task: TrialTask, data: list[Any], mailbox: Any, faults: list[BaseException]) -> None:
        try:
            self._trainer(task, data, mailbox).fit()
        except BaseException as error:
            faults.append(error)

    def _trainer(self, task: TrialTask, data: list[Any], mailbox: Any) -> Any:
        os.environ["RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"] = str(self._request.wait_seconds)
        from ray.train import FailureConfig, RunConfig, ScalingConfig
        from ray.train.torch import TorchTrainer

        request = self._request
        held = {"CPU": 0, "GPU": request.gpus} if request.gpus else {"CPU": request.cpus}
        config = {"task": task, "data": data, "mailbox": mailbox, "threads": self._threads}
        return TorchTrainer(
            _share_of_trial,
            train_loop_config=config,
            scaling_config=ScalingConfig(num_workers=request.gang, use_gpu=request.gpus > 0, resources_per_worker=held),
            run_config=RunConfig(
                name=RUN,
                storage_path=task.folder,
                failure_config=FailureConfig(max_failures=0, controller_failure_limit=0),
            ),
        )

    def _give_up(self, task: TrialTask, error: BaseException) -> NoReturn:
        """Ray Train gave up, and no worker said why: there was no room for them, or one is gone."""
        from ray.train import ControllerError, WorkerGroupError

        if isinstance(error, WorkerGroupError):
            os._exit(1)
        request, actual = self._request, " ".join(str(error).split())[-300:]
        if isinstance(error, ControllerError):
            wanted = f"room for {request.gang} workers of {request.each} within {request.wait_seconds:g} s"
            remedy = "stop what holds them, or raise resources.wait_seconds"
            raise ResourceError(Problem(task.title, wanted, actual, remedy)) from error
        raise WorkerError(Problem(task.title, "Ray Train to run the trial", actual)) from error


def _share_of_trial(config: dict[str, Any]) -> None:
    """One worker's share of a trial. The first reports progress, any of them errors."""
    import torch

    from services.training.epochs.peers import Group, PeerLost
    from services.training.trial import events

    torch.set_num_threads(config["threads"])
    peers, task, mailbox = Group(), config["task"], config["mailbox"]
    try:
        for event in events(task, ray.get(config["data"][0]), peers):
            if peers.rank == 0:
                mailbox.put(event)
    except PeerLost:
        raise
    except Exception as error:
        mailbox.put(error if isinstance(error, ClasswiseError) else as_trial_error(task, error))
        raise
