"""The whole service, started by one script: tokens everywhere, a node that dies in the middle, the same numbers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import requests
import yaml

from deploy.stack import processes
from deploy.stack.layout import Layout, free_ports
from deploy.stack.parts import alive_nodes, variables
from jobs.audit.publish import audit_and_publish
from jobs.fleetfile.reading import validate_fleet
from jobs.schedules.schedule import FiringState
from jobs.schedules.store import Store
from jobs.submission.client import AuditClient
from jobs.submission.ray_jobs import RayJobs
from jobs.submission.signing import KEY_PATH
from jobs.submission.status import State
from jobs.terminal import console
from services.records import Outcome
from tests.deploy.conftest import ROOT, SCRIPT, Stack, script
from tests.deploy.manifests import all_manifests
from tests.listening import others_can_reach

pytestmark = pytest.mark.filterwarnings("default::DeprecationWarning", "default::FutureWarning")


def wait_until(ready: Callable[[], bool], seconds: float = 300.0) -> None:
    end = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < end, "it did not come about in time"
        time.sleep(0.1)


def bearer(layout: Layout) -> dict[str, str]:
    return {"Authorization": f"Bearer {layout.secret('api.token')}"}


def status_of(url: str, **more: Any) -> int:
    return requests.get(url, timeout=60, **more).status_code


def tables(bundle: Path) -> dict[str, pd.DataFrame]:
    """All numbers of an audit, by file."""
    by_name = {
        str(path.relative_to(bundle)): path for part in ("scores", "tables") for path in (bundle / part).iterdir()
    }
    return {name: pd.read_parquet(path) for name, path in sorted(by_name.items())}


def test_nobody_gets_in_without_a_token_or_password(stack: Stack) -> None:
    layout = stack.layout
    nodes, audits = f"{layout.url('dashboard')}/api/v0/nodes", f"{layout.url('api')}/v1/audits"
    search = f"{layout.url('mlflow')}/api/2.0/mlflow/experiments/search?max_results=1"
    ray = {"Authorization": f"Bearer {layout.secret('ray.token')}"}
    login = ("classwise", layout.secret("mlflow-classwise.password"))
    assert [status_of(url) for url in (nodes, audits, search)] == [401, 401, 401]
    assert [status_of(nodes, headers=bearer(layout)), status_of(audits, headers=ray)] == [403, 401]
    assert status_of(nodes, headers=ray) == status_of(audits, headers=bearer(layout)) == 200
    assert status_of(search, auth=login) == 200 and status_of(search, auth=("admin", login[1])) == 401
    users = f"{layout.url('mlflow')}/api/2.0/mlflow/users/get?username=admin"
    assert status_of(users, auth=login) == 403


def test_secrets_are_for_their_owner_and_on_no_command_line(stack: Stack) -> None:
    layout = stack.layout
    private = [layout["env"], layout["settings.yaml"], layout["stack.json"], layout["mlflow"] / "auth.ini"]
    for path in [*private, *layout["secrets"].iterdir(), *layout["run"].iterdir()]:
        assert path.stat().st_mode & 0o777 == 0o600, path
    words = b"".join(path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if _readable(path))
    for path in layout["secrets"].iterdir():
        assert path.read_bytes() not in words, path
        assert len(path.read_text()) >= 48


def test_no_port_of_the_stack_is_open_to_the_network(stack: Stack) -> None:
    """Ray's among them, with those of its metrics, agents and nodes."""
    assert others_can_reach(processes.marked(stack.layout.mark)) == {}


def test_up_says_how_far_it_is(stack: Stack) -> None:
    """Each part when it starts and when it serves, as soon as that is so; the rest is `status`."""
    command = [SCRIPT, "up", "--dir", str(stack.layout.folder)]
    assert stack.script("kill", "scheduler").returncode == 0
    environment = {**os.environ, "PYTHON": sys.executable}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        assert next(lines).split() == ["scheduler", "starts"]
        assert re.fullmatch(r"scheduler +serves after \d+ s\n", next(lines))
        assert next(lines) == "\n" and next(lines).startswith("postgres ")
        assert "logs: " in "".join(lines)
    assert process.returncode == 0


def _readable(path: Path) -> bool:
    try:
        return bool(path.read_bytes())
    except OSError:
        return False


@pytest.mark.slow
def test_a_worker_node_killed_in_mid_audit_changes_no_number(
    stack: Stack, stack_fleet: dict[str, Any], tmp_path: Path
) -> None:
    layout, root = stack.layout, stack.layout.url("api")
    headers = {**bearer(layout), "Content-Type": "application/yaml", "Idempotency-Key": "night"}
    sent = requests.post(f"{root}/v1/audits", data=yaml.safe_dump(stack_fleet), headers=headers, timeout=60)
    assert sent.status_code == 202, sent.text
    audit = f"{root}{sent.json()['links']['self']}"
    wait_until(lambda: len(list(layout["storage"].rglob("cache/scores/**/*.parquet"))) >= 2)
    before = alive_nodes(layout)
    assert stack.script("kill", "worker-2").stdout == "worker-2: killed\n"
    state = requests.get(audit, headers=headers, timeout=60).json()["state"]
    assert state == "running"  # in the middle of it
    wait_until(lambda: requests.get(audit, headers=headers, timeout=60).json()["state"] != "running")
    ended = requests.get(audit, headers=headers, timeout=60).json()
    assert ended["state"] == "finished" and ended["outcome"] != "error", ended

    local = {**stack_fleet, "storage": str(tmp_path), "tracking": {"enabled": False}}
    same = {name: stack_fleet["resources"][name] for name in ("shard", "batch")}  # kernels may add by batch
    local["resources"] = {"runner": "local", "workers": 1, "cpus": 1, **same}
    with console.reporter(quiet=True) as reporter:
        alone = tables(Path(audit_and_publish(validate_fleet(local), reporter).folder))
    there = tables(Path(ended["bundle"]))
    assert list(there) == list(alone) and len(there) == 4
    for name, table in alone.items():
        pd.testing.assert_frame_equal(there[name], table, check_exact=True)

    run = f"{layout.url('mlflow')}/api/2.0/mlflow/runs/get?run_id={ended['run_id']}"
    login = ("classwise", layout.secret("mlflow-classwise.password"))
    output = requests.get(run, auth=login, timeout=60).json()["run"]
    assert output["info"]["status"] == "FINISHED"
    assert {"key": "classwise.submission", "value": ended["id"]} in output["data"]["tags"]

    assert stack.script("status").returncode == 1
    again = stack.script("up")
    assert again.returncode == 0, again.stderr
    assert len(alive_nodes(layout) - before) == 1


@pytest.mark.slow
def test_more_audits_than_run_at_once_wait_their_turn(
    stack: Stack, stack_fleet: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each asks for both workers; without a queue the later ones would find none and give up."""
    monkeypatch.setenv(KEY_PATH, variables(stack.layout)[KEY_PATH])
    layout, fleet = stack.layout, {**stack_fleet, "measures": ["clean"], "tracking": {"enabled": False}}
    client = AuditClient(RayJobs(layout.url("dashboard"), token=layout.secret("ray.token")))
    ids = [client.submit(fleet, key=f"turn {number}").id for number in range(3)]
    states = Counter(client.status(name).state for name in ids)
    assert states[State.RUNNING] <= layout.audits and states[State.QUEUED] >= 1
    last = client.cancel(ids[-1])
    assert last.state is State.STOPPED
    assert {client.wait(name, timeout=300, poll=0.2).outcome for name in ids[:-1]} == {Outcome.PASS}
    assert client.submit(fleet, key="turn 2").state in (State.QUEUED, State.RUNNING)
    assert client.wait(ids[-1], timeout=300, poll=0.2).outcome is Outcome.PASS


@pytest.mark.slow
def test_a_schedule_is_carried_out(stack: Stack, stack_fleet: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text(yaml.safe_dump({**stack_fleet, "measures": ["clean"]}))
    environment = {**os.environ, **variables(stack.layout), "PYTHONPATH": str(ROOT)}

    def classwise(*words: str) -> str:
        command = [sys.executable, "-m", "jobs.cli", "schedule", *words]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    classwise("add", str(file), "--name", "nightly", "--cron", "30 2 * * *", "--zone", "Europe/Berlin")
    classwise("run-now", "nightly")
    store = Store(environment["CLASSWISE_SCHEDULES"])  # asked often, where a command takes seconds
    wait_until(lambda: any(firing.state is FiringState.DONE for firing in store.firings()))
    store.close()
    assert "done, pass" in classwise("history", "nightly")


@pytest.mark.slow
def test_ray_serve_takes_what_the_rayservice_says(stack: Stack, stack_fleet: dict[str, Any]) -> None:
    """As KubeRay does: the manifest's Serve config is put to the dashboard. Nodes share a host here, so one proxy."""
    layout = stack.layout
    (manifest,) = (each for _, each in all_manifests() if each["kind"] == "RayService")
    config = yaml.safe_load(manifest["spec"]["serveConfigV2"])
    (port,) = free_ports(("serve",)).values()
    config["http_options"] = {"host": "127.0.0.1", "port": port}
    config["proxy_location"] = "HeadOnly"
    config["applications"][0]["args"] = {"settings": str(layout["settings.yaml"])}
    url, headers = f"{layout.url('dashboard')}/api/serve/applications/", {}
    headers["Authorization"] = f"Bearer {layout.secret('ray.token')}"
    put = requests.put(url, json=config, headers=headers, timeout=60)
    assert put.status_code == 200, put.text
    root = f"http://127.0.0.1:{port}"
    wait_until(lambda: answers(f"{root}/ready"), 60)
    assert status_of(f"{root}/v1/audits") == 401
    sent = requests.post(f"{root}/v1/audits", json=stack_fleet, headers=bearer(layout), timeout=60)
    assert sent.status_code == 202, sent.text
    cancelled = requests.post(f"{root}{sent.json()['links']['cancel']}", headers=bearer(layout), timeout=60)
    assert cancelled.status_code == 202
    assert requests.delete(url, headers=headers, timeout=60).status_code == 200


def answers(url: str) -> bool:
    try:
        return status_of(url) == 200
    except requests.ConnectionError:
        return False


def test_up_again_starts_nothing_and_down_leaves_nothing(stack: Stack) -> None:
    layout = stack.layout
    before = {path.name: path.read_text() for path in layout["run"].iterdir()}
    assert stack.script("up").returncode == 0
    assert {path.name: path.read_text() for path in layout["run"].iterdir()} == before
    assert processes.marked(layout.mark)
    down = stack.script("down")
    assert down.returncode == 0 and down.stdout.count("ended") == len(before), down.stdout + down.stderr
    assert processes.marked(layout.mark) == [] and not Path(layout.link).is_symlink()
    assert list(layout["run"].iterdir()) == []
    for name in ("postgres", "mlflow", "dashboard", "api"):
        with pytest.raises(requests.ConnectionError):
            requests.get(layout.url(name), timeout=5)


def test_a_process_that_was_not_started_here_is_left_alone(tmp_path: Path) -> None:
    layout = Layout(tmp_path, "a" * 32, "", 1, 1, 1, {})
    (tmp_path / "run").mkdir()
    other = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        record = f'{{"pid": {other.pid}, "started": "1", "boot": "{processes.boot_id()}"}}'
        (tmp_path / "run" / "api.json").write_text(record)
        assert processes.running(layout, "api") is None
        part = processes.Part("api", (), {}, ready=lambda: True)
        assert not processes.stop(layout, part) and not processes.kill(layout, "api")
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("down",), "expected the folder of a stack, found none in"),
        (("up",), "expected the folder of a stack, found"),
        (("kill", "worker-9"), "expected the folder of a stack"),
        (("up", "--workers", "0"), "expected 1 to 64"),
    ],
)
def test_what_is_wrong_is_said(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("mine")
    process = script(*words, "--dir", str(tmp_path))
    assert process.returncode == 2 and said in process.stderr and "Traceback" not in process.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_an_interpreter_without_classwise_is_named(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    environment = {"PATH": os.environ["PATH"], "PYTHON": str(tmp_path / "bare" / "bin" / "python")}
    process = subprocess.run(
        [ROOT / "deploy" / "local-stack.sh", "up"], env=environment, capture_output=True, text=True
    )
    assert (
        process.returncode == 2
        and "lacks ray, mlflow" in process.stderr
        and "classwise[service,server]" in process.stderr
    )


def test_a_process_of_a_stack_ends_with_what_it_started_in_another_session(tmp_path: Path) -> None:
    layout = Layout(tmp_path, "b" * 32, "", 1, 1, 1, {})
    for name in ("run", "logs"):
        (tmp_path / name).mkdir()
    words = ["bash", "-c", "setsid sleep 60 & trap '' TERM; while true; do sleep 0.1; done"]
    part = processes.Part("head", words, dict(os.environ), ready=lambda: True, patience=0.3)
    started = processes.start(layout, part)
    wait_until(lambda: len(processes.marked(layout.mark, "head")) >= 2, 10)
    assert processes.running(layout, "head") == started.pid and processes.marked(layout.mark, "api") == []
    assert processes.stop(layout, part) and started.wait(5) != 0
    assert processes.marked(layout.mark) == [] and not processes.stop(layout, part)
