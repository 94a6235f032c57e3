"""What the commands for submitted audits and schedules say to a newcomer."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from jobs.api.settings import load_settings
from jobs.dashboard.places import places_of
from jobs.schedules.store import Store
from jobs.upkeep.doctor_cli import context
from tests.jobs.command import run

ROOT = Path(__file__).resolve().parents[3]
FLEET = """
fleet: shop
models: [{name: m, uri: "logits:/data/m.npz"}]
samples: {uri: "npz:/data/s.npz"}
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("CLASSWISE_SCHEDULES", "RAY_API_SERVER_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "fleet.yaml").write_text(FLEET)
    return tmp_path


def printed_in_docs(command: str) -> list[str]:
    """The words of a command as docs/service.md prints it."""
    lines = (ROOT / "docs" / "service.md").read_text(encoding="utf-8").splitlines()
    line = next(line for line in lines if line.startswith(f"classwise {command}"))
    return [quoted or plain for quoted, plain in re.findall(r'"([^"]*)"|(\S+)', line)][1:]


def test_the_documented_schedule_is_added_and_its_storage_told(here: Path) -> None:
    added = run(*printed_in_docs("schedule add"))
    assert added.exit_code == 0, added.stderr
    assert f"storage classwise-runs is the folder {here}/classwise-runs" in added.stderr
    assert added.stdout.startswith("nightly ")
    with sqlite3.connect(here / "classwise-runs" / "schedules.db") as database:
        tables = [name for (name,) in database.execute("select name from sqlite_master where type = 'table'")]
        rows = [row for name in tables for row in database.execute(f"select * from {name}")]
    assert f"{here}/classwise-runs" in json.dumps(rows, default=str)
    database.close()


def test_the_dashboard_and_the_doctor_look_where_schedules_are_kept(here: Path) -> None:
    (here / "elsewhere").mkdir()
    added = run(*printed_in_docs("schedule add"), "--storage", str(here / "elsewhere"))
    assert added.exit_code == 0, added.stderr
    observed = places_of(str(here / "elsewhere"), None, None).schedules
    with closing(Store(observed)) as store:
        assert [each.name for each in store.schedules()] == ["nightly"]
    assert context(None, None, None).schedules == observed


@pytest.mark.parametrize("storage", ["runs", "./deep/runs"])
def test_a_relative_storage_option_is_below_the_current_folder(here: Path, storage: str) -> None:
    added = run("schedule", "add", "fleet.yaml", "--cron", "0 3 * * *", "--storage", storage)
    assert added.exit_code == 0, added.stderr
    assert f"storage {storage} is the folder {here / storage}" in added.stderr


def test_an_absolute_storage_is_taken_as_it_is(here: Path) -> None:
    added = run("schedule", "add", "fleet.yaml", "--cron", "0 3 * * *", "--storage", str(here / "runs"))
    assert added.exit_code == 0 and "is the folder" not in added.stderr


def test_for_a_cluster_a_relative_storage_is_refused(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    submitted = run("submit", "fleet.yaml", "--address", "http://127.0.0.1:9")
    assert submitted.exit_code == 2 and "storage: expected an absolute path or a URL" in submitted.stderr
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "http://127.0.0.1:9")
    added = run("schedule", "add", "fleet.yaml", "--cron", "0 3 * * *")
    assert added.exit_code == 2 and "storage: expected an absolute path or a URL" in added.stderr


def test_this_machine_submits_to_no_url(here: Path) -> None:
    process = run("submit", "fleet.yaml", "--storage", "memory://runs")
    assert process.exit_code == 2 and "expected a local folder to run audits on this machine" in process.stderr
    assert [path.name for path in here.iterdir()] == ["fleet.yaml"]


def test_an_unknown_audit_names_the_command_that_lists_them(here: Path) -> None:
    for words in (("status", "nosuch"), ("status", "shop-0123456789abcdef")):
        process = run(*words)
        assert process.exit_code == 2 and "; classwise list shows those" in process.stderr


def test_serve_without_its_file_names_one_that_loads(here: Path) -> None:
    process = run("serve", "none.yaml", "--here")
    named = re.search(r"found no such file; see (\S+) and (\S+)#rest-api$", process.stderr.strip())
    assert process.exit_code == 2 and named is not None, process.stderr
    assert load_settings(ROOT / named[1]).tokens
    assert "\n## REST API\n" in (ROOT / named[2]).read_text(encoding="utf-8")
