"""The doctor: what is well, what is not with its remedy, and that looking changes nothing and ends in time."""

from __future__ import annotations

import json
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from torture.servers import Postgres, postgres_binaries
from typer.testing import CliRunner

from jobs.cli import app
from jobs.fleetfile.reading import validate_fleet
from jobs.schedules.place import DEFAULT
from jobs.schedules.store import Store
from jobs.upkeep import local, remote
from jobs.upkeep.doctor import Check, examine, worst_level
from jobs.upkeep.doctor_cli import context
from jobs.upkeep.findings import CheckContext, Finding
from services.devices import control_groups, memory_limits

SECRET = "swordfish-0123456789"


def around(storage: Path | str = "runs", environment: Mapping[str, str] | None = None, **more: Any) -> CheckContext:
    return CheckContext(more.pop("config", None), environment or {}, str(storage), **more)


def only(findings: Iterator[Finding]) -> Finding:
    (finding,) = findings
    return finding


@contextmanager
def server(answers: Mapping[str, tuple[int, str]]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """A real HTTP server with fixed answers by path; yields its address and what it was asked."""
    requested: list[tuple[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
            path = self.path.partition("?")[0]
            requested.append((path, body))
            status, text = answers.get(path, (404, "{}"))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

        do_GET = do_POST = answer  # noqa: N815

        def log_message(self, *arguments: Any) -> None:
            pass

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=running.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{running.server_port}", requested
    finally:
        running.shutdown()
        thread.join()
        running.server_close()


# --- the frame --------------------------------------------------------------------------------------------------


def test_a_check_that_hangs_or_breaks_is_a_finding_and_hides_no_other() -> None:
    def hangs(_: CheckContext) -> Iterator[Finding]:
        yield Finding("first part", "ok", "done")
        time.sleep(30)

    def breaks(_: CheckContext) -> Iterator[Finding]:
        raise OSError("no such disk")

    started = time.monotonic()
    checks = [
        Check("hangs", hangs, 0.2),
        Check("breaks", breaks),
        Check("well", lambda _: iter([Finding("w", "ok", "")])),
    ]
    result = examine(checks, around())
    assert time.monotonic() - started < 5
    assert [(f.check, f.level) for f in result] == [
        ("first part", "ok"),
        ("hangs", "fail"),
        ("breaks", "fail"),
        ("w", "ok"),
    ]
    assert "no answer within 0.2 s" in result[1].found
    assert "no such disk" in result[2].found
    assert worst_level(result) == "fail"
    assert worst_level([result[3], Finding("x", "warn", "")]) == "warn"


@pytest.mark.long
def test_the_command_says_that_audits_can_run_and_leaves_nothing(tmp_path: Path) -> None:
    started = time.monotonic()
    ran = CliRunner().invoke(app, ["doctor", "--storage", str(tmp_path / "runs"), "--json"], env={"RAY_ADDRESS": ""})
    assert ran.exit_code == 0, ran.output
    body = json.loads(ran.stdout)
    assert body["level"] in ("ok", "warn")
    names = [check["check"] for check in body["checks"]]
    assert {"python", "cores", "memory", "storage", "ray", "mlflow", "schedules"} <= set(names)
    assert all(check["remedy"] for check in body["checks"] if check["level"] != "ok")
    assert list(tmp_path.iterdir()) == []
    assert time.monotonic() - started < 20


@pytest.mark.long
def test_what_is_broken_exits_2_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("not a folder")
    ran = CliRunner().invoke(app, ["doctor", "--storage", str(tmp_path / "runs"), "--address", "127.0.0.1:1"])
    assert ran.exit_code == 2
    assert "audits cannot run here" in ran.stdout
    assert "RAY_ADDRESS" in ran.stdout


# --- this machine -----------------------------------------------------------------------------------------------


def test_versions_out_of_range_are_named_with_the_range(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "requires", lambda _: ["numpy>=99", "no-such-package-x", "onnx>1; extra == 'onnx'"])
    items = list(local.packages(around()))
    assert [(f.check, f.level) for f in items] == [("numpy", "fail"), ("no-such-package-x", "fail")]
    assert "numpy>=99" in items[0].remedy
    assert items[1].found == "not installed"


def test_packages_that_are_there_and_do_not_import_are_named_by_their_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """0.1.0: a broken torchvision passed, and the audit blamed another package."""
    for name, text in {
        "torchvision": "raise RuntimeError('operator torchvision::nms does not exist')",
        "timm": "import torchvision",
        "datasets": "raise ImportError('no arrow')",
        "psycopg": "",
    }.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(local, "OPTIONAL", dict.fromkeys(("torchvision", "timm", "datasets", "psycopg", "absent"), "x"))
    broken, other = local.imports(around())
    assert (broken.check, broken.level, other.check) == ("torchvision", "warn", "datasets")
    assert broken.found == (
        "installed, but does not import (nor does timm): RuntimeError: operator torchvision::nms does not exist"
    )
    assert broken.remedy.startswith("install torchvision to match torch 2.")
    (tmp_path / "psycopg.py").write_text("import os; os._exit(3)")
    assert [(finding.check, finding.level) for finding in local.imports(around())] == [("imports", "fail")]
    (tmp_path / "psycopg.py").write_text("")
    (tmp_path / "torchvision.py").write_text("")
    (tmp_path / "datasets.py").write_text("")
    assert only(local.imports(around())).level == "ok"


def test_byte_code_that_is_not_written_is_worth_a_word() -> None:
    assert [f.level for f in local.python(around())] == ["ok"]
    items = list(local.python(around(environment={"PYTHONDONTWRITEBYTECODE": "1"})))
    assert (items[1].level, "unset PYTHONDONTWRITEBYTECODE" in items[1].remedy) == ("warn", True)


def test_a_container_that_grants_fewer_cores_or_less_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = partial(control_groups, root=tmp_path, membership=tmp_path / "none")
    monkeypatch.setattr(local, "control_groups", groups)
    monkeypatch.setattr(local, "memory_limits", partial(memory_limits, tmp_path, tmp_path / "none"))
    monkeypatch.setattr(local.os, "cpu_count", lambda: 8)
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    (tmp_path / "memory.max").write_text(str(2**30))
    (tmp_path / "memory.current").write_text(str(2**29))
    assert only(local.cores(around())).found == "8, of which the container grants 1.5"
    assert only(local.memory(around())).level == "warn"
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert only(local.cores(around())).level == "ok"
    (tmp_path / "cpu" / "pod" / "ours").mkdir(parents=True)  # version 1, where a parent grants less
    (tmp_path / "none").write_text("4:cpu,cpuacct:/pod/ours\n")
    for group, quota in (("cpu", "-1"), ("cpu/pod", "250000"), ("cpu/pod/ours", "400000")):
        (tmp_path / group / "cpu.cfs_quota_us").write_text(f"{quota}\n")
        (tmp_path / group / "cpu.cfs_period_us").write_text("100000\n")
    assert only(local.cores(around())).found == "8, of which the container grants 2.5"


@pytest.mark.parametrize(
    ("environment", "level"),
    [
        ({}, None),
        ({"HTTPS_PROXY": "http://proxy:3128"}, "warn"),
        ({"https_proxy": "http://proxy:3128", "NO_PROXY": "example.org, localhost"}, None),
    ],
)
def test_a_proxy_before_localhost_is_told(environment: dict[str, str], level: str | None) -> None:
    items = list(local.proxy(around(environment=environment)))
    assert [f.level for f in items] == ([level] if level else [])


def test_storage_is_written_and_left_as_it_was(tmp_path: Path) -> None:
    items = list(local.storage_works(around(tmp_path / "deep" / "runs")))
    assert {f.check: f.level for f in items}["storage"] == "ok"
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    broken = examine([Check("storage", local.storage_works)], around("memory://doctor"))
    assert broken[-1].level == "ok"


def test_a_clock_that_is_off_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local.files, "modified", lambda url: time.time() - 90)
    items = list(local.storage_works(around(tmp_path)))
    assert items[-1].check == "clock"
    assert "90 s" in items[-1].found


def test_gpus_that_are_asked_for_and_not_there_fail(digits_fleet: dict[str, Any]) -> None:
    assert only(local.gpu(around())).level == "ok"
    digits_fleet["resources"]["gpus"] = 1
    finding = only(local.gpu(around(config=validate_fleet(digits_fleet).config)))
    assert (finding.level, "resources.gpus: 0" in finding.remedy) == ("fail", True)


# --- across a wire ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "ray", "level", "text"),
    [(200, "ours", "ok", "token accepted"), (200, "1.0.0", "fail", "Ray 1.0.0 there"), (401, "", "fail", "refuses")],
)
def test_a_dashboard_of_another_version_or_token(status: int, ray: str, level: str, text: str) -> None:
    body = json.dumps({"ray_version": version("ray") if ray == "ours" else ray})
    with server({"/api/version": (status, body)}) as (address, _):
        finding = only(remote.ray_cluster(around(environment={"RAY_AUTH_TOKEN": SECRET}, address=address)))
    assert (finding.level, text in finding.found) == (level, True)
    assert level == "ok" or finding.remedy


def test_a_cluster_that_does_not_listen_is_told_at_once() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        finding = only(remote.ray_cluster(around(address=f"127.0.0.1:{taken.getsockname()[1]}")))
    assert (finding.level, "refused" in finding.found) == ("fail", True)


pytestmark = pytest.mark.filterwarnings("ignore:::sqlalchemy", "ignore:::mlflow", "ignore::DeprecationWarning")
API = "/api/2.0/mlflow/experiments"


def mlflow(answers: dict[str, tuple[int, str]], environment: dict[str, str], digits_fleet: dict[str, Any]) -> Any:
    config = validate_fleet(digits_fleet).config
    with server({"/health": (200, "OK"), "/version": (200, version("mlflow")), **answers}) as (address, requested):
        uri = address.replace("//", f"//auditor:{SECRET}@")
        items = list(remote.tracking(around(environment=environment, tracking=uri, config=config)))
    return items, requested


def test_a_server_is_asked_for_the_right_to_write_and_nothing_stays(digits_fleet: dict[str, Any]) -> None:
    experiment = json.dumps({"experiment": {"experiment_id": "7", "lifecycle_stage": "active"}})
    answers = {
        f"{API}/get-by-name": (200, experiment),
        f"{API}/set-experiment-tag": (200, "{}"),
        f"{API}/delete-experiment-tag": (200, "{}"),
    }
    result, requested = mlflow(answers, {}, digits_fleet)
    assert [f.level for f in result] == ["ok", "ok"]
    posted = [(path.rpartition("/")[2], json.loads(body)["key"]) for path, body in requested if body]
    assert posted == [("set-experiment-tag", "classwise.doctor"), ("delete-experiment-tag", "classwise.doctor")]
    refusing = {**answers, f"{API}/set-experiment-tag": (403, "{}")}
    result, _ = mlflow(refusing, {}, digits_fleet)
    assert (result[-1].level, "permission" in result[-1].remedy) == ("fail", True)


@pytest.mark.parametrize(
    ("answers", "level", "text"),
    [
        ({}, "ok", "experiment digits will be made"),
        ({f"{API}/get-by-name": (401, "")}, "fail", "refused (401)"),
        ({f"{API}/get-by-name": (200, '{"experiment": {"lifecycle_stage": "deleted"}}')}, "fail", "is deleted"),
    ],
)
def test_signing_in(answers: dict[str, tuple[int, str]], level: str, text: str, digits_fleet: dict[str, Any]) -> None:
    result, _ = mlflow(answers, {}, digits_fleet)
    assert (result[-1].level, text in result[-1].found) == (level, True)
    assert SECRET not in str(result)


def test_no_server_and_another_major_version() -> None:
    items = list(remote.tracking(around(tracking=f"http://u:{SECRET}@127.0.0.1:9")))
    assert items[0].level == "fail" and "classwise sync" in items[0].remedy
    assert SECRET not in str(items)
    with server({"/version": (200, "1.30.0"), "/health": (200, "")}) as (address, _):
        items = list(remote.tracking(around(tracking=address)))
    assert (items[0].check, items[0].level) == ("mlflow version", "fail")


def test_a_database_of_mlflow_by_its_schema(tmp_path: Path, migrated_store: Callable[[Path], str]) -> None:
    uri = migrated_store(tmp_path)
    look = around(tracking=uri)
    assert only(remote.tracking(look)).level == "ok"

    def revision(value: str) -> Finding:
        with sqlite3.connect(tmp_path / "mlflow.db") as file:
            file.execute("update alembic_version set version_num = ?", (value,))
        file.close()
        return only(remote.tracking(look))

    assert "mlflow db upgrade" in revision("cfd24bdc0731").remedy
    assert "newer MLflow" in revision("ffffffffffff").found
    (tmp_path / "mlflow.db").write_text("no database at all, but longer than nothing")
    assert only(remote.tracking(look)).level == "fail"
    assert only(remote.tracking(around(tracking=f"sqlite:///{tmp_path}/new.db"))).found.endswith("will be made")
    assert not (tmp_path / "new.db").exists()


def test_the_database_of_schedules_is_that_of_the_environment_else_the_default_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CLASSWISE_SCHEDULES", raising=False)
    assert context(None, None, None).schedules == ""
    (tmp_path / "classwise-runs").mkdir()
    (tmp_path / "classwise-runs" / "schedules.db").touch()
    assert context(None, None, None).schedules == DEFAULT
    monkeypatch.setenv("CLASSWISE_SCHEDULES", "sqlite:///other.db")
    assert context(None, None, None).schedules == "sqlite:///other.db"


def test_schedules_where_there_are_some(tmp_path: Path) -> None:
    assert only(remote.schedules(around())).level == "ok"
    down = f"postgresql+psycopg://u:{SECRET}@127.0.0.1:9/x"
    finding = only(remote.schedules(around(schedules=down)))
    assert (finding.level, SECRET in str(finding)) == ("fail", False)


@pytest.fixture
def postgres(tmp_path: Path) -> Iterator[str]:
    """URI of an empty database."""
    if (binaries := postgres_binaries()) is None:
        pytest.skip("PostgreSQL is not installed, or as root without runuser")
    database = Postgres(binaries, tmp_path / "log")
    try:
        database.start()
        yield database.uri
    finally:
        database.close()


def test_a_database_of_schedules_is_told_from_an_empty_one(postgres: str) -> None:
    empty = only(remote.schedules(around(schedules=postgres)))
    assert empty.level == "ok" and "will be made" in empty.found
    Store(postgres).close()
    filled = only(remote.schedules(around(schedules=postgres)))
    assert filled.level == "ok" and "can be written" in filled.found
