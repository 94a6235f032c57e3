"""What was accepted is audited once, whatever ends between the acceptance and the start."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.fleetfile.reading import Fleet, validate_fleet
from jobs.submission import dispatcher as dispatching
from jobs.submission.backend import AlreadySubmitted, JobInfo, Phase
from jobs.submission.client import AuditClient
from jobs.submission.local_jobs import LocalJobs
from jobs.submission.queue import PRIORITIES, Queue
from jobs.submission.status import State
from jobs.submission.submission import Ending, Submission, folder_in, write_ending
from jobs.submission.watched import WatchedJobs
from services.errors import Problem, ServiceError, UnknownAudit
from services.records import Outcome


class Head:
    """A job server whose jobs wait, begin and are forgotten as the test says; a name is started once."""

    address = "test"

    def __init__(self) -> None:
        self.jobs: dict[str, JobInfo] = {}
        self.started: list[str] = []
        self.stopped: list[str] = []
        self.down = False
        self.before_start: Callable[[str], object] = lambda name: None

    def start(self, name: str, folder: str, metadata: Mapping[str, str], environment: Mapping[str, str]) -> None:
        self.before_start(name)
        self._require_up()
        known = self.jobs.get(name)
        if known is not None and known.metadata["classwise.attempt"] == metadata["classwise.attempt"]:
            raise AlreadySubmitted(Problem(name, "a new job", "one that is there"))
        self.jobs[name] = JobInfo(name, Phase.PENDING, metadata=dict(metadata))
        self.started.append(name)

    def set(self, name: str, phase: Phase) -> None:
        self.jobs[name] = JobInfo(name, phase, metadata=self.jobs[name].metadata)

    def info(self, name: str) -> JobInfo | None:
        return next((info for info in self.infos() if info.id == name), None)

    def infos(self) -> list[JobInfo]:
        self._require_up()
        return list(self.jobs.values())

    def logs(self, name: str) -> str:
        return ""

    def stop(self, name: str) -> None:
        self._require_up()
        self.stopped.append(name)

    def check(self) -> None:
        self._require_up()

    def _require_up(self) -> None:
        if self.down:
            raise ServiceError(Problem("test", "an answer", "none"))


@pytest.fixture
def head() -> Head:
    return Head()


@pytest.fixture
def client(head: Head, tmp_path: Path) -> AuditClient:
    return AuditClient(head, storage=str(tmp_path), offline=True)


def fleet(tmp_path: Path, name: str) -> Fleet:
    models = [{"name": "m", "uri": "export:/nowhere/m.pt2"}]
    data = {"fleet": name, "models": models, "samples": {"uri": "sklearn:digits"}, "storage": str(tmp_path)}
    return validate_fleet({**data, "measures": ["clean"]})


def test_an_accepted_audit_survives_the_end_of_whoever_accepted_it(quick_fleet: dict[str, Any], tmp_path: Path) -> None:
    storage = str(tmp_path / "runs")
    first = AuditClient(LocalJobs(storage), storage=storage, offline=True)
    accepted = first.enqueue(validate_fleet({**quick_fleet, "storage": storage}), "night", caller="ci")
    assert (accepted.state, accepted.caller, accepted.key) == (State.QUEUED, "ci", "night")

    later = AuditClient(LocalJobs(storage), storage=storage, offline=True)  # another process, after a crash
    assert later.status(accepted.id).attempt == accepted.attempt and later.active_callers() == {accepted.id: "ci"}
    dispatcher = later.dispatcher()
    dispatcher.look()
    assert later.wait(accepted.id, timeout=120, poll=0.1).outcome is Outcome.PASS
    assert dispatcher.look() == 0 and later.active() == set()
    assert later.status(accepted.id).attempt == accepted.attempt
    again = later.enqueue(validate_fleet({**quick_fleet, "storage": storage}), "night", caller="ci")
    assert (again.state, again.outcome, dispatcher.look()) == (State.FINISHED, Outcome.PASS, 0)


def test_an_entry_stays_until_its_audit_has_begun(client: AuditClient, head: Head, tmp_path: Path) -> None:
    """So a head that goes with all its records takes no waiting audit along, and none is started twice."""
    name = client.enqueue(fleet(tmp_path, "f"), "k").id
    assert client.dispatcher().look() == 1 and client.dispatcher().look() == 1  # a second process looks as well
    assert head.started == [name] and client.status(name).state is State.QUEUED
    head.jobs.clear()
    assert client.dispatcher().look() == 1 and head.started == [name, name]
    head.set(name, Phase.RUNNING)
    assert client.dispatcher().look() == 0 and client.status(name).state is State.RUNNING
    head.jobs.clear()
    assert client.dispatcher().look() == 0 and len(head.started) == 2


def test_nothing_is_kept_of_a_refused_audit_that_was_cancelled(client: AuditClient, head: Head, tmp_path: Path) -> None:
    def refuse(name: str) -> None:
        raise ServiceError(Problem("test", "room", "none"))

    head.before_start = refuse
    dispatcher = client.dispatcher()
    names = [client.enqueue(fleet(tmp_path, f"f{number}")).id for number in range(3)]

    def kept() -> int:
        return sum(len(value) for value in vars(dispatcher).values() if isinstance(value, dict))

    before = kept()
    assert dispatcher.look() == 3 and kept() == before + 3
    for name in names:
        assert client.request_stop(name).state is State.STOPPED
    assert dispatcher.look() == 0 and kept() == before


def test_one_that_began_and_was_forgotten_is_not_begun_again(client: AuditClient, head: Head, tmp_path: Path) -> None:
    accepted = client.enqueue(fleet(tmp_path, "f"))
    write_ending(accepted.folder, Ending(accepted.attempt, "finished", Outcome.FAIL, bundle="b"))
    assert client.status(accepted.id).outcome is Outcome.FAIL
    assert client.dispatcher().look() == 0 and head.started == []


def test_the_highest_priority_goes_first_and_few_wait_at_the_job_server(
    client: AuditClient, head: Head, tmp_path: Path
) -> None:
    names = {
        number: client.enqueue(fleet(tmp_path, f"f{number}"), priority=number % 3).id
        for number in range(dispatching.AHEAD + 3)
    }
    dispatcher = client.dispatcher()
    dispatcher.look()
    order = sorted(names, key=lambda number: (-(number % 3), number))
    assert head.started == [names[number] for number in order[: dispatching.AHEAD]]
    head.set(head.started[0], Phase.RUNNING)
    dispatcher.look()
    assert head.started == [names[number] for number in order[: dispatching.AHEAD + 1]]


def test_one_callers_many_audits_do_not_go_before_those_of_others(
    client: AuditClient, head: Head, tmp_path: Path
) -> None:
    """Who submits fifty first has one place at the job server left to others, and of equals the least served goes."""
    dispatcher, caller = client.dispatcher(), {}

    def submit(who: str, count: int, priority: int = 0) -> None:
        for number in range(count):
            name = client.enqueue(fleet(tmp_path, f"{who}{number}"), caller=who, priority=priority).id
            caller[name] = who

    def look() -> list[str]:
        dispatcher.look()
        return [caller[name] for name in head.started]

    submit("eve", 20)
    assert look() == ["eve"] * 3
    submit("ann", 2)
    submit("bob", 2)
    assert look() == ["eve"] * 3 + ["ann"]
    for name in head.started[:3]:
        head.set(name, Phase.RUNNING)
    assert look() == ["eve"] * 3 + ["ann", "bob", "ann", "bob"]  # three of eve's run
    submit("eve", 1, priority=7)
    for name in head.started[3:]:
        head.set(name, Phase.SUCCEEDED)
    assert look()[7:] == ["eve"] * 3  # the highest priority goes first all the same, and nobody else waits


def test_while_the_job_server_is_down_audits_are_accepted_and_known(
    client: AuditClient, head: Head, tmp_path: Path
) -> None:
    head.down = True
    name = client.enqueue(fleet(tmp_path, "f")).id
    assert client.enqueue(fleet(tmp_path, "f")).id == name
    assert [each.state for each in client.list()] == [State.QUEUED] and client.active() == {name}
    with pytest.raises(ServiceError):
        client.dispatcher().look()
    head.down = False
    client.dispatcher().look()
    assert head.started == [name]
    head.set(name, Phase.RUNNING)
    write_ending(folder_in(str(tmp_path), name), Ending(client.status(name).attempt, "running"))
    client.dispatcher().look()
    head.down = True
    assert client.status(name).state is State.RUNNING and "does not answer" in client.status(name).message
    with pytest.raises(UnknownAudit):
        client.status("f-0123456789abcdef")


def test_one_that_the_job_server_refuses_holds_up_no_other(client: AuditClient, head: Head, tmp_path: Path) -> None:
    first, second = (client.enqueue(fleet(tmp_path, name)).id for name in ("a", "b"))

    def refuse(name: str) -> None:
        if name == first:
            raise ServiceError(Problem(name, "a job", "one that is refused"))

    head.before_start = refuse
    assert client.dispatcher().look() == 2 and head.started == [second]


def test_a_cancelled_audit_does_not_begin(client: AuditClient, head: Head, tmp_path: Path) -> None:
    name = client.enqueue(fleet(tmp_path, "a")).id
    assert client.request_stop(name).state is State.STOPPED and client.dispatcher().look() == 0
    again = client.enqueue(fleet(tmp_path, "a"))
    assert again.id == name and again.state is State.QUEUED
    head.before_start = lambda started: client.request_stop(started)  # in the very moment
    client.dispatcher().look()
    assert head.stopped == [name] and client.dispatcher().look() == 0


def test_a_server_that_stopped_answering_is_asked_by_nobody_who_waits(head: Head) -> None:
    head.jobs["a"] = JobInfo("a", Phase.RUNNING)
    watched = WatchedJobs(head, every=0.01, fresh=0.3)
    assert [info.id for info in watched.infos()] == ["a"]
    watched.start("b", "folder", {"classwise.attempt": "1"}, {})
    assert {info.id for info in watched.infos()} == {"a", "b"}
    head.down = True
    with pytest.raises(ServiceError):
        for _ in range(1000):
            watched.infos()
            time.sleep(0.01)


@given(st.lists(st.tuples(st.integers(0, PRIORITIES - 1), st.integers(0, 30)), max_size=8))
def test_the_queue_keeps_one_entry_of_a_submission_by_priority(
    tmp_path_factory: pytest.TempPathFactory, wanted: list[tuple[int, int]]
) -> None:
    home = str(tmp_path_factory.mktemp("queue"))
    queue = Queue(home)
    for priority, number in wanted:
        name = f"f-{number:016x}"
        queue.put(Submission(name, "f", f"k{number}", folder_in(home, name)), caller="c", priority=priority)
    known = Queue(home).all()
    assert sorted(each.id for each in known) == sorted({f"f-{number:016x}" for _, number in wanted})
    assert [each.priority for each in known] == sorted((each.priority for each in known), reverse=True)
    for each in known:
        assert Queue(home).find(each.id) == each
        queue.remove(each.id)
    assert Queue(home).all() == []


@pytest.mark.parametrize("name", ["x", "0001-0000000000000-0123456789ab-f-0123456789abcdef.json", "..", "a.json"])
def test_what_others_put_into_the_queue_is_no_entry(name: str, tmp_path: Path) -> None:
    (tmp_path / "queue").mkdir()
    if name != "..":
        (tmp_path / "queue" / name).write_text("[1]")
    assert Queue(str(tmp_path)).all() == []
