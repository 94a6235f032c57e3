"""Which worker does which shard next: a pure policy, without clock, threads or Ray.

Workers pull. A worker is given shards of the model it already holds while there are any; else it starts on the model
with the most shards left, so that several workers share one model only at the end. A shard whose worker died is
redone, at most `attempts` times; a shard that raised is not: a user's error does not get better by repeating it.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Hashable, Iterable

from services.errors import Problem, WorkerError
from services.records import ShardTask


class Dispatcher:
    """Hands out tasks and keeps count of what is pending, running and done.

    Args:
        tasks: the work, in the order in which it is preferred.
        attempts: how often a task may kill its worker before the audit gives up.
    """

    def __init__(self, tasks: Iterable[ShardTask], *, attempts: int = 3) -> None:
        self._pending: dict[str, deque[ShardTask]] = defaultdict(deque)
        for task in tasks:
            self._pending[task.model.name].append(task)
        self._attempts = attempts
        self._deaths: dict[ShardTask, int] = defaultdict(int)
        self._running: dict[Hashable, list[ShardTask]] = defaultdict(list)
        self._holds: dict[Hashable, str] = {}
        self._dropped: set[str] = set()

    @property
    def finished(self) -> bool:
        """Whether nothing is left to hand out or to come back."""
        return not self.pending and not any(self._running.values())

    @property
    def pending(self) -> int:
        """Tasks nobody works on."""
        return sum(len(queue) for queue in self._pending.values())

    def flight(self, worker: Hashable) -> int:
        """Tasks a worker has been given and not returned."""
        return len(self._running[worker])

    def next_for(self, worker: Hashable) -> ShardTask | None:
        """The next task for a worker, or None when nothing is left to hand out."""
        model = self._choose(worker)
        if model is None:
            return None
        task = self._pending[model].popleft()
        self._holds[worker] = model
        self._running[worker].append(task)
        return task

    def succeeded(self, worker: Hashable, task: ShardTask) -> None:
        """Count a task as done."""
        self._running[worker].remove(task)

    def failed(self, worker: Hashable, task: ShardTask) -> None:
        """Count a task as failed for good and drop what is pending of its model."""
        self._running[worker].remove(task)
        self._drop(task.model.name)

    def died(self, worker: Hashable) -> list[ShardTask]:
        """Put a dead worker's tasks back at the front, but those of a model that was dropped, and return them.

        Only the task it was working on, its oldest, is counted as a suspect.

        Raises:
            WorkerError: that task has killed `attempts` workers; its model is dropped, and the others can go on.
        """
        running = self._running.pop(worker, [])
        lost = [task for task in running if task.model.name not in self._dropped]
        self._holds.pop(worker, None)
        for task in reversed(lost):
            self._pending[task.model.name].appendleft(task)
        if lost and lost[0] is running[0]:
            self._suspect(lost[0])
        return lost

    def _suspect(self, task: ShardTask) -> None:
        self._deaths[task] += 1
        if self._deaths[task] >= self._attempts:
            self._drop(task.model.name)
            place = f"{task.model.name}, {task.kind}, rows {task.start} to {task.stop}"
            remedy = "look for the out-of-memory killer; lower resources.batch or resources.workers"
            found = f"{self._deaths[task]} workers that died on it"
            raise WorkerError(Problem(place, "a worker that survives this shard", found, remedy))

    def _drop(self, model: str) -> None:
        self._dropped.add(model)
        self._pending.pop(model, None)

    def _choose(self, worker: Hashable) -> str | None:
        held = self._holds.get(worker)
        if held is not None and self._pending.get(held):
            return held
        waiting = [name for name, queue in self._pending.items() if queue]
        if not waiting:
            return None
        crowd = Counter(self._holds.values())
        return max(waiting, key=lambda name: (-crowd[name], len(self._pending[name])))
