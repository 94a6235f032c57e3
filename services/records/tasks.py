"""What a worker is asked to do, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from services.records.specs import ModelSpec, SampleSpec


@dataclass(frozen=True, slots=True)
class ShardTask:
    """One piece of work: rows [start, stop) of the samples, one model, one measure.

    Attributes:
        kind: "preflight" (one batch, start and stop unused), "logits" (forward passes to a logits shard), "derive" (a
            measure over a finished logits shard), "measure" (a measure that runs the network), "calibrate" (per-class
            sums over temperatures from a logits shard), "picture" (a measure's file for people, to `target`), "probe"
            (cheap attacks on samples that the payload lists), "transfer" (adversarials of other models), "gallery"
            (pictures of an attack on samples that the payload lists), "embedding" (what goes into the last layer).
        measure: canonical parameters of the measure (its JSON), or "".
        source: path of the logits shard for "derive" and "calibrate".
        target: path of the Parquet shard to write, or "".
        batch: largest batch; halved by the worker when memory runs out.
        payload: further JSON that the kind needs (temperatures, activation). Of "measure": `rows` lists the rows in
            place of the range; `kept` lists shards of picked rows, whose rows are taken over and not measured again.
        digest: the model's fingerprint when the audit began. A worker refuses to run another model under that name:
            its numbers would enter the cache as those of this one. "" is not compared.
    """

    kind: Literal[
        "preflight", "logits", "derive", "measure", "calibrate", "picture", "probe", "transfer", "gallery", "embedding"
    ]
    model: ModelSpec
    samples: SampleSpec
    start: int
    stop: int
    seed: int
    batch: int
    measure: str = ""
    source: str = ""
    target: str = ""
    payload: str = ""
    digest: str = ""

    @property
    def group(self) -> str:
        """Tasks that are dropped together when one of them fails: those of a model."""
        return self.model.name

    @property
    def alone(self) -> bool:
        """Whether one worker at a time runs its group: so a remote model's rate and budget hold for all workers."""
        return self.model.remote

    @property
    def title(self) -> str:
        """For messages."""
        rows = f", rows {self.start} to {self.stop}" if self.stop else ""
        return f"{self.model.name}, {self.kind}{rows}"


@dataclass(frozen=True)
class Receipt:
    """What a worker returns for a task: counts, sums and small vectors, never logits.

    Attributes:
        task: the task done.
        rows: samples handled.
        forwards: images passed through the network, backward passes not counted.
        seconds: wall time on the worker.
        facts: small JSON-able findings (preflight facts, counters, notes).
        arrays: small vectors by name (calibration sums).
    """

    task: ShardTask
    rows: int
    forwards: int
    seconds: float
    facts: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, Any] = field(default_factory=dict)


T = TypeVar("T")


@dataclass(frozen=True)
class TaskFailure(Generic[T]):
    """A task that raised: its problems, as (where, expected, found, remedy). Other tasks of its group are dropped."""

    task: T
    problems: tuple[tuple[str, str, str, str], ...]
