"""What an audit counts while it runs, for Prometheus: one list of metrics, kept in this process and mirrored elsewhere.

The driver is the only one that counts, from receipts, so that a redone shard is counted once as done. Labels are
bounded: fleet, model (at most `MODELS` names a process), kind of shard, outcome; never a sample, a path or a message.
`services.running.ray_metrics` mirrors every count into Ray's own metrics while a pool of Ray actors is open.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from services.records import Receipt, ShardTask
from services.telemetry import logs

MODELS = 500
"""Names of models that become label values; further ones are counted together."""
OTHER = "other models"


@dataclass(frozen=True)
class Metric:
    """One metric; a counter's exported name ends in ``_total``."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    description: str
    labels: tuple[str, ...]
    buckets: tuple[float, ...] = ()


SHARDS = Metric("classwise_shards", "counter", "Shards by how they ended.", ("fleet", "model", "kind", "outcome"))
IMAGES = Metric("classwise_images", "counter", "Images of finished shards.", ("fleet", "model", "kind"))
FORWARDS = Metric("classwise_forwards", "counter", "Images passed through networks.", ("fleet", "model"))
SECONDS = Metric(
    "classwise_shard_seconds",
    "histogram",
    "Wall time of a shard on its worker.",
    ("fleet", "kind"),
    (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1200.0),
)
WORK = Metric("classwise_worker_seconds", "counter", "Wall time of finished shards.", ("fleet", "model", "kind"))
HALVINGS = Metric("classwise_batch_halvings", "counter", "Batches halved for want of memory.", ("fleet", "model"))
CACHED = Metric("classwise_cache_images", "counter", "Images by hit or miss.", ("fleet", "stage", "result"))
DEATHS = Metric("classwise_worker_deaths", "counter", "Workers that died or whose result was lost.", ("fleet",))
QUEUE = Metric("classwise_queue_shards", "gauge", "Shards that wait for a worker.", ("fleet",))
RUNNING = Metric("classwise_running_shards", "gauge", "Shards that workers hold.", ("fleet",))
WORKERS = Metric("classwise_workers", "gauge", "Workers that are ready.", ("fleet",))
AUDITS = Metric("classwise_audits", "counter", "Audits by outcome.", ("fleet", "outcome"))
AUDIT_SECONDS = Metric("classwise_audit_seconds", "gauge", "Wall time of the last audit.", ("fleet",))

Labels = dict[str, str]


class Mirror(Protocol):
    """Hears every count as well."""

    def count(self, metric: Metric, labels: Labels, value: float) -> None:
        """Add to a counter, set a gauge, or observe a histogram's value."""
        ...


class Meter:
    """Metrics of this process, and of what mirrors them."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._known: dict[str, Any] = {}
        self._models: set[str] = set()
        self._mirrors: list[Mirror] = []
        self._lock = threading.Lock()

    def count(self, metric: Metric, value: float = 1.0, **labels: str) -> None:
        """Add to a counter, set a gauge, or observe a histogram's value. The fleet is that of the running audit."""
        known = {"fleet": logs.context().get("fleet", ""), **labels}
        labels = {name: self._bounded(name, known[name]) for name in metric.labels}
        made = self._made(metric).labels(**labels) if labels else self._made(metric)
        _ACTIONS[metric.kind](made)(value)
        for mirror in self._mirrors:
            mirror.count(metric, labels, value)

    def text(self) -> bytes:
        """All of it in Prometheus's text format."""
        return generate_latest(self.registry)

    @contextmanager
    def mirrored(self, mirror: Mirror) -> Iterator[None]:
        """Counts inside the block reach the mirror too."""
        self._mirrors.append(mirror)
        try:
            yield
        finally:
            self._mirrors.remove(mirror)

    def _made(self, metric: Metric) -> Any:
        with self._lock:
            if metric.name not in self._known:
                more = {"buckets": metric.buckets} if metric.buckets else {}
                kind = _KINDS[metric.kind]
                self._known[metric.name] = kind(
                    metric.name, metric.description, metric.labels, registry=self.registry, **more
                )
            return self._known[metric.name]

    def _bounded(self, label: str, value: str) -> str:
        if label != "model" or value in self._models:
            return value
        if len(self._models) >= MODELS:
            return OTHER
        self._models.add(value)
        return value


_KINDS: dict[str, Callable[..., Any]] = {"counter": Counter, "gauge": Gauge, "histogram": Histogram}
_ACTIONS: dict[str, Callable[[Any], Callable[[float], None]]] = {
    "counter": lambda made: made.inc,
    "gauge": lambda made: made.set,
    "histogram": lambda made: made.observe,
}

METER = Meter()
"""This process's."""


def shard_done(receipt: Receipt) -> None:
    """Count a finished shard."""
    task = receipt.task
    model = task.model.name
    METER.count(SHARDS, model=model, kind=task.kind, outcome="done")
    METER.count(IMAGES, receipt.rows, model=model, kind=task.kind)
    METER.count(FORWARDS, receipt.forwards, model=model)
    METER.count(WORK, receipt.seconds, model=model, kind=task.kind)
    METER.count(SECONDS, receipt.seconds, kind=task.kind)
    if halvings := int(receipt.facts.get("halvings", 0)):
        METER.count(HALVINGS, halvings, model=model)


def shard_ended(task: ShardTask, outcome: Literal["failed", "redone"]) -> None:
    """Count a shard that failed, or that has to be done again."""
    METER.count(SHARDS, model=task.model.name, kind=task.kind, outcome=outcome)


def cache_used(stage: str, hit: int, missed: int) -> None:
    """Count images whose results were in the cache, and those whose were not."""
    METER.count(CACHED, hit, stage=stage, result="hit")
    METER.count(CACHED, missed, stage=stage, result="miss")
