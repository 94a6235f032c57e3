"""Ray's own metrics as a mirror of `services.telemetry.counters`: each node exports them, as ``ray_classwise_...``.

Ray reports every ten seconds and once more when a driver leaves, so nothing that was counted is lost. Each driver is a
series of its own (label ``WorkerId``): sum over it. Of a histogram Ray reports true buckets and makes up the sum
from their middles: the exact sum of seconds is a counter of its own.
"""

from __future__ import annotations

from typing import Any

from ray.util.metrics import Counter, Gauge, Histogram

from services.telemetry.counters import Labels, Metric

_MADE: dict[str, Any] = {}
"""Ray keeps one metric a name and process; making it again only warns."""


class RayMirror:
    """Counts in Ray's metrics."""

    def count(self, metric: Metric, labels: Labels, value: float) -> None:
        """Add, set, or observe."""
        made = _made(metric)
        if metric.kind == "counter":
            if value > 0:  # Ray refuses to add nothing
                made.inc(value, tags=labels)
        elif metric.kind == "gauge":
            made.set(value, tags=labels)
        else:
            made.observe(value, tags=labels)


def _made(metric: Metric) -> Any:
    if metric.name not in _MADE:
        if metric.kind == "counter":
            _MADE[metric.name] = Counter(metric.name, metric.description, metric.labels)
        elif metric.kind == "gauge":
            _MADE[metric.name] = Gauge(metric.name, metric.description, metric.labels)
        else:
            _MADE[metric.name] = Histogram(metric.name, metric.description, list(metric.buckets), metric.labels)
    return _MADE[metric.name]
