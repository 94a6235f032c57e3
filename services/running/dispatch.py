"""Which worker does which task next: a pure policy, without clock, threads or Ray.

Workers pull. Tasks come in groups: the shards of a model, or a trial of its own. A worker is given tasks of the group
it already holds while there are any; else it starts on the group with the most tasks left, so that several workers
share one model only at the end. A task whose worker died is redone, at most `attempts` times; one that raised is not: a
user's error does not get better by repeating it.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Hashable, Iterable
from typing import Generic, Protocol, TypeVar

from services.errors import Problem, WorkerError

ATTEMPTS = 3
REMEDY = "look for the out-of-memory killer; lower resources.batch or resources.workers"


class Task(Protocol):
    """What can be handed out; hashable."""

    @property
    def group(self) -> str:
        """Tasks of one group are dropped together."""
        ...

    @property
    def alone(self) -> bool:
        """Whether one worker at a time runs tasks of the group."""
        ...

    @property
    def title(self) -> str:
        """For messages."""
        ...

    def __hash__(self) -> int: ...


T = TypeVar("T", bound=Task)


class Dispatcher(Generic[T]):
    """Hands out tasks and keeps count of what is pending, running and done.

    Args:
        tasks: the work, in the order in which it is preferred.
        attempts: how often a task may kill its worker before it is given up.
        remedy: what to do about a task that does.
    """

    def __init__(self, tasks: Iterable[T], *, attempts: int = ATTEMPTS, remedy: str = REMEDY) -> None:
        self._pending: dict[str, deque[T]] = defaultdict(deque)
        for task in tasks:
            self._pending[task.group].append(task)
        self._attempts, self._remedy = attempts, remedy
        self._deaths: dict[T, int] = defaultdict(int)
        self._running: dict[Hashable, list[T]] = defaultdict(list)
        self._holds: dict[Hashable, str] = {}
        self._dropped: set[str] = set()

    @property
    def finished(self) -> bool:
        """Whether nothing is left to hand out or to come back."""
        return not self.pending and not any(self._running.values())

    @property
    def pending(self) -> int:
        """Tasks that wait for a worker."""
        return sum(len(queue) for queue in self._pending.values())

    def next_for(self, worker: Hashable) -> T | None:
        """The next task for a worker, or None when nothing is left to hand out."""
        group = self._choose(worker)
        if group is None:
            return None
        task = self._pending[group].popleft()
        self._holds[worker] = group
        self._running[worker].append(task)
        return task

    def succeeded(self, worker: Hashable, task: T) -> None:
        """Count a task as done."""
        self._running[worker].remove(task)

    def progressed(self, task: T) -> None:
        """A task got on since its worker last died, so that death counts no more."""
        self._deaths.pop(task, None)

    def failed(self, worker: Hashable, task: T) -> None:
        """Count a task as failed for good and drop what is pending of its group."""
        self._running[worker].remove(task)
        self._drop(task.group)

    def died(self, worker: Hashable) -> list[T]:
        """Put a dead worker's tasks back at the front, but those of a group that was dropped, and return them.

        Only the task it was working on, its oldest, is counted as a suspect.

        Raises:
            WorkerError: that task has killed `attempts` workers; its group is dropped, and the others can go on.
        """
        running = self._running.pop(worker, [])
        lost = [task for task in running if task.group not in self._dropped]
        self._holds.pop(worker, None)
        for task in reversed(lost):
            self._pending[task.group].appendleft(task)
        if lost and lost[0] is running[0]:
            self._suspect(lost[0])
        return lost

    def _suspect(self, task: T) -> None:
        self._deaths[task] += 1
        if self._deaths[task] >= self._attempts:
            self._drop(task.group)
            actual = f"{self._deaths[task]} workers that died on it"
            raise WorkerError(Problem(task.title, "a worker that survives it", actual, self._remedy))

    def _drop(self, group: str) -> None:
        self._dropped.add(group)
        self._pending.pop(group, None)

    def _choose(self, worker: Hashable) -> str | None:
        held = self._holds.get(worker)
        if held is not None and (queue := self._pending.get(held)) and not self._taken(held, queue[0], worker):
            return held
        waiting = [name for name, queue in self._pending.items() if queue and not self._taken(name, queue[0], worker)]
        if not waiting:
            return None
        crowd = Counter(self._holds.values())
        return max(waiting, key=lambda name: (-crowd[name], len(self._pending[name])))

    def _taken(self, group: str, task: T, worker: Hashable) -> bool:
        """Whether another worker runs a task of a group that one at a time may run."""
        others = (running for other, running in self._running.items() if other != worker)
        return task.alone and any(each.group == group for running in others for each in running)
