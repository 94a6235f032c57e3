"""Counting: bounded labels, and a mirror that hears the same."""

from __future__ import annotations

from services.telemetry import counters, logs
from services.telemetry.counters import Labels, Meter, Metric


class Hears:
    def __init__(self) -> None:
        self.calls: list[tuple[str, Labels, float]] = []

    def count(self, metric: Metric, labels: Labels, value: float) -> None:
        self.calls.append((metric.name, labels, value))


def test_ten_thousand_models_are_a_bounded_number_of_series() -> None:
    meter = Meter()
    for index in range(10_000):
        meter.count(counters.FORWARDS, 2, model=f"m{index}")
    series = [line for line in meter.text().decode().splitlines() if line.startswith("classwise_forwards_total{")]
    assert len(series) == counters.MODELS + 1
    assert f'{{fleet="",model="{counters.OTHER}"}} {2.0 * (10_000 - counters.MODELS)}' in "\n".join(series)


def test_the_fleet_is_that_of_the_running_audit_and_a_mirror_hears_it() -> None:
    meter, hears = Meter(), Hears()
    with logs.about(fleet="signs"):
        with meter.mirrored(hears):
            meter.count(counters.QUEUE, 7)
        meter.count(counters.QUEUE, 3)
    assert hears.calls == [("classwise_queue_shards", {"fleet": "signs"}, 7)]
    assert 'classwise_queue_shards{fleet="signs"} 3.0' in meter.text().decode()


def test_no_metric_has_a_label_without_bounds() -> None:
    metrics = [value for value in vars(counters).values() if isinstance(value, Metric)]
    assert len(metrics) > 10
    labels = {label for metric in metrics for label in metric.labels}
    assert labels == {"fleet", "model", "kind", "stage", "outcome", "result"}
