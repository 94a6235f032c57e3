"""Ray, for real: one small local cluster for the module; workers that die, asks that cannot be met."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import ray

from services.errors import ResourceError, WorkerError
from services.records import ModelSpec, Receipt, SampleSpec, ShardTask, TaskFailure
from services.running import cluster as cluster_module
from services.running.cluster import RayRunner, WorkerRequest
from services.running.runners import LocalRunner
from services.running.workers import Worker
from services.storage.shards import read_table, shard_name

pytestmark = [
    pytest.mark.filterwarnings("default::DeprecationWarning"),
    pytest.mark.filterwarnings("default::FutureWarning"),
    pytest.mark.filterwarnings("default::ResourceWarning"),
    pytest.mark.filterwarnings("default::pytest.PytestUnraisableExceptionWarning"),
]

FACTORIES = ("services.training.*",)
SAMPLES = SampleSpec("sklearn:digits?split=test", per_class=40)
ASK = WorkerRequest(workers=2, cpus=1.0, factories=FACTORIES, wait_seconds=120)


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


def tasks(folder: Path, models: int = 2, shards: int = 4) -> list[ShardTask]:
    return [
        ShardTask(
            "logits",
            ModelSpec(f"m{m}", f"factory:services.training.architectures:small_cnn?width={8 + m}"),
            SAMPLES,
            100 * s,
            100 * s + 100,
            0,
            50,
            target=str(folder / f"m{m}" / shard_name(100 * s, 100 * s + 100)),
        )
        for m in range(models)
        for s in range(shards)
    ]


def logits(folder: Path, models: int = 2) -> list[np.ndarray]:
    return [read_table(str(folder / f"m{m}"), 400)["logits"] for m in range(models)]


def test_actors_and_this_process_give_the_same_numbers(tmp_path: Path) -> None:
    with RayRunner(ASK) as runner:
        receipts = list(runner.run(tasks(tmp_path / "ray")))
    assert len(receipts) == 8
    assert sum(r.forwards for r in receipts if isinstance(r, Receipt)) == 800
    with LocalRunner(Worker("cpu", 1, FACTORIES)) as local:
        list(local.run(tasks(tmp_path / "local")))
    for each, other in zip(logits(tmp_path / "ray"), logits(tmp_path / "local"), strict=True):
        assert each.tobytes() == other.tobytes()


def test_a_killed_worker_is_replaced_and_nothing_is_done_twice_or_lost(tmp_path: Path) -> None:
    with RayRunner(ASK) as runner:
        observed = []
        for receipt in runner.run(tasks(tmp_path, models=2, shards=4)):
            observed.append(receipt.task)
            if len(observed) == 1:
                pids = [ray.get(slot.actor.__ray_call__.remote(lambda worker: os.getpid())) for slot in runner.slots]
                os.kill(pids[0], signal.SIGKILL)
    assert sorted(observed, key=str) == sorted(tasks(tmp_path), key=str)
    assert all(len(table) == 400 for table in logits(tmp_path))


def test_a_model_that_fails_is_told_and_the_others_go_on(tmp_path: Path) -> None:
    good = tasks(tmp_path, models=1)
    bad = [replace(task, model=ModelSpec("bad", "factory:services.training.architectures:nosuch")) for task in good]
    with RayRunner(ASK) as runner:
        results = list(runner.run([*bad, *good]))
    failures = [result for result in results if isinstance(result, TaskFailure)]
    assert {failure.task.model.name for failure in failures} == {"bad"}
    assert "nosuch" in str(failures[0].problems)
    assert sum(isinstance(result, Receipt) for result in results) == 4


@pytest.mark.slow
def test_a_result_that_is_lost_without_a_death_is_made_again(tmp_path: Path) -> None:
    with RayRunner(ASK) as runner:
        observed = []
        for receipt in runner.run(tasks(tmp_path)):
            observed.append(receipt.task)
            if len(observed) == 1:
                for ref in [ref for slot in runner.slots for ref in slot.pending]:
                    ray.cancel(ref)
    assert sorted(observed, key=str) == sorted(tasks(tmp_path), key=str)


@pytest.mark.slow
def test_a_run_closed_early_leaves_nothing_to_the_next(tmp_path: Path) -> None:
    with RayRunner(replace(ASK, workers=1)) as runner:
        run = runner.run(tasks(tmp_path / "closed"))
        next(run)
        run.close()
        results = list(runner.run(tasks(tmp_path / "next", models=1)))
    assert sorted([result.task for result in results], key=str) == sorted(tasks(tmp_path / "next", models=1), key=str)


@pytest.mark.slow
def test_a_shard_that_kills_its_workers_costs_its_model_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Fragile(Worker):
        def run(self, task: ShardTask) -> Receipt:
            if task.model.name == "m0":
                os._exit(1)
            return super().run(task)

    monkeypatch.setattr(cluster_module, "Worker", Fragile)
    with RayRunner(ASK) as runner:
        results = list(runner.run(tasks(tmp_path, shards=2)))
    failures = [result for result in results if isinstance(result, TaskFailure)]
    assert [failure.task.model.name for failure in failures] == ["m0"]
    assert "3 workers that died on it" in str(failures[0].problems)
    assert [result.task.model.name for result in results if isinstance(result, Receipt)] == ["m1", "m1"]


def test_workers_that_die_before_they_are_ready_end_the_audit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stillborn(Worker):
        def ready(self) -> str:
            os._exit(1)

    monkeypatch.setattr(cluster_module, "Worker", Stillborn)
    with (
        pytest.raises(WorkerError, match="found 3 workers died during startup"),
        RayRunner(replace(ASK, workers=1)) as runner,
    ):
        list(runner.run(tasks(tmp_path, models=1)))


@pytest.mark.parametrize(
    ("ask", "found"),
    [
        (replace(ASK, workers=9), r"9 workers of 1 CPU, found a cluster of 2 CPU and 0 GPU"),
        (replace(ASK, workers=1, gpus=1.0), r"1 worker of 1 GPU, found a cluster of 2 CPU and 0 GPU; lower"),
        (replace(ASK, workers=1, cpus=3.0), "lower resources.workers, cpus or gpus, or add nodes"),
    ],
)
def test_an_ask_that_can_never_be_met_fails_at_once(ask: WorkerRequest, found: str) -> None:
    started = time.monotonic()
    with pytest.raises(ResourceError, match=found), RayRunner(ask):
        pass
    assert time.monotonic() - started < 10


@pytest.mark.slow
def test_an_ask_that_others_hold_times_out_and_says_what_is_free(tmp_path: Path) -> None:
    with RayRunner(ASK) as holder:
        assert len(list(holder.run(tasks(tmp_path, models=1)))) == 4
        waiting = replace(ASK, workers=1, wait_seconds=2.0)
        with (
            pytest.raises(ResourceError, match="0 CPU and 0 GPU free after 2 s; stop what holds them"),
            RayRunner(waiting) as runner,
        ):
            list(runner.run(tasks(tmp_path / "never", models=1)))


def test_leaving_gives_every_core_back(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), RayRunner(ASK) as runner:
        for _ in runner.run(tasks(tmp_path)):
            raise KeyboardInterrupt
    deadline = time.monotonic() + 20
    while ray.available_resources().get("CPU", 0.0) < 2.0 and time.monotonic() < deadline:
        time.sleep(0.2)
    assert ray.available_resources()["CPU"] == 2.0


def test_what_workers_need_to_reach_the_registry_is_in_no_log_of_rays(tmp_path: Path) -> None:
    planted = "planted-8d21f0"
    ask = replace(ASK, workers=1, environment=(("MLFLOW_TRACKING_PASSWORD", planted),))
    with RayRunner(ask) as runner:
        assert len(list(runner.run(tasks(tmp_path, models=1, shards=1)))) == 1
        session = Path(ray.nodes()[0]["ObjectStoreSocketName"]).parents[1]
        logs = [path for path in (session / "logs").rglob("*") if path.is_file()]
        assert logs and [path.name for path in logs if planted.encode() in path.read_bytes()] == []


def test_a_worker_has_the_variables_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "before")
    Worker("cpu", 1, environment=(("MLFLOW_TRACKING_PASSWORD", "given"),))
    assert os.environ["MLFLOW_TRACKING_PASSWORD"] == "given"
