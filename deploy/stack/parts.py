"""What runs in a stack, in which order, and when each part is ready."""

from __future__ import annotations

import json
import os
import secrets
import shlex
import signal
import sys
import urllib.error
import urllib.request
from base64 import b64encode
from pathlib import Path
from typing import Any

import yaml

from deploy.stack import databases
from deploy.stack.layout import Layout, write_private
from deploy.stack.processes import Part
from jobs.submission.ray_jobs import SLOTS
from jobs.submission.signing import KEY_PATH
from services.errors import Problem, ServiceError

ROOT = Path(__file__).resolve().parents[2]
STORE_BYTES = 100_000_000
"""Object store of a node: audits pass tables through it, never images."""
RAY_PATIENCE = 2.0
"""A node waits half a minute for what runs on it. Audits need no farewell: they go on from their finished shards."""
QUEUE_SECONDS = 7 * 24 * 3600
"""How long an audit may wait for its turn; Ray's own limit is 15 minutes."""
MLFLOW_USER = "classwise"
SCHEDULES = "CLASSWISE_SCHEDULES"
TRACKING = ("MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD")
ALONE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Set to 0, Ray stays on 127.0.0.1 (services/running/loopback.py); worker nodes need `deploy.stack.node` as well."""
RAY = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH", ALONE)


def waves(layout: Layout) -> list[list[Part]]:
    """The parts; those of one wave start at the same time, once those before them serve.

    Workers start one after another: two that start together in one folder take the same socket.
    """
    first, *workers = (_worker(layout, number + 1) for number in range(layout.workers))
    waves = [[_postgres(layout)], [_mlflow(layout), _head(layout)], [first, _api(layout), _scheduler(layout)]]
    return [*waves, *([worker] for worker in workers)]


def variables(layout: Layout) -> dict[str, str]:
    """What a client of the stack needs in its environment."""
    return {
        "RAY_API_SERVER_ADDRESS": layout.url("dashboard"),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(layout.secret_file("ray.token")),
        ALONE: "0",
        KEY_PATH: str(layout.secret_file("signing.key")),
        "MLFLOW_TRACKING_URI": layout.url("mlflow"),
        "MLFLOW_TRACKING_USERNAME": MLFLOW_USER,
        "MLFLOW_TRACKING_PASSWORD": layout.secret("mlflow-classwise.password"),
        SCHEDULES: layout.database("classwise", "schedules"),
        "API": layout.url("api"),
        "TOKEN": layout.secret("api.token"),
    }


def write_client_files(layout: Layout) -> None:
    """The file `env`, and the API's settings unless they are there."""
    lines = [f"export {name}={shlex.quote(value)}" for name, value in variables(layout).items()]
    write_private(layout["env"], "\n".join([*lines, ""]))
    if not layout["settings.yaml"].exists():
        write_private(layout["settings.yaml"], yaml.safe_dump(_settings(layout), sort_keys=False))


def _settings(layout: Layout) -> dict[str, Any]:
    return {
        "address": layout.url("dashboard"),
        "storage": str(layout["storage"]),
        "tokens": [{"name": "local", "file": str(layout.secret_file("api.token"))}],
        "tracking": {"uri": layout.url("mlflow")},
        "allow": {
            "models": ["export", "onnx", "logits", "factory"],
            "samples": ["npz", "imagefolder", "sklearn"],
            "paths": [str(layout["models"]), str(layout["data"])],
            "factories": ["services.training.architectures"],
        },
        "resources": {"workers": layout.workers * layout.cpus},
        "limits": {"per_minute": 1200, "submissions": 100},
    }


def _postgres(layout: Layout) -> Part:
    return Part(
        "postgres",
        databases.command(layout),
        _environment(),
        ready=lambda: databases.accepts(layout),
        prepare=lambda: databases.make_cluster(layout),
        finish=lambda: databases.make_databases(layout),
        user=databases.owner(),
        stop=signal.SIGINT,  # disconnects its clients; SIGTERM would wait for them
    )


def _mlflow(layout: Layout) -> Part:
    environment = {
        **_environment(),
        "MLFLOW_BACKEND_STORE_URI": layout.database("mlflow", "mlflow"),
        "MLFLOW_AUTH_CONFIG_PATH": str(layout["mlflow"] / "auth.ini"),
        "MLFLOW_AUTH_ADMIN_PASSWORD": layout.secret("mlflow-admin.password"),
        "MLFLOW_FLASK_SERVER_SECRET_KEY": layout.secret("mlflow-flask.key"),
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }
    words = [sys.executable, "-m", "mlflow", "server", "--app-name", "basic-auth", "--workers", "1"]
    words += ["--host", "127.0.0.1", "--port", str(layout.ports["mlflow"])]
    words += ["--artifacts-destination", str(layout["mlflow"] / "artifacts")]
    return Part(
        "mlflow",
        words,
        environment,
        ready=lambda: _status(f"{layout.url('mlflow')}/health") == 200,
        prepare=lambda: _write_auth(layout),
        finish=lambda: _make_account(layout),
    )


def _head(layout: Layout) -> Part:
    words = [*_ray("ray.scripts.scripts"), "--head", "--port", str(layout.ports["gcs"]), "--num-cpus", "0"]
    words += ["--dashboard-host", "127.0.0.1", "--dashboard-port", str(layout.ports["dashboard"])]
    words += ["--ray-client-server-port", str(layout.ports["client"]), "--temp-dir", f"{layout.link}/t"]
    words += ["--dashboard-agent-listen-port", str(layout.ports["head-agent"])]
    words += ["--resources", json.dumps({SLOTS: layout.audits, "head": 1})]  # head: as in kubernetes/rayservice.yaml
    environment = {**_environment(), **_submitting(layout), **_chosen(layout, *TRACKING)}  # audits are driven there
    environment["RAY_JOB_START_TIMEOUT_SECONDS"] = str(QUEUE_SECONDS)
    return Part(
        "head",
        words,
        environment,
        ready=lambda: _status(_nodes_url(layout), _ray_token(layout)) == 200,
        patience=RAY_PATIENCE,
    )


def _worker(layout: Layout, number: int) -> Part:
    name = f"worker-{number}"
    node = f"{name}.{secrets.token_hex(4)}"
    words = [
        *_ray("deploy.stack.node"),
        "--address",
        f"127.0.0.1:{layout.ports['gcs']}",
        "--num-cpus",
        str(layout.cpus),
    ]
    words += ["--node-name", node, "--dashboard-agent-listen-port", str(layout.ports[f"{name}-agent"])]
    return Part(
        name,
        words,
        {**_environment(), **_chosen(layout, *RAY)},
        ready=lambda: node in alive_nodes(layout),
        patience=RAY_PATIENCE,
        needs=("head",),
    )


def _api(layout: Layout) -> Part:
    words = [sys.executable, "-m", "jobs.cli", "serve", str(layout["settings.yaml"]), "--here"]
    words += ["--port", str(layout.ports["api"])]
    environment = {**_environment(), **_submitting(layout), **_chosen(layout, SCHEDULES, *TRACKING)}
    return Part("api", words, environment, ready=lambda: _status(f"{layout.url('api')}/ready") == 200)


def _scheduler(layout: Layout) -> Part:
    words = [sys.executable, "-m", "jobs.cli", "schedule", "run", "--address", layout.url("dashboard")]
    environment = {**_environment(), **_submitting(layout), **_chosen(layout, SCHEDULES)}
    return Part("scheduler", words, environment, ready=lambda: True)


def alive_nodes(layout: Layout) -> set[str]:
    """Names of the nodes that the head counts as alive; empty when it does not answer."""
    try:
        with _opened(_nodes_url(layout), _ray_token(layout)) as reply:
            rows = json.load(reply)["data"]["result"]["result"]
    except (OSError, ValueError, KeyError):
        return set()
    return {row["node_name"] for row in rows if row["state"] == "ALIVE"}


def _nodes_url(layout: Layout) -> str:
    return f"{layout.url('dashboard')}/api/v0/nodes"


def _ray(module: str) -> list[str]:
    words = [sys.executable, "-m", module, "start", "--block", "--disable-usage-stats"]
    return [*words, "--node-ip-address", "127.0.0.1", "--object-store-memory", str(STORE_BYTES)]


def _environment() -> dict[str, str]:
    """The environment of the user who starts the stack, without what would lead its parts elsewhere."""
    binaries = str(Path(sys.executable).parent)
    strange = ("RAY_", "MLFLOW_", "CLASSWISE_", "PG", "PYTHONDONTWRITEBYTECODE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(strange)}
    path = f"{binaries}:{os.environ.get('PATH', os.defpath)}"
    return {**kept, "PATH": path, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0"}


def _submitting(layout: Layout) -> dict[str, str]:
    """What those who submit have, and workers, which run models of others, have not: the key that signs."""
    return _chosen(layout, *RAY, KEY_PATH)


def _chosen(layout: Layout, *names: str) -> dict[str, str]:
    known = variables(layout)
    return {name: known[name] for name in names}


def _ray_token(layout: Layout) -> dict[str, str]:
    return {"Authorization": f"Bearer {layout.secret('ray.token')}"}


def _write_auth(layout: Layout) -> None:
    lines = ["[mlflow]", "default_permission = READ", f"database_uri = {layout.database('mlflow_auth', 'mlflow')}"]
    lines += ["admin_username = admin", "auth_cache_ttl_seconds = 60"]
    lines += ["authorization_function = mlflow.server.auth:authenticate_request_basic_auth", ""]
    write_private(layout["mlflow"] / "auth.ini", "\n".join(lines))


def _make_account(layout: Layout) -> None:
    """An account without the administrator's rights, which audits use."""
    login = b64encode(f"admin:{layout.secret('mlflow-admin.password')}".encode()).decode()
    headers = {"Authorization": f"Basic {login}", "Content-Type": "application/json"}
    body = {"username": MLFLOW_USER, "password": layout.secret("mlflow-classwise.password")}
    url = f"{layout.url('mlflow')}/api/2.0/mlflow/users"
    if _status(f"{url}/get?username={MLFLOW_USER}", headers) == 200:
        return
    status = _status(f"{url}/create", headers, json.dumps(body).encode())
    if status != 200:
        raise ServiceError(Problem("mlflow", f"an account {MLFLOW_USER} to be made", f"status {status}"))


def _status(url: str, headers: dict[str, str] | None = None, body: bytes | None = None) -> int:
    """Status of an answer; 0 without one."""
    try:
        with _opened(url, headers, body) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def _opened(url: str, headers: dict[str, str] | None = None, body: bytes | None = None) -> Any:
    return urllib.request.urlopen(urllib.request.Request(url, body, headers or {}), timeout=10)
