"""The same audits on a real Ray cluster: workers, a node, the head and the driver are killed at a random shard."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from .clusters import Cluster, environment
from .drivers import Bench, Deeds, Story
from .faults import Fault
from .forks import in_fork

GIVEN_BACK_WITHIN = 40.0


class RayBench(Bench):
    """Drivers that join a cluster of two workers; the reference is an audit in process."""

    seconds = 240.0

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._cluster = Cluster(home / "ray.log")
        self._stack = ExitStack()
        self._on_ray = False

    def __enter__(self) -> Self:
        self._stack.callback(self._cluster.close)
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def prepare(self) -> None:
        super().prepare()
        self.reference = _but_resources(self.reference)
        self._on_ray = True
        self._cluster.start()
        self._wait_for_both()

    def resources(self) -> dict[str, Any]:
        if not self._on_ray:
            return {}
        return {"runner": "ray", "workers": 2, "address": self._cluster.address, "wait_seconds": 90}

    def enter(self) -> None:
        if self._on_ray:
            os.environ.update(environment())

    def state(self, storage: Path) -> dict[str, Any]:
        return _but_resources(super().state(storage))

    def deeds(self, storage: Path) -> Deeds:
        cluster = self._cluster
        return {
            "worker-killed": cluster.kill_worker,
            "node-killed": cluster.kill_node,
            "head-killed": cluster.kill_head,
        }

    def repair(self, storage: Path, fault: Fault) -> None:
        if fault.kind == "head-killed":
            self._cluster.close()
            self._cluster.start()
        if fault.kind == "node-killed":
            self._cluster.start_node()
        self._wait_for_both()

    def play(self, fault: Fault, name: str) -> Story:
        story = super().play(fault, name)
        held = in_fork(self._held, str(self.home / f"{name}.log")).value
        story.wrong += [f"held: {held}"] if held != [] else []
        return story

    def _wait_for_both(self) -> None:
        """Until both nodes are members: a raylet that runs may not be one yet."""

        def joined() -> None:
            self._join()
            import ray

            while ray.cluster_resources().get("CPU", 0.0) < 2.0:
                time.sleep(0.2)

        in_fork(joined, str(self.home / "reference.log"))

    def _join(self) -> None:
        self.enter()
        import ray

        ray.init(address=self._cluster.address, log_to_driver=False, logging_level="ERROR")

    def _held(self) -> list[str]:
        """What an audit that is over still holds of the cluster, once Ray has had time to notice."""
        self._join()
        import ray

        end = time.monotonic() + GIVEN_BACK_WITHIN
        while True:
            free, whole = ray.available_resources().get("CPU", 0.0), ray.cluster_resources().get("CPU", 0.0)
            workers = self._cluster.workers()
            if (free, workers) == (whole, []):
                return []
            if time.monotonic() > end:
                return [f"{whole - free:g} of {whole:g} cores", f"{len(workers)} worker processes"]
            time.sleep(0.3)


def _but_resources(state: dict[str, Any]) -> dict[str, Any]:
    """The state without the parameters in which these audits differ from the one in process."""
    return {**state, "params": [name for name in state["params"] if "resources." not in name]}
