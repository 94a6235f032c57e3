"""Submission to a real Ray cluster through its job server, with a token."""

from __future__ import annotations

import http.server
import json
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from jobs.submission.client import AuditClient
from jobs.submission.ray_jobs import RayJobs, token_of
from jobs.submission.signing import KEY
from jobs.submission.status import State
from services.errors import ServiceError, UnknownAudit
from services.records import Outcome
from tests.ports import free_port

from .cluster import ROOT, Cluster, cluster, environment, leftovers
from .helpers import gated, modified, shards, wait_until

pytestmark = pytest.mark.filterwarnings("default::DeprecationWarning", "default::FutureWarning")


@pytest.fixture(scope="module")
def ray_head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with pytest.MonkeyPatch.context() as patch:  # what audits run is signed, on the head and by every submitter
        patch.setenv(KEY, "a-key-of-the-tests-and-of-nothing-else")
        with cluster(tmp_path_factory.mktemp("ray") / "log") as head:
            yield head


@pytest.fixture
def client(ray_head: Cluster) -> AuditClient:
    return AuditClient(RayJobs(ray_head.address, token=ray_head.token))


def on_ray(fleet: dict[str, Any]) -> dict[str, Any]:
    """The fleet on the cluster's own workers."""
    return {**fleet, "resources": {**fleet["resources"], "runner": "ray"}}


def command(*words: str, **variables: str) -> tuple[list[str], dict[str, str]]:
    return [sys.executable, "-m", "jobs.cli", *words], {**environment(), **variables}


@pytest.mark.slow
def test_one_submission_many_submitters_and_an_mlflow_run_at_its_end(
    client: AuditClient, ray_head: Cluster, quick_fleet: dict[str, Any], migrated_store: Any, tmp_path: Path
) -> None:
    fleet = gated(quick_fleet, 0.9999)
    fleet["tracking"] = {"enabled": True, "figures": False, "uri": migrated_store(tmp_path)}
    with ThreadPoolExecutor(3) as pool:
        ids = {status.id for status in pool.map(lambda _: client.submit(fleet, key="night"), range(3))}
    (name,) = ids
    ended = client.wait(name, timeout=90, poll=0.2)
    assert (ended.state, ended.outcome, ended.exit_code) == (State.FINISHED, Outcome.FAIL, 1)
    assert client.submit(fleet, key="night") == ended
    assert client.result(name).audit_id == ended.audit_id
    assert "digits: fail" in client.logs(name)

    from mlflow import MlflowClient

    run = MlflowClient(ended.tracking_uri).get_run(ended.run_id)
    assert run.data.tags["classwise.submission"] == name
    assert run.data.tags["classwise.audit_id"] == ended.audit_id
    (listed,) = [status for status in client.list("digits") if status.id == name]
    assert (listed.key, listed.folder, listed.run_id) == ("night", ended.folder, ended.run_id)

    (tmp_path / "fleet.yaml").write_text(yaml.safe_dump(fleet))
    words, variables = command("submit", str(tmp_path / "fleet.yaml"), "--key", "night", "--wait", "--json")
    process = subprocess.run([*words, "--address", ray_head.address], env=variables, capture_output=True, check=False)
    assert (process.returncode, json.loads(process.stdout)["id"]) == (1, name)


@pytest.mark.slow
def test_stop_keeps_shards_and_gives_the_workers_back(
    client: AuditClient, slow_fleet: dict[str, Any], tmp_path: Path
) -> None:
    fleet = on_ray(slow_fleet)
    name = client.submit(fleet).id
    wait_until(lambda: len(shards(tmp_path / "runs")) >= 1, 90)
    stopped = client.cancel(name)
    assert (stopped.state, stopped.exit_code) == (State.STOPPED, 130)
    assert "run the same command to resume" in str(stopped.problems[0])
    kept = modified(shards(tmp_path / "runs"))
    again = client.submit(fleet)
    assert again.id == name and again.attempt != stopped.attempt
    assert (stopped.job, again.job) == (name, f"{name}.2")
    assert client.active() == {name}
    wait_until(lambda: len(shards(tmp_path / "runs")) > len(kept), 90)
    assert modified(list(kept)) == kept

    _kill_driver(Path(again.folder))
    crashed = client.wait(name, timeout=60, poll=0.2)
    assert (crashed.state, crashed.outcome, crashed.exit_code) == (State.CRASHED, None, 4)
    assert "exit code" in crashed.message


def _kill_driver(folder: Path) -> None:
    """SIGKILL to the process that audits this folder."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if str(folder).encode() in words and b"jobs.submission.submitted" in words:
                os.kill(int(entry.name), signal.SIGKILL)


@pytest.mark.slow
def test_the_command_line_submits_follows_and_stops(
    ray_head: Cluster, slow_fleet: dict[str, Any], tmp_path: Path
) -> None:
    """The attack would take minutes: it is stopped, however long the commands take to start."""
    slow_fleet["measures"][0]["steps"] = 1500
    file = tmp_path / "fleet.yaml"
    file.write_text(yaml.safe_dump(slow_fleet))
    words, variables = command("submit", str(file), "--address", ray_head.address, "--json")
    body = json.loads(subprocess.run(words, env=variables, capture_output=True, check=True).stdout)
    words, variables = command("logs", "-f", body["id"], RAY_API_SERVER_ADDRESS=ray_head.address)
    follower = subprocess.Popen(words, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert follower.stdout is not None
    while "preflight" not in follower.stdout.readline():
        assert follower.poll() is None
    follower.send_signal(signal.SIGINT)
    _, errors = follower.communicate(timeout=30)
    assert follower.returncode == 130
    assert f"the audit goes on; classwise stop {body['id']} ends it" in errors

    words, variables = command("stop", body["id"], "--address", ray_head.address, "--json")
    stopped = subprocess.run(words, env=variables, capture_output=True, text=True, check=False)
    assert (stopped.returncode, json.loads(stopped.stdout)["state"]) == (0, "stopped"), stopped.stderr


@pytest.mark.slow
def test_ray_serve_serves_the_api(ray_head: Cluster, quick_fleet: dict[str, Any], tmp_path: Path) -> None:
    weights = quick_fleet["models"][0]["uri"].rpartition("=")[2]
    (tmp_path / "token").write_text("a-caller-of-the-tests-on-ray-serve")
    settings = {
        "address": ray_head.address,
        "storage": str(tmp_path / "runs"),
        "tokens": [{"name": "ci", "file": str(tmp_path / "token")}],
        "tracking": {"enabled": False},
        "resources": {"runner": "local", "workers": 1},
        "limits": {"per_minute": 10_000},
        "allow": {"models": ["factory"], "samples": ["sklearn"], "paths": [str(Path(weights).parent)]},
    }
    settings["allow"]["factories"] = ["services.training.architectures"]  # type: ignore[index]
    (tmp_path / "settings.yaml").write_text(yaml.safe_dump(settings))
    port = str(free_port())
    words, variables = command("serve", str(tmp_path / "settings.yaml"), "--port", port, RAY_ADDRESS=ray_head.gcs)
    served = subprocess.run(words, env=variables, capture_output=True, text=True, check=False)
    assert served.returncode == 0, served.stderr
    root = f"http://127.0.0.1:{port}"
    ready = requests.get(f"{root}/ready", timeout=30)
    assert (ready.status_code, ready.text[:12]) == (200, '{"status":"r'), ready.text
    assert requests.get(f"{root}/v1/audits", timeout=30).status_code == 401
    headers = {"Authorization": "Bearer a-caller-of-the-tests-on-ray-serve"}
    sent = requests.post(f"{root}/v1/audits", json=quick_fleet, headers=headers, timeout=30)
    assert sent.status_code == 202, sent.text
    links = sent.json()["links"]
    assert requests.post(f"{root}{links['cancel']}", headers=headers, timeout=30).status_code == 202

    def stopped() -> bool:
        got = requests.get(f"{root}{links['self']}", headers=headers, timeout=30)
        assert got.status_code == 200, got.text
        return bool(got.json()["state"] == "stopped")

    wait_until(stopped, 60)


@pytest.mark.parametrize(("token", "said"), [("", "Authentication required"), ("wrong" * 8, "Authentication failed")])
def test_a_missing_or_wrong_token_says_what_to_set(ray_head: Cluster, token: str, said: str) -> None:
    """In a process of its own: Ray's client adds the token of whatever cluster its process joined before."""
    check = f"from jobs.submission.ray_jobs import RayJobs; RayJobs({ray_head.address!r}, token={token!r}).check()"
    variables = {name: value for name, value in environment().items() if not name.startswith("RAY_AUTH")}
    ran = subprocess.run([sys.executable, "-c", check], env=variables, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert re.search(f"ServiceError.*{said}.*RAY_AUTH_TOKEN", ran.stderr), ran.stderr


def test_what_ray_does_not_know(client: AuditClient, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnknownAudit):
        client.status("digits-0123456789abcdef")
    monkeypatch.setenv("RAY_ADDRESS", "http://127.0.0.1:9")
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "http://127.0.0.1:9")
    client.check()


class _Dashboard(http.server.BaseHTTPRequestHandler):
    """As much of a dashboard as answers for its version."""

    def do_GET(self) -> None:
        body = json.dumps({"version": "4", "ray_version": "2.60.0", "ray_commit": "0"}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: Any) -> None:
        """Say nothing."""


@pytest.fixture
def https(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Address and certificate of a server with a certificate that nobody signed."""
    key, certificate = str(tmp_path / "key.pem"), str(tmp_path / "cert.pem")
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    words += ["-keyout", key, "-out", certificate, "-addext", "subjectAltName=DNS:localhost"]
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    subprocess.run(words, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Dashboard) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"https://localhost:{server.server_port}", certificate
        server.shutdown()


@pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning")
def test_tls_is_checked_against_the_authority_that_is_given(https: tuple[str, str]) -> None:
    address, certificate = https
    with pytest.raises(ServiceError, match=r"a TLS certificate that can be trusted.*--ca FILE"):
        RayJobs(address).check()
    RayJobs(address, verify=certificate).check()
    RayJobs(address, verify=False).check()


def test_no_server_is_one_clear_error() -> None:
    with pytest.raises(ServiceError, match=r"http://127\.0\.0\.1:9: expected Ray's job server"):
        AuditClient(RayJobs("http://127.0.0.1:9")).list()


def test_the_token_is_found_where_ray_looks_for_it(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-file\n")
    assert token_of({}) == ""
    assert token_of({"RAY_AUTH_TOKEN_PATH": str(tmp_path / "token")}) == "from-file"
    assert token_of({"RAY_AUTH_TOKEN": "told", "RAY_AUTH_TOKEN_PATH": str(tmp_path / "token")}) == "told"
    with pytest.raises(ServiceError, match="a file with the cluster's token"):
        token_of({"RAY_AUTH_TOKEN_PATH": str(tmp_path / "none")})


def test_nothing_of_a_cluster_is_left(tmp_path: Path) -> None:
    (tmp_path / "mark").mkdir()
    child = subprocess.Popen(["sleep", "60"], cwd=ROOT, env={"MARK": str(tmp_path / "mark")})
    assert leftovers(tmp_path / "mark") == [child.pid]
    child.kill()
    child.wait()
    assert leftovers(tmp_path / "mark") == []
