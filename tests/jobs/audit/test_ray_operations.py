"""An audit on a real Ray, watched from outside: its metrics at the export port, and what its workers log."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from prometheus_client.parser import text_string_to_metric_families

from jobs.audit.audit import run_audit
from jobs.audit.session import runner_for
from jobs.fleetfile.reading import validate_fleet
from jobs.terminal.progress import Quiet
from jobs.upkeep import remote
from jobs.upkeep.findings import CheckContext
from services.records import AuditResult
from services.running.cluster import RayRunner
from services.telemetry import counters, logs
from services.telemetry.logs import LogSetting
from services.training.architectures import small_cnn
from services.training.epochs.checkpoints import load_weights
from tests.ports import free_port
from tests.scoring import kserve, of_network

pytestmark = [
    pytest.mark.filterwarnings("default::DeprecationWarning"),
    pytest.mark.filterwarnings("default::FutureWarning"),
    pytest.mark.filterwarnings("default::ResourceWarning"),
    pytest.mark.filterwarnings("default::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def meter(monkeypatch: pytest.MonkeyPatch) -> counters.Meter:
    """A meter that nothing was counted in yet."""
    fresh = counters.Meter()
    monkeypatch.setattr(counters, "METER", fresh)
    return fresh


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """A local Ray; yields the address of its metrics."""
    port = free_port()
    told_soon = {"metrics_report_interval_ms": 500}
    quiet: dict[str, Any] = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
    ray.init(num_cpus=2, _metrics_export_port=port, _system_config=told_soon, **quiet)
    yield f"http://{ray.nodes()[0]['NodeManagerAddress']}:{port}/metrics"
    ray.shutdown()


def summed(text: str, metric: str, **labels: str) -> float:
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == metric and all(sample.labels.get(key) == value for key, value in labels.items())
    )


def scraped(address: str, fleet: str, audits: int) -> str:
    """The metrics, once so many audits of the fleet are told."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        with urllib.request.urlopen(address, timeout=5) as answer:
            text: str = answer.read().decode()
        if summed(text, "ray_classwise_audits_total", fleet=fleet) == audits:
            return text
        time.sleep(0.25)
    raise AssertionError("the metrics did not arrive")


class Kills(Quiet):
    """Kills the first worker when the stage begins."""

    runner: RayRunner

    def __init__(self) -> None:
        self.killed = False

    def done(self, receipt: Any) -> None:
        if receipt.task.kind == "logits" and not self.killed:
            self.killed = True
            actor = self.runner.slots[0].actor
            os.kill(ray.get(actor.__ray_call__.remote(lambda worker: os.getpid())), signal.SIGKILL)


def test_the_scraped_numbers_are_those_of_the_audit(
    cluster: str, digits_fleet: dict[str, Any], meter: counters.Meter, tmp_path: Path
) -> None:
    digits_fleet |= {"fleet": "metered", "resources": {"workers": 1, "shard": 100, "batch": 50}}
    digits_fleet["models"] = digits_fleet["models"][:2]
    fleet, kills = validate_fleet(digits_fleet), Kills()

    def runner() -> Any:
        kills.runner = runner_for(fleet.config)  # type: ignore[assignment]
        return kills.runner

    logs.configure(LogSetting("json", "debug"))
    try:
        first = run_audit(fleet, kills, runner=runner).result
    finally:
        logs.reset()
    text, count = scraped(cluster, "metered", 1), first.samples.count
    mine = {"fleet": "metered"}
    assert summed(text, "ray_classwise_forwards_total", **mine) == sum(model.forwards for model in first.models)
    assert summed(text, "ray_classwise_images_total", kind="logits", **mine) == 2 * count
    assert summed(text, "ray_classwise_shards_total", kind="logits", outcome="done", **mine) == 2 * -(-count // 100)
    assert summed(text, "ray_classwise_shard_seconds_count", kind="logits", **mine) == 2 * -(-count // 100)
    assert summed(text, "ray_classwise_cache_images_total", stage="measures", result="miss", **mine) == 4 * count
    assert summed(text, "ray_classwise_worker_deaths_total", **mine) == 1
    assert 1 <= summed(text, "ray_classwise_shards_total", kind="logits", outcome="redone", **mine) <= 2
    assert [summed(text, f"ray_classwise_{level}", **mine) for level in ("workers", "queue_shards")] == [0, 0]
    assert "model" not in {
        key
        for f in text_string_to_metric_families(text)
        if "cache" in f.name and "classwise" in f.name
        for sample in f.samples
        for key in sample.labels
    }
    here = meter.text().decode()
    names = ("classwise_forwards_total", "classwise_images_total", "classwise_worker_seconds_total")
    assert [summed(here, name) for name in names] == pytest.approx([summed(text, f"ray_{n}", **mine) for n in names])
    _workers_logged(first)


def _workers_logged(result: AuditResult) -> None:
    """Each worker's own log has lines with the audit's id."""
    session = Path(ray.nodes()[0]["ObjectStoreSocketName"]).parents[1] / "logs"
    lines = [
        json.loads(line)
        for path in session.glob("worker-*.err")
        for line in path.read_text().splitlines()
        if line.startswith("{")
    ]
    ours = [line for line in lines if line["logger"] == "classwise.worker"]
    assert {line["audit_id"] for line in ours} == {result.audit_id}
    assert {line["model"] for line in ours} == {model.spec.name for model in result.models}
    assert {"preflight", "logits"} <= {line["stage"] for line in ours}


def test_a_black_box_is_asked_by_one_worker_at_a_time_with_its_token(
    cluster: str, digits_fleet: dict[str, Any], digit_weights: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VENDOR_TOKEN", "s3cret-enough")
    network = small_cnn(width=8)
    network.load_state_dict(load_weights(digit_weights["good"]))
    with kserve(of_network(network.eval()), token="s3cret-enough", seconds=0.02) as served:
        uri = f"{served.uri}?token_env=VENDOR_TOKEN&concurrency=2&batch=5"
        digits_fleet |= {"models": [{"name": "vendor", "uri": uri}], "measures": ["clean"]}
        digits_fleet |= {"samples": {"uri": "sklearn:digits?split=test", "limit": 200}}
        digits_fleet["resources"] = {"workers": 2, "shard": 25, "batch": 25}
        result = run_audit(validate_fleet(digits_fleet), Quiet()).result
        assert result.models[0].forwards >= 200
        assert served.most_busy == 2


def test_the_doctor_joins_the_cluster_and_finds_its_versions_equal(cluster: str) -> None:
    address = ray.get_runtime_context().gcs_address
    around = CheckContext(None, dict(os.environ), "runs", address=address)
    (result,) = remote.ray_cluster(around)
    assert (result.level, "2 CPU" in result.found) == ("ok", True), result


def test_a_second_audit_is_all_hits(digits_fleet: dict[str, Any], meter: counters.Meter) -> None:
    digits_fleet["models"] = digits_fleet["models"][:1]
    fleet = validate_fleet(digits_fleet)
    count = run_audit(fleet, Quiet()).result.samples.count
    assert summed(meter.text().decode(), "classwise_cache_images_total", result="hit") == 0
    run_audit(fleet, Quiet())
    text = meter.text().decode()
    assert summed(text, "classwise_cache_images_total", result="hit", stage="logits") == count
    assert summed(text, "classwise_cache_images_total", result="hit", stage="measures") == 2 * count
    assert summed(text, "classwise_forwards_total", model="good") > 0
    assert summed(text, "classwise_audits_total", fleet="digits", outcome="pass") == 2
