"""The same store on SQLite and on PostgreSQL: nothing is claimed twice, and times come back as they were."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import sqlalchemy as sa

from jobs.fleetfile.reading import Fleet
from jobs.schedules.schedule import FiringState, Overlap, Schedule
from jobs.schedules.scheduler import Scheduler, new_schedule
from jobs.schedules.store import Store
from jobs.submission.client import AuditClient
from jobs.submission.submission import Ending, folder_in, write_ending
from services.errors import ConfigError, Problem, ServiceError, UnknownAudit
from services.records import Outcome

NOW = datetime(2026, 11, 28, 1, 0, 0, 123456, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)


@pytest.fixture(params=["sqlite", "postgresql"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/schedules.db"
    result: str = request.getfixturevalue("postgres")
    engine = sa.create_engine(result)
    with engine.begin() as link:
        link.execute(sa.text("DROP TABLE IF EXISTS classwise_schedules, classwise_firings"))
    engine.dispose()
    return result


def test_schedules_and_firings_are_kept(uri: str, make_fleet: Callable[..., Fleet]) -> None:
    store = Store(uri)
    night = new_schedule("night", make_fleet(), "30 2 * * *", zone="Europe/Berlin", overlap=Overlap.QUEUE, now=NOW)
    store.add(night)
    with pytest.raises(ConfigError, match="a new name, found 'night' again"):
        store.add(night)
    assert store.schedule("night") == night
    assert night.next_at == datetime(2026, 11, 28, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    with pytest.raises(ConfigError, match="did you mean 'night'"):
        store.schedule("nigth")

    assert store.claim(night, NOW, 3, LATER)
    (waiting,) = store.firings(FiringState.WAITING)
    assert (waiting.due_at, waiting.missed, waiting.fleet) == (NOW, 3, "shop")
    assert store.content(waiting) == night.content
    assert store.schedule("night").next_at == LATER
    assert store.start(waiting, "shop-0123456789abcdef")
    (running,) = store.firings(FiringState.RUNNING)
    assert store.end(running, FiringState.DONE, LATER, outcome=Outcome.FAIL, bundle="/b", message="x" * 5000)
    (done,) = store.firings(schedule="night")
    assert (done.outcome, done.bundle, done.ended_at, len(done.message)) == (Outcome.FAIL, "/b", LATER, 4000)
    assert not store.end(running, FiringState.LOST, LATER)
    store.set_paused("night", True, None)
    store.close()

    again = Store(uri)
    assert again.schedule("night") == replace(night, paused=True, next_at=None)
    assert not again.claim(replace(night, next_at=LATER), LATER, 0, None)
    again.remove("night")
    assert again.schedules() == [] and again.firings() == [done]
    again.close()


def test_a_time_on_record_is_not_fired_twice(uri: str, make_fleet: Callable[..., Fleet]) -> None:
    store = Store(uri)
    known = new_schedule("a", make_fleet(), "0 * * * *", now=NOW)
    for claimed in (True, False):
        store.add(known)
        assert store.claim(known, LATER, 0, LATER + timedelta(hours=1)) is claimed
        assert store.schedule("a").next_at == LATER + timedelta(hours=1)
        store.remove("a")
    assert len(store.firings()) == 1
    store.close()


def test_of_many_schedulers_one_claims_and_one_runs(uri: str, make_fleet: Callable[..., Fleet]) -> None:
    stores = [Store(uri) for _ in range(4)]
    known = new_schedule("a", make_fleet(), "0 * * * *", now=NOW)
    other = new_schedule("b", make_fleet(), "0 * * * *", now=NOW)
    for schedule in (known, other):
        stores[0].add(schedule)

    def claim(store: Store) -> int:
        return sum(store.claim(schedule, LATER, 0, LATER + timedelta(hours=1)) for schedule in (known, other))

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(claim, stores)) == 2
        waiting = stores[0].firings(FiringState.WAITING)
        assert {firing.schedule for firing in waiting} == {"a", "b"}
        started = list(pool.map(lambda store: sum(store.start(firing, "s") for firing in waiting), stores))
    assert sum(started) == 1
    (running,) = stores[0].firings(FiringState.RUNNING)
    assert stores[1].put_back(running, "down") and not stores[2].put_back(running, "down")
    assert len(stores[3].firings(FiringState.WAITING)) == 2
    for store in stores:
        store.close()


def test_many_stores_open_one_fresh_database(uri: str) -> None:
    with ThreadPoolExecutor(16) as pool:
        for store in pool.map(lambda _: Store(uri), range(16)):
            assert store.schedules() == []
            store.close()


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("mysql://x", "sqlite:///FILE or postgresql"),
        ("nonsense", "the URI of a database"),
    ],
)
def test_another_kind_of_database_is_refused(uri: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Store(uri)


def test_a_database_that_is_down_is_one_clear_error_without_its_password(tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match="a database that can be written") as caught:
        Store("postgresql+psycopg://user:hush@127.0.0.1:9/none")
    assert "hush" not in str(caught.value)
    (tmp_path / "file").write_text("")
    with pytest.raises(ServiceError, match="a database that can be written"):
        Store(f"sqlite:///{tmp_path}/file/x.db")


def test_a_schedule_is_checked_when_it_is_added(make_fleet: Callable[..., Fleet]) -> None:
    def made(name: str = "a", cron: str = "0 3 * * *") -> Schedule:
        return new_schedule(name, make_fleet(), cron, now=NOW)

    for name in ("", "a\n", "a" * 101, " a", "é"):
        with pytest.raises(ConfigError, match="printable ASCII"):
            made(name)
    with pytest.raises(ConfigError, match="comes due some day"):
        made(cron="0 0 30 2 *")


def test_an_update_keeps_firings_and_what_is_not_named(uri: str, make_fleet: Callable[..., Fleet]) -> None:
    store = Store(uri)
    night = new_schedule("night", make_fleet(), "30 2 * * *", zone="Europe/Berlin", now=NOW)
    store.add(night)
    store.set_fault("night", "broken")
    assert store.claim(night, NOW, 0, LATER)
    changed = new_schedule("night", make_fleet("other"), "0 5 * * *", overlap=Overlap.QUEUE, now=NOW)
    store.update(changed)
    assert store.schedules() == [changed]
    assert [firing.fleet for firing in store.firings()] == ["shop"]
    with pytest.raises(ConfigError, match="did you mean 'night'"):
        store.update(replace(changed, name="nigth"))
    store.close()


def test_old_firings_go_but_the_latest_of_each_schedule_and_those_that_run(
    uri: str, make_fleet: Callable[..., Fleet]
) -> None:
    store = Store(uri)
    for name in ("a", "b"):
        known = new_schedule(name, make_fleet(name), "0 * * * *", now=NOW)
        store.add(known)
        for hour in range(3):
            store.fire(known, NOW + timedelta(hours=hour))
    first, second, *_ = store.firings(schedule="a")
    for firing in (first, second, *store.firings(schedule="b")):
        assert store.start(firing, f"{firing.fleet}-0123456789abcdef")
        running = next(each for each in store.firings(FiringState.RUNNING) if each.id == firing.id)
        assert store.end(running, FiringState.DONE, LATER, outcome=Outcome.PASS)
    assert store.forget(LATER) == 0
    assert store.forget(LATER + timedelta(seconds=1)) == 4
    assert [(each.schedule, each.state) for each in store.firings()] == [
        ("a", FiringState.WAITING),
        ("b", FiringState.DONE),
    ]
    store.close()


@pytest.mark.parametrize("text", ["a\x00b", "a\ud800b", "\x00" * 5000])
def test_text_that_no_database_takes_is_kept_without_what_it_does_not(
    uri: str, make_fleet: Callable[..., Fleet], text: str
) -> None:
    store = Store(uri)
    night = new_schedule("night", make_fleet(), "0 * * * *", now=NOW)
    store.add(night)
    store.set_fault("night", text)
    assert store.schedule("night").fault.startswith(("a", "\ufffd"))
    store.fire(night, NOW)
    (waiting,) = store.firings(FiringState.WAITING)
    assert store.start(waiting, "shop-0123456789abcdef")
    (running,) = store.firings(FiringState.RUNNING)
    assert store.end(running, FiringState.LOST, LATER, bundle=text, message=text)
    (lost,) = store.firings(schedule="night")
    assert "\x00" not in lost.message and "\x00" not in lost.bundle and lost.message
    store.close()


class Idle:
    """A job server that starts nothing, and says what it was asked to start."""

    address = "none"

    def __init__(self) -> None:
        self.started: list[str] = []

    def info(self, name: str) -> None:
        return None

    def infos(self) -> list[Any]:
        return []

    def start(self, name: str, *rest: object) -> None:
        self.started.append(name)


def test_an_ending_with_text_that_no_database_takes_ends_no_scheduling(
    uri: str, make_fleet: Callable[..., Fleet]
) -> None:
    """Workers write endings. A NUL in one was an error of PostgreSQL, and taken for its outage at every look."""
    store, jobs = Store(uri), Idle()
    for name in ("bad", "good"):
        store.add(new_schedule(name, make_fleet(name), "0 * * * *", now=NOW))
    store.fire(store.schedule("bad"), NOW)
    (waiting,) = store.firings(FiringState.WAITING)
    assert store.start(waiting, "bad-0123456789abcdef")
    problems = (Problem("m\x00", "x", "\x00"),)
    folder = folder_in(str(store.content(waiting)["storage"]), "bad-0123456789abcdef")
    write_ending(folder, Ending("1", "finished", Outcome.ERROR, bundle="/b\x00", problems=problems))
    clients: Callable[[str], AuditClient] = lambda base: AuditClient(jobs, storage=base)  # type: ignore[arg-type] # noqa: E731
    with suppress(UnknownAudit):  # this job server forgets at once what it was asked for
        Scheduler(store, clients, clock=lambda: LATER + timedelta(hours=1)).tick()
    assert [name for name in jobs.started if name.startswith("good")]
    assert store.firings(schedule="bad")[0].state is FiringState.DONE
    store.close()
