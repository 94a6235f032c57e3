"""The scheduler with a clock moved by hand and audits that are processes of this machine."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from jobs.audit.audit import run_audit
from jobs.cli import app
from jobs.comparison.accepted import accept
from jobs.fleetfile.reading import Fleet, validate_fleet
from jobs.schedules.policy import Decision, decide
from jobs.schedules.schedule import Firing, FiringState, Overlap
from jobs.schedules.scheduler import Scheduler, new_schedule
from jobs.schedules.store import Store
from jobs.submission.client import AuditClient
from jobs.submission.local_jobs import LocalJobs
from jobs.submission.status import State
from jobs.submission.submission import content_of
from jobs.terminal.progress import Quiet
from services.errors import Problem, ServiceError
from services.records import Outcome

from .conftest import Clock

ROOT = Path(__file__).resolve().parents[3]
NIGHT = datetime(2026, 11, 28, 2, tzinfo=UTC)


def firing(number: int, schedule: str, fleet: str, state: FiringState = FiringState.WAITING) -> Firing:
    return Firing(number, schedule, fleet, NIGHT + timedelta(minutes=number), state)


def test_one_audit_a_fleet_and_of_one_schedule_the_latest_waits() -> None:
    waiting = [firing(4, "b", "x"), firing(1, "a", "x"), firing(2, "a", "x"), firing(3, "c", "y"), firing(5, "d", "x")]
    overlaps = {"a": Overlap.SKIP, "b": Overlap.SKIP, "c": Overlap.SKIP, "d": Overlap.QUEUE}
    assert [(each.id, decision) for each, decision in decide(waiting, [], overlaps)] == [
        (1, Decision.REPLACE),
        (2, Decision.START),
        (3, Decision.START),
        (4, Decision.SKIP),
        (5, Decision.WAIT),
    ]
    busy = [firing(0, "a", "x", FiringState.RUNNING)]
    assert decide([firing(1, "removed", "x")], busy, {}) == [(firing(1, "removed", "x"), Decision.WAIT)]
    assert decide([], busy, {}) == []


class Recorder:
    """Stands for the job server where no audit is to run: it only keeps what is submitted."""

    address = "recorder"

    def __init__(self) -> None:
        self.started: list[str] = []
        self.down = False

    def start(self, name: str, *rest: Any) -> None:
        self.check()
        self.started.append(name)

    def info(self, name: str) -> None:
        self.check()

    def check(self) -> None:
        if self.down:
            raise ServiceError(Problem("recorder", "a server", "none"))


def test_a_night_of_schedules_over_the_end_of_summer_time(
    store: Store, make_fleet: Callable[..., Fleet], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock.now = datetime(2026, 10, 24, 20, tzinfo=UTC)
    recorder = Recorder()
    scheduler = Scheduler(store, lambda storage: AuditClient(recorder), clock=clock)  # type: ignore[arg-type]
    monkeypatch.setattr(Scheduler, "follow", lambda self, firing: self._store.end(firing, FiringState.DONE, clock()))
    for number in range(20):
        fleet = make_fleet(f"fleet{number}")
        minute = f"{number * 3}" if number else "*/30"
        hour = "2" if number else "*"
        store.add(new_schedule(f"s{number}", fleet, f"{minute} {hour} * * *", zone="Europe/Berlin", now=clock()))
    monkeypatch.setattr(AuditClient, "status", lambda self, name, folder="": None)
    while clock() < datetime(2026, 10, 25, 6, tzinfo=UTC):
        clock.forward(minutes=1)
        scheduler.tick()
    by_schedule: dict[str, int] = {}
    for each in store.firings():
        by_schedule[each.schedule] = by_schedule.get(each.schedule, 0) + 1
    assert by_schedule == {"s0": 20, **{f"s{number}": 1 for number in range(1, 20)}}
    assert len(recorder.started) == len(set(recorder.started)) == 39


def test_missed_firings_become_one_and_a_server_that_is_down_loses_none(
    store: Store, make_fleet: Callable[..., Fleet], clock: Clock
) -> None:
    recorder, notes = Recorder(), list[str]()
    scheduler = Scheduler(store, lambda storage: AuditClient(recorder), clock=clock, note=notes.append)  # type: ignore[arg-type]
    store.add(new_schedule("hourly", make_fleet(), "0 * * * *", now=clock()))
    clock.forward(hours=5, minutes=10)
    recorder.down = True
    scheduler.tick()
    (waiting,) = store.firings()
    assert (waiting.state, waiting.missed) == (FiringState.WAITING, 4)
    assert waiting.due_at == datetime(2026, 11, 28, 6, tzinfo=UTC)
    scheduler.tick()
    assert "expected a server" in waiting.message and sum("tried again later" in note for note in notes) == 1
    clock.forward(hours=1)
    scheduler.tick()
    assert [each.state for each in store.firings()] == [FiringState.REPLACED, FiringState.WAITING]
    store.set_paused("hourly", True, None)
    clock.forward(days=1)
    scheduler.tick()
    assert len(store.firings()) == 2

    assert store.start(store.firings(FiringState.WAITING)[0], "shop-0123456789abcdef")
    store.add(new_schedule("other", make_fleet("other"), "0 * * * *", now=clock()))
    clock.forward(hours=1)
    scheduler.tick()  # what runs cannot be asked after, and what is due is claimed all the same
    assert [each.state for each in store.firings(schedule="other")] == [FiringState.WAITING]
    assert any("asked again later" in note for note in notes)
    recorder.down = False
    scheduler.tick()  # nobody knows of the audit: it had not been submitted
    (again,) = store.firings(FiringState.WAITING, FiringState.RUNNING, schedule="hourly")
    assert again.due_at == datetime(2026, 11, 28, 7, tzinfo=UTC)


SPOILT = {
    "zone": "Mars/Olympus",
    "cron": "never",
    "overlap": "perhaps",
    "content": "{",
    "next_at": "yesterday",
    "content ": "[]",
}


def spoil(tmp_path: Path, table: str, column: str, value: Any, where: str) -> None:
    link = sqlite3.connect(tmp_path / "db" / "schedules.db")
    with link:
        link.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (value,))
    link.close()


@pytest.mark.parametrize("column", SPOILT)
def test_a_row_that_is_no_schedule_stops_no_other_and_says_so(
    store: Store, make_fleet: Callable[..., Fleet], clock: Clock, tmp_path: Path, column: str
) -> None:
    recorder, notes = Recorder(), list[str]()
    scheduler = Scheduler(store, lambda storage: AuditClient(recorder), clock=clock, note=notes.append)  # type: ignore[arg-type]
    for name in ("a-bad", "good"):
        store.add(new_schedule(name, make_fleet(name), "0 * * * *", now=clock()))
    spoil(tmp_path, "classwise_schedules", column.strip(), SPOILT[column], "name = 'a-bad'")
    for _ in range(3):
        clock.forward(hours=1)
        scheduler.tick()
    assert [each for each in recorder.started if each.startswith("good")], notes
    ran = CliRunner().invoke(app, ["schedule", "list", "--db", f"sqlite:///{tmp_path}/db/schedules.db"])
    assert ran.exit_code == 0 and "good" in ran.stdout, ran.output
    bad, good = (store.schedule(name) for name in ("a-bad", "good"))
    assert bad.fault and not good.fault
    assert next(line for line in ran.stdout.splitlines() if "a-bad" in line).count("FAULT") == 1
    assert sum("a-bad: does not fire" in note for note in notes) == 1
    spoil(tmp_path, "classwise_schedules", column.strip(), _right(column, make_fleet), "name = 'a-bad'")
    scheduler.tick()
    assert store.schedule("a-bad").fault == ""


def _right(column: str, make_fleet: Callable[..., Fleet]) -> str:
    content = json.dumps(content_of(make_fleet("a-bad")))
    return {"zone": "UTC", "cron": "0 * * * *", "overlap": "skip", "next_at": "2027-01-01"}.get(column, content)


@pytest.mark.parametrize(
    ("column", "value", "state"),
    [("content", "{", "running"), ("content", "{", "waiting"), ("outcome", "odd", "waiting"), ("due_at", "x", "done")],
)
def test_a_row_that_is_no_firing_stops_no_other(
    store: Store, make_fleet: Callable[..., Fleet], clock: Clock, tmp_path: Path, column: str, value: str, state: str
) -> None:
    recorder = Recorder()
    scheduler = Scheduler(store, lambda storage: AuditClient(recorder), clock=clock)  # type: ignore[arg-type]
    bad = new_schedule("bad", make_fleet("bad"), "0 0 1 1 *", now=clock())
    store.add(bad)
    store.fire(bad, clock())
    store.add(new_schedule("good", make_fleet("good"), "0 * * * *", now=clock()))
    spoil(tmp_path, "classwise_firings", "state", state, "schedule = 'bad'")
    spoil(tmp_path, "classwise_firings", column, value, "schedule = 'bad'")
    clock.forward(hours=1)
    scheduler.tick()
    assert [each for each in recorder.started if each.startswith("good")]
    ran = CliRunner().invoke(app, ["schedule", "history", "--db", f"sqlite:///{tmp_path}/db/schedules.db"])
    assert ran.exit_code == 0 and "good" in ran.stdout, ran.output


def test_a_scheduler_that_is_silent_fails_its_probe(
    store: Store, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["schedule", "health", "--db", f"sqlite:///{tmp_path}/db/schedules.db", "--seconds", "60"]
    assert CliRunner().invoke(app, command).exit_code == 2
    clock.now = datetime.now(UTC) - timedelta(hours=1)
    Scheduler(store, lambda storage: AuditClient(Recorder()), clock=clock).tick()  # type: ignore[arg-type]
    assert CliRunner().invoke(app, command).exit_code == 2
    Scheduler(store, lambda storage: AuditClient(Recorder())).tick()  # type: ignore[arg-type]
    assert CliRunner().invoke(app, command).exit_code == 0
    monkeypatch.setattr("socket.gethostname", lambda: "elsewhere")
    assert [CliRunner().invoke(app, [*command, *more]).exit_code for more in ([], ["--anywhere"])] == [2, 0]


@pytest.fixture
def quick(digits_fleet: dict[str, Any]) -> Fleet:
    return validate_fleet({**digits_fleet, "models": digits_fleet["models"][:1], "measures": ["clean"]})


@pytest.fixture
def slow(digits_fleet: dict[str, Any]) -> Fleet:
    pgd = [{"name": "pgd", "steps": 120, "epsilons": [0.02]}]
    resources = {**digits_fleet["resources"], "shard": 100}
    models = digits_fleet["models"][:1]
    return validate_fleet({**digits_fleet, "models": models, "measures": pgd, "resources": resources})


def clients(storage: str) -> AuditClient:
    return AuditClient(LocalJobs(storage), storage=storage, environment={"OMP_NUM_THREADS": "1"})


def tick_until(scheduler: Scheduler, store: Store, *states: FiringState) -> Firing:
    end = time.monotonic() + 300
    while not (history := store.firings(*states)):
        assert time.monotonic() < end, store.firings()
        scheduler.tick()
        time.sleep(0.1)
    return history[-1]


def test_overlap_skips_or_queues_and_every_firing_says_how_it_ended(
    store: Store, quick: Fleet, slow: Fleet, clock: Clock
) -> None:
    scheduler = Scheduler(store, clients, clock=clock)
    store.add(new_schedule("slow", slow, "0 2 * * *", now=clock()))
    store.add(new_schedule("skips", quick, "1 2 * * *", now=clock()))
    store.add(new_schedule("queues", quick, "1 2 * * *", overlap=Overlap.QUEUE, now=clock()))
    clock.forward(hours=1, minutes=2)
    scheduler.tick()
    states = {each.schedule: each.state for each in store.firings()}
    assert states == {"slow": FiringState.RUNNING, "skips": FiringState.SKIPPED, "queues": FiringState.WAITING}
    (running,) = store.firings(FiringState.RUNNING)
    assert clients(slow.config.storage).cancel(running.submission).state is State.STOPPED
    done = tick_until(scheduler, store, FiringState.DONE)
    assert (done.schedule, done.outcome, done.ended_at) == ("queues", Outcome.PASS, clock())
    assert (Path(done.bundle) / "bundle.json").exists()
    assert [each.state for each in store.firings(schedule="slow")] == [FiringState.STOPPED]


def test_a_firing_says_what_changed_since_the_accepted_audit(
    store: Store, quick: Fleet, clock: Clock, tmp_path: Path
) -> None:
    first = run_audit(quick, Quiet())
    accept(first.folder, by="me")
    store.add(new_schedule("nightly", quick, "0 2 * * *", now=clock()))
    clock.forward(hours=1)
    done = tick_until(Scheduler(store, clients, clock=clock), store, FiringState.DONE)
    assert done.message == f"0 worse, 0 better of 11 comparisons with {first.result.audit_id}"
    listed = CliRunner().invoke(app, ["schedule", "history", "--db", f"sqlite:///{tmp_path}/db/schedules.db"])
    assert listed.stdout.rstrip().endswith(f"{done.bundle}  {done.message}")


def test_a_fleet_that_is_not_valid_any_more_is_refused_and_the_schedule_goes_on(
    store: Store, quick: Fleet, clock: Clock
) -> None:
    known = new_schedule("old", quick, "0 * * * *", now=clock())
    store.add(replace(known, content={**known.content, "measures": ["gone"]}))
    clock.forward(hours=1)
    Scheduler(store, clients, clock=clock).tick()
    (refused,) = store.firings()
    assert refused.state is FiringState.REFUSED and "'gone'" in refused.message
    assert store.schedule("old").next_at == clock() + timedelta(hours=1)


def start_scheduler(uri: str, log: Path) -> subprocess.Popen[bytes]:
    words = ["schedule", "run", "--address", "local", "--db", uri, "--poll", "0.2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "jobs.cli", *words], env=environment, stdout=output, stderr=output
        )


def until(store: Store, ready: Callable[[list[Firing]], bool], seconds: float = 300) -> list[Firing]:
    end = time.monotonic() + seconds
    while not ready(history := store.firings()):
        assert time.monotonic() < end, history
        time.sleep(0.1)
    return history


@pytest.mark.slow
def test_a_killed_scheduler_loses_nothing_and_a_killed_audit_is_lost(tmp_path: Path, slow: Fleet) -> None:
    uri = f"sqlite:///{tmp_path}/schedules.db"
    store, log = Store(uri), tmp_path / "log"
    store.add(new_schedule("s", slow, "0 0 1 1 *", overlap=Overlap.QUEUE, now=datetime.now(UTC)))
    storage = Path(slow.config.storage)
    store.fire(store.schedule("s"), datetime.now(UTC))
    process = start_scheduler(uri, log)
    try:
        (running,) = until(store, lambda each: each[0].state is FiringState.RUNNING)
        while not list(storage.rglob("cache/scores/**/*.parquet")):
            time.sleep(0.1)
        process.kill()
        process.wait()
        record = storage / "submissions" / running.submission / "process.json"
        driver = json.loads(json.loads(record.read_text())["driver"])["pid"]
        os.kill(driver, signal.SIGKILL)
        shards = {path: path.stat().st_mtime_ns for path in storage.rglob("cache/scores/**/*.parquet")}

        process = start_scheduler(uri, log)
        (lost,) = until(store, lambda each: each[0].state is FiringState.LOST)
        assert lost.outcome is None and "without saying an outcome" in lost.message
        store.fire(store.schedule("s"), datetime.now(UTC))
        until(store, lambda each: each[-1].state is FiringState.RUNNING)
        process.kill()
        process.wait()
        process = start_scheduler(uri, log)
        done = until(store, lambda each: each[-1].state is FiringState.DONE)[-1]
        assert (done.outcome, done.submission != running.submission) == (Outcome.PASS, True)
        assert {path: path.stat().st_mtime_ns for path in shards} == shards
        process.terminate()
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
        store.close()


@pytest.mark.slow
def test_from_the_command_line_every_few_seconds_to_a_bundle(tmp_path: Path, quick: Fleet) -> None:
    uri = f"sqlite:///{tmp_path}/schedules.db"
    file = tmp_path / "fleet.yaml"
    file.write_text(yaml.safe_dump(quick.config.model_dump(mode="json", exclude_defaults=True)))

    def said(*words: str, code: int = 0) -> str:
        ran = CliRunner().invoke(app, ["schedule", *words, "--db", uri])
        assert ran.exit_code == code, ran.output
        return ran.output

    assert "next 20" in said("add", str(file), "--name", "often", "--cron", "*/3 * * * * *", "--overlap", "queue")
    assert "skip or queue" in said("add", str(file), "--cron", "0 3 * * *", "--overlap", "wait", code=2)
    assert "paused" in said("pause", "often") and "paused" in said("list")
    assert "next 20" in said("resume", "often")
    assert "due now" in said("run-now", "often")
    store = Store(uri)
    process = start_scheduler(uri, tmp_path / "log")
    try:
        until(store, lambda result: sum(each.state is FiringState.DONE for each in result) >= 2)
        said("pause", "often")
    finally:
        process.terminate()
        assert process.wait(20) == 0, (tmp_path / "log").read_text()
    body = json.loads(said("history", "often", "--limit", "100", "--json"))
    done = [each for each in body if each["state"] == "done"]
    assert {each["outcome"] for each in done} == {"pass"}
    assert len({each["bundle"] for each in done}) == len(done) >= 2
    assert all((Path(each["bundle"]) / "bundle.json").exists() for each in done)
    assert "done, pass" in said("history")
    assert "removed" in said("remove", "often") and said("list") == ""
    assert "the name of a schedule" in said("remove", "often", code=2)
    for each in store.firings(FiringState.RUNNING):
        clients(quick.config.storage).wait(each.submission, timeout=60)
    store.close()
