"""Trials on a real Ray: side by side, killed in the middle of an epoch, shared by workers, beyond the cluster."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import ray
import torch

from services.errors import ResourceError
from services.records import TaskFailure
from services.records.trials import Begun, DataSpec, EpochDone, TrialDone, TrialTask
from services.running import sweeps
from services.running.cluster import WorkerRequest
from services.running.sweeps import RaySweep
from services.running.trial_runners import LocalSweep
from services.training.data.sets import TrainingSet, read_set
from services.training.epochs.checkpoints import MODEL, load_tensors, load_weights
from services.training.epochs.halfway import HALFWAY
from services.training.mapper_recipe import MapperRecipe
from services.training.methods import method_from
from services.training.recipe import Recipe
from services.training.trial import TrialWorker

pytestmark = [
    pytest.mark.filterwarnings("default::DeprecationWarning"),
    pytest.mark.filterwarnings("default::FutureWarning"),
    pytest.mark.filterwarnings("default::ResourceWarning"),
    pytest.mark.filterwarnings("default::pytest.PytestUnraisableExceptionWarning"),
]

ASK = WorkerRequest(workers=2, cpus=1.0, threads=1, wait_seconds=120)
PGD: dict[str, Any] = {"name": "pgd", "budget": {"epsilon": 0.1, "step": 0.025, "steps": 10, "random_start": False}}


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def data() -> dict[str, TrainingSet]:
    return {"digits": read_set(DataSpec("digits", "digits", limit=640, holdout=0.2))}


def task(folder: Path, name: str, *, width: int = 16, workers: int = 1, **recipe: Any) -> TrialTask:
    how = Recipe(**{"epochs": 3, "batch": 32, "lr": 0.1, "weight_decay": 0.0, **recipe})
    return TrialTask(
        name=name,
        key=name,
        folder=str(folder / name),
        method=method_from(PGD).canonical(),
        recipe=how.model_dump_json(),
        architecture="small_cnn",
        options=(("width", width),),
        data="digits",
        workers=workers,
    )


def weights(task: TrialTask) -> dict[str, torch.Tensor]:
    return load_weights(str(Path(task.folder) / MODEL))


def in_process(task: TrialTask, data: dict[str, TrainingSet], folder: Path) -> dict[str, torch.Tensor]:
    """The weights of the same trial, trained here in another folder by one worker of one thread."""
    here = replace(task, folder=str(folder / "here" / task.name), workers=1)
    with LocalSweep(TrialWorker("cpu", 1), data) as runner:
        list(runner.run([here]))
    return weights(here)


def kill_one(kind: str) -> None:
    """Kill a worker process of this cluster by its title."""
    os.kill(processes(kind)[0], signal.SIGKILL)


def processes(kind: str) -> list[int]:
    """Worker processes of this cluster by their title, one at least; others may run Ray on this machine too."""
    entries = [entry for entry in Path("/proc").iterdir() if entry.name.isdigit() and _title(entry).startswith(kind)]
    results = [int(entry.name) for entry in entries if _descends(int(entry.name), os.getpid())]
    assert results, f"no process {kind}"
    return results


def _title(entry: Path) -> str:
    try:
        return (entry / "cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def _descends(pid: int, ancestor: int) -> bool:
    while pid > 1 and pid != ancestor:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid == ancestor


@pytest.mark.slow
def test_a_killed_trial_goes_on_from_its_last_epoch_to_the_same_weights(
    tmp_path: Path, data: dict[str, TrainingSet]
) -> None:
    tasks = [task(tmp_path, "one"), task(tmp_path, "two", seed=1)]
    events_of: dict[str, list[Any]] = {"one": [], "two": []}
    killed = False
    with RaySweep(ASK, data) as runner:
        for event in runner.run(tasks):
            events_of[event.task.name].append(event)
            if isinstance(event, EpochDone) and not killed:
                killed = True
                time.sleep(0.1)
                kill_one("ray::TrialWorker.run")
        assert len(runner.data_refs) == 1
    begins = sorted(len([event for event in events if isinstance(event, Begun)]) for events in events_of.values())
    assert begins == [1, 2]
    for each in tasks:
        events = events_of[each.name]
        assert [event.point.epoch for event in events if isinstance(event, EpochDone)] == [0, 1, 2]
        again = [index for index, event in enumerate(events) if isinstance(event, Begun)][-1]
        assert events[again].done == sum(isinstance(event, EpochDone) for event in events[:again])
        assert isinstance(events[-1], TrialDone) and events[-1].report.state == "finished"
        expected = in_process(each, data, tmp_path)
        assert all(torch.equal(value, expected[name]) for name, value in weights(each).items())


@pytest.mark.slow
def test_a_mapper_runs_beside_a_network_and_goes_on_when_its_worker_is_killed(
    tmp_path: Path, data: dict[str, TrainingSet]
) -> None:
    options = (("channels", 1), ("latents", 4), ("size", 8), ("width", 8))
    how = json.dumps({"name": "vae", "conditions": [], "factors": []})
    recipe = MapperRecipe(epochs=6, batch=16, lr=2e-3).model_dump_json()
    folder = str(tmp_path / "vae")
    vae = TrialTask("vae", "vae", folder, how, recipe, "vae", options, "digits", kind="mapper")
    tasks, begins, epochs = [task(tmp_path, "net", width=2), vae], [], []
    with RaySweep(ASK, data) as runner:
        for event in runner.run(tasks):
            if event.task.name == "vae" and isinstance(event, Begun):
                begins.append(event.done)
            if event.task.name == "vae" and isinstance(event, EpochDone):
                epochs.append(event.point.epoch)
                if len(epochs) == 1:
                    for process in processes("ray::TrialWorker.run"):  # whichever holds it
                        os.kill(process, signal.SIGKILL)
            if isinstance(event, TrialDone):
                assert event.report.state == "finished", event
    assert len(begins) == 2 and begins[0] == 0 and begins[1] >= 1 and epochs == list(range(6))
    expected = in_process(vae, data, tmp_path)
    assert all(torch.equal(value, expected[name]) for name, value in weights(vae).items())


@pytest.mark.slow
@pytest.mark.parametrize("whole", [False, True], ids=["a worker", "the sweep"])
def test_a_signal_within_an_epoch_loses_no_step(whole: bool, tmp_path: Path, data: dict[str, TrainingSet]) -> None:
    """A worker that is told to go is no failure of its trial; a sweep that is stopped waits for the steps."""
    own, kept = task(tmp_path, "own", batch=4, epochs=2), tmp_path / "own" / HALFWAY
    begins = 0
    with RaySweep(ASK, data) as runner:
        for event in runner.run([own]):
            begins += isinstance(event, Begun)
            if begins == 1:
                time.sleep(1.5)
                if whole:
                    break
                for process in processes("ray::TrialWorker.run"):
                    os.kill(process, signal.SIGTERM)
            assert not isinstance(event, TaskFailure), event
    if whole:
        assert load_tensors(str(kept))[1]["steps"] >= 1
        with RaySweep(ASK, data) as runner:
            begins += sum(isinstance(event, Begun) for event in runner.run([own]))
    expected = in_process(own, data, tmp_path)
    assert begins == 2 and all(torch.equal(value, expected[name]) for name, value in weights(own).items())


@pytest.mark.slow
def test_a_trial_that_keeps_killing_its_workers_is_dropped_and_the_others_go_on(
    tmp_path: Path, data: dict[str, TrainingSet], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Deadly(TrialWorker):
        def run(self, task: TrialTask, data: TrainingSet) -> Iterator[Any]:
            for event in super().run(task, data):
                if task.name == "deadly" and isinstance(event, Begun):
                    with (tmp_path / "begins").open("a") as file:
                        file.write(f"{event.done} ")
                if task.name == "deadly" and isinstance(event, Begun) and event.done == 1:
                    os._exit(1)
                yield event
                if task.name == "deadly" and isinstance(event, EpochDone):
                    time.sleep(0.5)  # until the event has left
                    os._exit(1)

    monkeypatch.setattr(sweeps, "TrialWorker", Deadly)
    tasks = [task(tmp_path, "deadly", width=2), task(tmp_path, "good", width=2)]
    with RaySweep(ASK, data) as runner:
        events = list(runner.run(tasks))
    (failure,) = [event for event in events if isinstance(event, TaskFailure)]
    where, _, result, remedy = failure.problems[0]
    assert (failure.task.name, where, result) == ("deadly", "deadly", "3 workers that died on it")
    assert remedy == "look for the out-of-memory killer; lower recipe.batch or resources.trials"
    assert (tmp_path / "begins").read_text() == "0 1 1 "
    assert [event.task.name for event in events if isinstance(event, TrialDone)] == ["good"]


@pytest.mark.slow
def test_two_workers_train_as_one_with_the_same_batch(tmp_path: Path, data: dict[str, TrainingSet]) -> None:
    shared = task(tmp_path, "shared", width=4, workers=2, clip=5.0)
    with RaySweep(replace(ASK, workers=1, gang=2), data) as runner:
        events = list(runner.run([shared]))
    assert [type(event).__name__ for event in events] == ["Begun", *["EpochDone"] * 3, "TrialDone"]
    expected, result = in_process(shared, data, tmp_path), weights(shared)
    for name, value in result.items():
        assert torch.allclose(value, expected[name], atol=1e-4), name
    moved = max(float((value - expected[name]).abs().max()) for name, value in result.items())
    assert moved > 0, "sums in another order round otherwise"
    assert sorted(path.name for path in Path(shared.folder).iterdir()) == [MODEL, "progress.safetensors"]


@pytest.mark.slow
def test_a_gang_that_loses_a_worker_goes_on_to_the_same_weights(tmp_path: Path, data: dict[str, TrainingSet]) -> None:
    whole, killed = (task(tmp_path, name, workers=2) for name in ("whole", "killed"))
    done, epochs = [], 0
    with RaySweep(replace(ASK, workers=1, gang=2), data) as runner:
        list(runner.run([whole]))
        for event in runner.run([killed]):
            epochs += isinstance(event, EpochDone)
            if isinstance(event, EpochDone) and epochs == 1:
                kill_one("ray::RayTrainWorker")
            if isinstance(event, Begun):
                done.append(event.done)
    assert len(done) == 2 and done[0] == 0 and done[1] >= 1
    assert all(torch.equal(value, weights(whole)[name]) for name, value in weights(killed).items())


@pytest.mark.parametrize(
    ("ask", "found"),
    [
        (replace(ASK, workers=3), r"3 workers of 1 CPU, found a cluster of 2 CPU and 0 GPU"),
        (replace(ASK, workers=1, gang=3), r"3 workers of 1 CPU"),
        (replace(ASK, workers=None, most=4, gpus=0.5), r"1 worker of 0.5 GPU"),
    ],
)
def test_an_ask_beyond_the_cluster_fails_at_once(data: dict[str, TrainingSet], ask: WorkerRequest, found: str) -> None:
    with pytest.raises(ResourceError, match=found), RaySweep(ask, data):
        pass
