"""Trials on Ray: packed side by side on shares of GPUs or on cores, each told epoch by epoch by its actor.

A training set is put into the object store once; a node fetches it once, and its trials read it without a copy. A trial
whose worker died goes on, on another worker, from its last checkpoint; deaths count against it only while it gets no
epoch further.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import ray

from services.cluster import Ask, Pool
from services.training.sets import TrainingSet
from services.training.trial import Event, TrialWorker
from services.trials import EpochDone, TrialDone, TrialTask


class RaySweep(Pool[TrialTask, Event]):
    """Each actor is a `TrialWorker` that trains one trial at a time."""

    in_flight: ClassVar[int] = 1
    remedy: ClassVar[str] = "look for the out-of-memory killer; lower recipe.batch or resources.trials"

    def __init__(self, ask: Ask, sets: Mapping[str, TrainingSet]) -> None:
        super().__init__(ask)
        self._sets, self._refs = sets, dict[str, Any]()

    def _worker(self) -> tuple[type, tuple[Any, ...]]:
        return TrialWorker, ()

    def _send(self, actor: Any, task: TrialTask) -> Any:
        if task.data not in self._refs:
            self._refs[task.data] = ray.put(self._sets[task.data])
        return actor.run.options(num_returns="streaming").remote(task, self._refs[task.data])

    def _take(self, ref: Any) -> tuple[Event, Literal["begun", "advanced", "done"]]:
        event: Event = ray.get(next(ref))
        if isinstance(event, TrialDone):
            return event, "done"
        return event, "advanced" if isinstance(event, EpochDone) else "begun"
