"""Alerts and the dashboard ask for metrics that there are, and a real Prometheus scrapes and evaluates them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml
from prometheus_client.parser import text_string_to_metric_families

from deploy.stack.layout import Layout
from services.telemetry import counters
from tests.deploy.manifests import documents
from tests.deploy.started import STARTS, TOKEN, serving
from tests.ports import free_port

pytestmark = pytest.mark.filterwarnings("default::DeprecationWarning", "default::FutureWarning")

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
RULES = DEPLOY / "monitoring" / "rules.yaml"
DASHBOARD = json.loads((DEPLOY / "monitoring" / "dashboard.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
ALERTS = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
EXPRESSIONS = [rule["expr"] for rule in ALERTS] + [each["expr"] for panel in PANELS for each in panel["targets"]]


@pytest.fixture(scope="module")
def scraped(backends: Layout, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The API of the local stack, without Ray."""
    home, port = tmp_path_factory.mktemp("api"), free_port()
    start = STARTS["stack"](backends, home, port)
    with serving(start, home, port, cwd=home) as address:
        yield address


def of_the_api(address: str) -> dict[str, float]:
    """Values by the name of a sample, of those without labels; all names."""
    text = requests.get(f"http://{address}/metrics", headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60).text
    return {sample.name: sample.value for family in text_string_to_metric_families(text) for sample in family.samples}


def test_every_metric_that_is_asked_for_there_is(scraped: str) -> None:
    requests.get(f"http://{scraped}/v1/audits", headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60)
    there = set(of_the_api(scraped))
    workers = [each for each in vars(counters).values() if isinstance(each, counters.Metric)]
    there |= {f"ray_{each.name}{'_total' * (each.kind == 'counter')}" for each in workers}
    named = set(re.findall(r"\b(?:ray_)?classwise_[a-z_]+", " ".join(EXPRESSIONS)))
    assert len(named) > 12 and named <= there, named - there


def test_without_ray_and_with_a_finished_audit_the_gauges_say_so(scraped: str) -> None:
    values = of_the_api(scraped)
    assert values["classwise_storage_up"] == 1 and values["classwise_job_server_up"] == 0
    assert values["classwise_uploads_waiting"] == values["classwise_queue_audits"] == 0
    assert values["classwise_schedules_faulty"] == values["classwise_firings_lost_a_day"] == 0


def test_the_operators_rules_are_prometheuss_own() -> None:
    (rule,) = (
        each for each in documents(DEPLOY / "kubernetes" / "monitoring.yaml") if each["kind"] == "PrometheusRule"
    )
    assert rule["spec"] == yaml.safe_load(RULES.read_text())


def test_an_alert_says_how_bad_it_is_and_what_to_do() -> None:
    assert {rule["alert"] for rule in ALERTS} >= {
        "ClasswiseSchedulerSilent",
        "ClasswiseFiringLost",
        "ClasswiseQueueOld",
        "ClasswiseStorageFailing",
        "ClasswiseUploadsWaiting",
        "ClasswiseAuditPastDeadline",
    }
    for rule in ALERTS:
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert set(rule["annotations"]) == {"summary", "description"} and len(rule["annotations"]["description"]) > 20


def test_panels_have_places_and_sources_of_their_own() -> None:
    assert DASHBOARD["schemaVersion"] >= 36 and DASHBOARD["uid"] == "classwise"
    assert [each["type"] for each in DASHBOARD["templating"]["list"]] == ["datasource"]
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken and place["x"] + place["w"] <= 24, panel["title"]
        taken |= cells
    for panel in PANELS:
        assert panel["type"] in ("stat", "timeseries") and panel["title"]
        assert {each["datasource"]["uid"] for each in panel["targets"]} == {"${datasource}"}
        assert len({each["refId"] for each in panel["targets"]}) == len(panel["targets"])


def test_grafanas_own_types_take_the_dashboard() -> None:
    sdk = pytest.importorskip(
        "grafana_foundation_sdk.models.dashboard", reason="grafana-foundation-sdk is not installed"
    )
    read: Any = sdk.Dashboard.from_json(DASHBOARD)
    assert len(read.panels) == len(DASHBOARD["panels"])
    assert [panel.title for panel in read.panels] == [panel["title"] for panel in DASHBOARD["panels"]]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_takes_every_expression_and_each_alert_fires_when_it_should(tmp_path: Path) -> None:
    shutil.copy(RULES, tmp_path / "rules.yaml")
    shutil.copy(Path(__file__).parent / "rules_test.yaml", tmp_path / "rules_test.yaml")
    recorded = [{"record": f"panel:{number}", "expr": expression} for number, expression in enumerate(EXPRESSIONS)]
    panels = {"groups": [{"name": "panels", "rules": recorded}]}
    (tmp_path / "panels.yaml").write_text(yaml.safe_dump(panels))
    for words in (("check", "rules", "rules.yaml", "panels.yaml"), ("test", "rules", "rules_test.yaml")):
        process = subprocess.run(["promtool", *words], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert process.returncode == 0 and "SUCCESS" in process.stdout, process.stdout + process.stderr


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="Prometheus is not installed")
def test_a_real_prometheus_scrapes_the_api_and_evaluates_the_rules(scraped: str, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    job = {"job_name": "classwise", "authorization": {"credentials_file": str(token)}}
    job |= {"static_configs": [{"targets": [scraped]}]}
    config = {"global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "rule_files": [str(RULES)]}
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump({**config, "scrape_configs": [job]}))
    port = free_port()
    words = ["prometheus", f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data"]
    with (tmp_path / "log").open("w") as output:
        process = subprocess.Popen(
            [*words, f"--web.listen-address=127.0.0.1:{port}"], stdout=output, stderr=output, env=dict(os.environ)
        )
    try:
        rules = _until(f"http://127.0.0.1:{port}/api/v1/rules", _all_evaluated, tmp_path / "log")
        assert {rule["health"] for group in rules["groups"] for rule in group["rules"]} == {"ok"}
        states = {rule["name"]: rule["state"] for group in rules["groups"] for rule in group["rules"]}
        assert states["ClasswiseJobServerDown"] == "pending"  # there is no Ray here
        assert states["ClasswiseStorageFailing"] == states["ClasswiseApiDown"] == "inactive"
        found = requests.get(
            f"http://127.0.0.1:{port}/api/v1/query", params={"query": 'up{job="classwise"}'}, timeout=10
        ).json()["data"]["result"]
        assert [each["value"][1] for each in found] == ["1"]
    finally:
        process.terminate()
        process.wait(30)


def _all_evaluated(data: dict[str, Any]) -> bool:
    rules = [rule for group in data["groups"] for rule in group["rules"]]
    states = {rule["name"]: rule["state"] for rule in rules}
    return (
        bool(rules) and states.get("ClasswiseJobServerDown") == "pending" and states["ClasswiseApiDown"] == "inactive"
    )


def _until(url: str, ready: Any, log: Path) -> dict[str, Any]:
    end = time.monotonic() + 60
    while True:
        try:
            data: dict[str, Any] = requests.get(url, timeout=5).json()["data"]
            if ready(data):
                return data
        except (requests.RequestException, ValueError, KeyError):
            pass
        assert time.monotonic() < end, log.read_text()[-3000:]
        time.sleep(0.5)
