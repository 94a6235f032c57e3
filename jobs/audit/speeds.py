"""What tasks cost: predicted from the speed that preflight measured of each model, and corrected by what they took."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from services.measures.catalogue import MEASURES
from services.measures.measure import BACKWARD, Measure
from services.records import Receipt, ShardTask

SPEED = "speed"
"""What preflight says of a machine and not of a model: kept for the costs, and no part of the bundle."""
SMALL = 1e-5
"""Seconds a sample of what runs no network."""
UNKNOWN = 1e-3
"""Seconds a forward pass of a network whose speed nobody measured."""


@dataclass(frozen=True)
class Speed:
    """Seconds an image: of a forward pass, of one with the gradient of the image, and of a sort of its values.

    And how many values it has. None where not measured.
    """

    forward: float | None = None
    gradient: float | None = None
    sort: float | None = None
    values: int | None = None

    @classmethod
    def of(cls, known: Any) -> Speed:
        """From the facts of a preflight."""
        known = known if isinstance(known, dict) else {}
        return cls(known.get("forward"), known.get("gradient"), known.get("sort"), known.get("values"))

    def seconds(self, measure: Measure | None) -> float:
        """Seconds a sample that no attack breaks; of the logits themselves for None."""
        forward = self.forward or UNKNOWN
        if measure is None:
            return forward
        if measure.needs == "logits":
            return SMALL
        unit = self.gradient / BACKWARD if measure.gradients and self.gradient else forward
        own = measure.most_sorts * (self.sort or 0.0) + measure.own_seconds(self.values or 0)
        return measure.most_passes * unit + own


def predicted(task: ShardTask, speeds: Mapping[str, Speed]) -> float:
    """Seconds of a worker: an upper bound for attacks, which leave broken samples alone."""
    speed, rows = speeds.get(task.model.name, Speed()), max(1, task.stop - task.start)
    if task.kind in ("logits", "preflight"):
        return rows * speed.seconds(None)
    if task.kind == "measure" and task.stop > task.start:
        return rows * speed.seconds(_measure(task.measure)) + SMALL
    if task.kind == "probe":
        return rows * 10 * speed.seconds(None)
    return rows * SMALL


@lru_cache(maxsize=256)
def _measure(text: str) -> Measure:
    fields = json.loads(text)
    known = {name: value for name, value in fields.items() if name not in ("version", "layout", "content")}
    return MEASURES.get(fields["name"]).model_validate(known)


class Remaining:
    """How much of a stage is left.

    Each kind of task, a model's tasks of one measure, has a ratio of actual to predicted seconds: its own, that of the
    measure on other models, or that of all so far, in which a task of its own as predicted counts too: what took no
    time says nothing of what takes minutes.

    Args:
        cost: predicted seconds of a task.
        now: when the stage began.
        workers: that work at once, until receipts show how many do.
    """

    def __init__(
        self, tasks: Iterable[ShardTask], cost: Callable[[ShardTask], float], now: float, workers: int = 1
    ) -> None:
        self._cost, self._began = cost, now
        self._left: dict[tuple[str, str], float] = defaultdict(float)
        self._seen: dict[tuple[str, str], tuple[float, float]] = {}
        self._one: dict[tuple[str, str], float] = {}
        self._tasks, self._actual = 0, 0.0
        for task in tasks:
            self._left[_kind(task)] += cost(task)
            self._one.setdefault(_kind(task), cost(task))
            self._tasks += 1
        self._known = now, 0.0, sum(self._left.values()) / max(workers, 1)

    def done(self, receipt: Receipt, now: float) -> tuple[float, float]:
        """Count a receipt; the share of the work that is done, and the seconds left."""
        kind, cost = _kind(receipt.task), self._cost(receipt.task)
        self._left[kind] = max(0.0, self._left[kind] - cost)
        took, expected = self._seen.get(kind, (0.0, 0.0))
        self._seen[kind] = took + receipt.seconds, expected + cost
        self._actual += receipt.seconds
        left = sum(rest * self._ratio(kind) for kind, rest in self._left.items() if rest > 0.0)
        workers = self._actual / max(now - self._began, 1e-9)
        whole = self._actual + left
        self._known = now, self._actual / whole if whole else 1.0, left / max(workers, 1e-9)
        self._tasks -= 1
        return self._known[1:]

    def dropped(self, task: ShardTask) -> None:
        """Count a task that failed: nothing of it is left, and it says nothing of how long others take."""
        self._left[_kind(task)] = max(0.0, self._left[_kind(task)] - self._cost(task))
        self._tasks -= 1

    def at(self, now: float) -> tuple[float, float]:
        """The same between two receipts: time passes, but no further than to where the next task should end.

        Before the first one what is left is as predicted.
        """
        then, share, left = self._known
        passed = min(now - then, left / max(self._tasks, 1))
        return (share + (1 - share) * passed / left, left - passed) if left > 0 else (share, left)

    def _ratio(self, kind: tuple[str, str]) -> float:
        own = self._seen.get(kind)
        alike = [seen for (_, measure), seen in self._seen.items() if measure == kind[1]]
        chosen = [own] if own else alike or [*self._seen.values(), (self._one[kind], self._one[kind])]
        took, expected = (sum(part) for part in zip(*chosen, strict=True))
        return took / expected if expected else 1.0


def _kind(task: ShardTask) -> tuple[str, str]:
    return task.model.name, f"{task.kind} {task.measure}"


def scouts_first(tasks: list[ShardTask]) -> list[list[ShardTask]]:
    """One task of each kind before the others, where there are many: what it takes says what the others will."""
    seen: set[tuple[str, str]] = set()
    first: list[ShardTask] = []
    rest: list[ShardTask] = []
    for task in tasks:
        (rest if _kind(task) in seen else first).append(task)
        seen.add(_kind(task))
    return [first, rest] if first and len(rest) >= 4 * len(first) else [tasks]
