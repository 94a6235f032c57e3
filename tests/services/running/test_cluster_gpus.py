"""GPUs on Ray, for real but for the cards: a cluster that says it has two, and workers that share or fill them."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
import ray

from services.errors import ResourceError
from services.records import ModelSpec, Receipt, SampleSpec, ShardTask
from services.running import cluster as cluster_module
from services.running.cluster import RayRunner, WorkerRequest
from services.running.workers import Worker

pytestmark = [
    pytest.mark.filterwarnings("default::DeprecationWarning"),
    pytest.mark.filterwarnings("default::FutureWarning"),
    pytest.mark.filterwarnings("default::ResourceWarning"),
    pytest.mark.filterwarnings("default::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "1")  # as a pool does that starts Ray itself
        ray.init(num_cpus=1, num_gpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        yield
        ray.shutdown()


def tasks(count: int) -> list[ShardTask]:
    spec = ModelSpec("m", "factory:m:f")
    return [ShardTask("logits", spec, SampleSpec("npz:x"), 10 * i, 10 * i + 10, 0, 8) for i in range(count)]


@pytest.fixture
def cards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that need no card, and tell which one Ray gave them."""

    class Told(Worker):
        def ready(self) -> str:
            return self._wanted

        def run(self, task: ShardTask) -> Receipt:
            time.sleep(1.0)  # so that every worker gets a task
            facts = {"pid": os.getpid(), "cards": os.environ.get("CUDA_VISIBLE_DEVICES"), "device": self._wanted}
            return Receipt(task, 10, 0, 0.0, facts)

    monkeypatch.setattr(cluster_module, "Worker", Told)


def until(true: Callable[[], bool], seconds: float = 20.0) -> None:
    """What Ray says of its resources comes late on a busy machine."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, ray.available_resources()
        time.sleep(0.1)


@pytest.mark.parametrize(("share", "workers"), [(0.5, 4), (1.0, 2), (2.0, 1)])
def test_a_share_packs_a_gpu_a_whole_one_pins_it_and_no_core_is_held(cards: None, share: float, workers: int) -> None:
    with RayRunner(WorkerRequest(gpus=share, wait_seconds=120)) as runner:
        assert runner.workers == workers
        results = [result.facts for result in runner.run(tasks(4 * workers)) if isinstance(result, Receipt)]
        assert len(results) == 4 * workers
        assert {facts["device"] for facts in results} == {"cuda"}
        of_worker = {facts["pid"]: facts["cards"] for facts in results}
        pinned = Counter(card for held in of_worker.values() for card in held.split(","))
        assert pinned == {"0": max(1, round(1 / share)), "1": max(1, round(1 / share))}
        left = {"CPU": 1.0}  # else four workers would have starved on one core
        until(lambda: {name: ray.available_resources().get(name, 0.0) for name in ("CPU", "GPU")} == {**left, "GPU": 0})


def test_workers_without_gpus_see_none(cards: None) -> None:
    with RayRunner(WorkerRequest(workers=1, wait_seconds=120)) as runner:
        (result,) = runner.run(tasks(1))
    assert isinstance(result, Receipt)
    assert (result.facts["device"], result.facts["cards"]) == ("cpu", "")


@pytest.mark.parametrize(
    ("ask", "need"),
    [(WorkerRequest(workers=3, gpus=1.0), "3 workers of 1 GPU"), (WorkerRequest(gpus=4.0), "1 worker of 4 GPU")],
)
def test_more_gpus_than_there_are_fail_at_once(ask: WorkerRequest, need: str) -> None:
    with pytest.raises(ResourceError, match=f"expected {need}, found a cluster of 1 CPU and 2 GPU"), RayRunner(ask):
        pass


def test_a_gpu_that_ray_promises_and_torch_does_not_see_is_named() -> None:
    with (
        pytest.raises(ResourceError, match=r"resources.gpus: expected a visible GPU, found none; set gpus: 0 or check"),
        RayRunner(WorkerRequest(workers=1, gpus=1.0, wait_seconds=120)) as runner,
    ):
        list(runner.run(tasks(1)))
