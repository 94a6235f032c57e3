"""Checks of what lies across a wire or in a database: Ray, MLflow, schedules. Nothing is left behind there."""

from __future__ import annotations

import json
import re
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from jobs.upkeep.findings import SLOW_SECONDS, CheckContext, Finding
from services.telemetry.redaction import redacted_line
from tracking.bundle.marker import without_secret
from tracking.mlflow.reach import sqlite_path

WIRE_SECONDS = 4.0
TOKEN = "set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN (or RAY_AUTH_TOKEN_PATH) to the cluster's token"
SIGN_IN = "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN"
PROBE_TAG = "classwise.doctor"
JOIN = """
import json, sys, ray
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
print(json.dumps(ray.cluster_resources()))
"""


def ray_cluster(around: CheckContext) -> Iterator[Finding]:
    """Whether the cluster answers, takes the token, and has this Ray and this Python."""
    address = around.address
    if not address:
        yield Finding("ray", "ok", "embedded; no cluster is named")
    elif address.startswith(("http://", "https://")):
        yield _dashboard(address, around)
    elif (closed := _closed(address)) is not None:
        yield Finding("ray", "fail", closed, "start the cluster, or correct resources.address or RAY_ADDRESS")
    else:
        yield _joined(address, around)


def _closed(address: str) -> str | None:
    """Why the port does not answer; None when it does, or when Ray itself looks for the address."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not (host and port.isdigit()):
        return None
    try:
        socket.create_connection((host, int(port)), timeout=WIRE_SECONDS).close()
    except OSError as error:
        return f"{address}: {error}"
    return None


def _joined(address: str, around: CheckContext) -> Finding:
    """Join the cluster in a process of its own, which finds differing versions and refused tokens by itself."""
    environment = {**around.environment, "RAY_USAGE_STATS_ENABLED": "0"}
    command = [sys.executable, "-c", JOIN, address]
    try:
        process = subprocess.run(
            command, capture_output=True, text=True, timeout=SLOW_SECONDS - 2, check=False, env=environment
        )
    except subprocess.TimeoutExpired:
        return Finding("ray", "fail", f"{address} did not let a driver in", "is a Ray node running on this machine?")
    if process.returncode == 0:
        have = json.loads(process.stdout.splitlines()[-1])
        return Finding("ray", "ok", f"{address}, {have.get('CPU', 0):g} CPU, {have.get('GPU', 0):g} GPU, same versions")
    text = redacted_line(" ".join(process.stderr.split())[-300:])
    if re.search(r"token|unauthenticated|401", text, re.IGNORECASE):
        return Finding("ray", "fail", text, TOKEN)
    if "mismatch" in text.lower():
        return Finding("ray", "fail", text, "install the cluster's versions of Ray and Python here, or ours there")
    return Finding("ray", "fail", text, "run classwise on a node of the cluster, or submit to its dashboard")


def _dashboard(address: str, around: CheckContext) -> Finding:
    import requests

    from jobs.submission.ray_jobs import token_of

    token = token_of(around.environment)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        answer = requests.get(f"{address.rstrip('/')}/api/version", headers=headers, timeout=WIRE_SECONDS)
    except requests.RequestException as error:
        return Finding("ray", "fail", _message(error), "start the cluster, or correct the address of its dashboard")
    if answer.status_code in (401, 403):
        return Finding("ray", "fail", f"{address} refuses the token ({answer.status_code})", TOKEN)
    theirs, ours = str(_json(answer).get("ray_version", "unknown")), version("ray")
    if theirs != ours:
        return Finding("ray", "fail", f"Ray {theirs} there, {ours} here", "install the same version on both")
    return Finding("ray", "ok", f"{address}, Ray {theirs}, token accepted" if token else f"{address}, Ray {theirs}")


# --- MLflow -----------------------------------------------------------------------------------------------------


def tracking(around: CheckContext) -> Iterator[Finding]:
    """Whether MLflow answers, lets us in, is of a version that fits, and lets us write."""
    uri = around.tracking
    if not uri:
        remedy = "set tracking.uri or MLFLOW_TRACKING_URI; bundles wait for classwise sync until then"
        yield Finding("mlflow", "warn", "none for this storage", remedy)
    elif uri.startswith("sqlite"):
        yield _sqlite("mlflow", uri, lambda file: _schema(file.execute("select version_num from alembic_version"), uri))
    elif uri.startswith(("http://", "https://")):
        yield from _server(uri, around)
    else:
        yield _database("mlflow", uri, "runs", schema=True)


def _sqlite(check: str, uri: str, look: Any) -> Finding:
    path = Path(sqlite_path(uri))
    if not path.exists():
        return Finding(check, "ok", f"{uri} will be made")
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=rw", uri=True, timeout=WIRE_SECONDS)) as file:
            file.execute("begin immediate")  # asks for the right to write, and gives it back unused
            file.rollback()
            problem = look(file)
    except sqlite3.Error as error:
        return Finding(check, "fail", f"{uri}: {error}", "check the file, its permissions, and who holds it")
    return problem or Finding(check, "ok", uri)


def _schema(rows: Any, uri: str) -> Finding | None:
    """What is wrong with the schema of a store of MLflow's; its migrations are read as text, for importing is slow."""
    revision = next(iter(rows), ("",))[0]
    known = _migrations()
    shown = without_secret(uri)
    if revision not in known:
        return Finding(
            "mlflow", "fail", f"schema {revision}, of a newer MLflow", "install the MLflow that wrote the store"
        )
    if revision in known.values():
        remedy = f"make a copy of the database, then: mlflow db upgrade {shown}"
        return Finding("mlflow", "fail", f"schema {revision}, of an older MLflow", remedy)
    return None


def _migrations() -> dict[str, str]:
    """Revision to the one before it, of the MLflow that is installed."""
    spec = find_spec("mlflow")
    home = Path(str(spec.origin)).parent if spec else Path()
    parents = {}
    for path in (home / "store" / "db_migrations" / "versions").glob("*.py"):
        ids = dict(re.findall(r"^(revision|down_revision) = [\"'](\w+)[\"']", path.read_text(), re.MULTILINE))
        if "revision" in ids:
            parents[ids["revision"]] = ids.get("down_revision", "")
    return parents


def _database(check: str, uri: str, table: str, *, schema: bool) -> Finding:
    import sqlalchemy as sa

    shown = without_secret(uri)
    try:
        engine = sa.create_engine(uri, connect_args={"connect_timeout": int(WIRE_SECONDS)}, poolclass=sa.pool.NullPool)
        with engine.connect() as connection:
            if not sa.inspect(connection).has_table(table):
                return Finding(check, "ok", f"{shown} answers; its tables will be made")
            if uri.startswith("postgresql"):
                query = sa.text("select has_table_privilege(:table, 'INSERT')")
                if not connection.execute(query, {"table": table}).scalar():
                    return Finding(check, "fail", f"{shown}: no right to write", f"grant insert, update on {table}")
            query = sa.text("select version_num from alembic_version")
            wrong = _schema(connection.execute(query), uri) if schema else None
            return wrong or Finding(check, "ok", f"{shown} answers and can be written")
    except (sa.exc.SQLAlchemyError, ImportError) as error:
        return Finding(
            check, "fail", f"{shown}: {_message(error)}", "start it, or correct the URI; classwise[postgres] is needed"
        )


def _server(uri: str, around: CheckContext) -> Iterator[Finding]:
    import requests

    session, base = requests.Session(), uri.rstrip("/")
    parts = urlsplit(base)
    name, secret = parts.username, parts.password
    base = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    environment = around.environment
    name = environment.get("MLFLOW_TRACKING_USERNAME", name)
    if name:
        session.auth = (name, environment.get("MLFLOW_TRACKING_PASSWORD", secret) or "")
    elif token := environment.get("MLFLOW_TRACKING_TOKEN"):
        session.headers["Authorization"] = f"Bearer {token}"
    session.verify = environment.get("MLFLOW_TRACKING_INSECURE_TLS", "").lower() != "true"
    try:
        session.get(f"{base}/health", timeout=WIRE_SECONDS)
        yield _server_version(session.get(f"{base}/version", timeout=WIRE_SECONDS))
        yield _can_write(session, f"{base}/api/2.0/mlflow/experiments", around.experiment)
    except requests.RequestException as error:
        remedy = "start the server or correct the URI; behind a proxy set NO_PROXY; bundles wait for classwise sync"
        yield Finding("mlflow", "fail", f"{without_secret(uri)}: {_message(error)}", remedy)


def _server_version(answer: Any) -> Finding:
    theirs, ours = answer.text.strip(), version("mlflow")
    if answer.status_code != 200 or not re.fullmatch(r"[\w.+-]{1,40}", theirs):
        return Finding("mlflow version", "warn", f"unknown (status {answer.status_code})", "is that an MLflow server?")
    if theirs.split(".")[0] != ours.split(".")[0]:
        return Finding(
            "mlflow version", "fail", f"server {theirs}, client {ours}", "use the same major version on both"
        )
    actual = f"server {theirs}, client {ours}"
    if _minor(theirs) >= _minor(ours) - 3:
        return Finding("mlflow version", "ok", actual)
    remedy = "upgrade the server: it is older than the client by several releases"
    return Finding("mlflow version", "warn", actual, remedy)


def _minor(text: str) -> int:
    parts = text.split(".")
    return int(parts[1]) if len(parts) > 1 and parts[1].isdigit() else 0


def _can_write(session: Any, experiments: str, experiment: str) -> Finding:
    """Sign in; and where the fleet has an experiment already, set a tag on it and take it away again."""
    named = {"experiment_name": experiment or "Default"}
    answer = session.get(f"{experiments}/get-by-name", params=named, timeout=WIRE_SECONDS)
    if answer.status_code in (401, 403):
        return Finding("mlflow", "fail", f"refused ({answer.status_code})", SIGN_IN)
    if not experiment and answer.status_code in (200, 404):  # nobody logs to Default
        return Finding("mlflow", "ok", "signed in; a fleet file says which experiment it must write to")
    if answer.status_code == 404:
        return Finding("mlflow", "ok", f"signed in; experiment {named['experiment_name']} will be made")
    described = _json(answer).get("experiment", {})
    if described.get("lifecycle_stage") == "deleted":
        remedy = f"mlflow experiments restore --experiment-id {described.get('experiment_id')}"
        return Finding("mlflow", "fail", f"experiment {named['experiment_name']} is deleted", remedy)
    mark = {"experiment_id": described.get("experiment_id", ""), "key": PROBE_TAG}
    wrote = session.post(f"{experiments}/set-experiment-tag", json={**mark, "value": "probe"}, timeout=WIRE_SECONDS)
    if wrote.status_code != 200:
        remedy = "ask for the permission EDIT on the experiment"
        return Finding("mlflow", "fail", f"may not write to {named['experiment_name']} ({wrote.status_code})", remedy)
    session.post(f"{experiments}/delete-experiment-tag", json=mark, timeout=WIRE_SECONDS)
    return Finding("mlflow", "ok", f"signed in, may write to experiment {named['experiment_name']}")


def schedules(around: CheckContext) -> Iterator[Finding]:
    """Whether the database of schedules answers and can be written, where there is one."""
    uri = around.schedules
    if not uri:
        yield Finding("schedules", "ok", "none kept; CLASSWISE_SCHEDULES names a database")
    elif uri.startswith("sqlite"):
        yield _sqlite("schedules", uri, lambda file: None)
    else:
        from jobs.schedules.schema import FIRINGS

        yield _database("schedules", uri, FIRINGS.name, schema=False)


def _message(error: Exception) -> str:
    return redacted_line(" ".join(str(error).split()))[:300]


def _json(answer: Any) -> dict[str, Any]:
    try:
        body = answer.json()
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}
