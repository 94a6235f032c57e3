"""The dispatch policy: nothing lost, nothing done twice at once, models kept together, killers found out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.errors import WorkerError
from services.records import ModelSpec, SampleSpec, ShardTask
from services.running.dispatch import Dispatcher

SAMPLES = SampleSpec("npz:x")


def task(model: str, start: int) -> ShardTask:
    return ShardTask("logits", ModelSpec(model, "factory:m:f"), SAMPLES, start, start + 10, 0, 8)


def tasks(models: int, shards: int) -> list[ShardTask]:
    return [task(f"m{m}", 10 * s) for m in range(models) for s in range(shards)]


def test_one_worker_takes_a_model_whole_before_the_next() -> None:
    queue = Dispatcher(tasks(3, 4))
    names = []
    while (got := queue.next_for("w")) is not None:
        names.append(got.model.name)
        queue.succeeded("w", got)
    assert [name for name, other in zip(names, ["", *names[:-1]], strict=True) if name != other] == ["m0", "m1", "m2"]
    assert queue.finished


def test_two_workers_start_on_different_models() -> None:
    queue = Dispatcher(tasks(2, 3))
    first, second = queue.next_for("a"), queue.next_for("b")
    assert first is not None
    assert second is not None
    assert first.model.name != second.model.name


def test_a_remote_model_is_run_by_one_worker_at_a_time() -> None:
    remote = [replace(task("r", start), model=ModelSpec("r", "http:http://h/invocations")) for start in (0, 10, 20)]
    queue = Dispatcher([*remote, task("local", 0)])
    first = queue.next_for("a")
    assert first == remote[0]
    assert queue.next_for("b") == task("local", 0)
    assert queue.next_for("c") is None and not queue.finished
    assert queue.next_for("a") == remote[1]
    queue.died("a")
    assert queue.next_for("c") == remote[0]
    queue.succeeded("c", remote[0])
    assert queue.next_for("b") == remote[1]


def test_a_dead_workers_shards_come_back_in_order() -> None:
    queue = Dispatcher(tasks(1, 4))
    given_out = [queue.next_for("a"), queue.next_for("a")]
    assert queue.died("a") == given_out
    assert [queue.next_for("b"), queue.next_for("b")] == given_out


def test_a_shard_that_kills_three_workers_is_named() -> None:
    queue = Dispatcher(tasks(1, 1), attempts=3)
    for worker in ("a", "b"):
        queue.next_for(worker)
        queue.died(worker)
    queue.next_for("c")
    with pytest.raises(WorkerError, match=r"m0, logits, rows 0 to 10: .* 3 workers that died"):
        queue.died("c")


def test_a_killers_model_is_dropped_and_the_others_go_on() -> None:
    queue = Dispatcher([*tasks(1, 4), task("other", 0)], attempts=1)
    queue.next_for("a")
    queue.next_for("a")
    with pytest.raises(WorkerError):
        queue.died("a")
    left = queue.next_for("b")
    assert left == task("other", 0)
    queue.succeeded("b", left)
    assert queue.finished


def test_a_dropped_models_shards_do_not_come_back_with_a_death_and_accuse_nobody() -> None:
    queue = Dispatcher(tasks(1, 3), attempts=1)
    first, second = queue.next_for("a"), queue.next_for("b")
    assert first is not None
    assert second is not None
    queue.failed("a", first)
    assert queue.died("b") == []
    assert queue.finished


def test_a_failed_task_drops_the_rest_of_its_model_only() -> None:
    queue = Dispatcher(tasks(2, 3))
    got = queue.next_for("a")
    assert got is not None
    queue.failed("a", got)
    left = []
    while (item := queue.next_for("a")) is not None:
        left.append(item)
        queue.succeeded("a", item)
    assert {item.model.name for item in left} == {"m0", "m1"} - {got.model.name}
    assert len(left) == 3


@given(st.lists(st.sampled_from(["next", "done", "die"]), max_size=200), st.integers(1, 4), st.integers(1, 5))
def test_every_task_is_done_once_whatever_happens(events: list[str], models: int, shards: int) -> None:
    wanted = tasks(models, shards)
    queue = Dispatcher(wanted, attempts=10_000)
    running: dict[int, list[ShardTask]] = {0: [], 1: []}
    done: list[ShardTask] = []
    for count, event in enumerate([*events, *["next", "done"] * 2 * len(wanted) * 2]):
        worker = count % 2 if event != "done" else (count // 2) % 2
        if event == "next" and (got := queue.next_for(worker)) is not None:
            running[worker].append(got)
        elif event == "done" and running[worker]:
            finished = running[worker].pop(0)
            queue.succeeded(worker, finished)
            done.append(finished)
        elif event == "die":
            assert queue.died(worker) == running[worker]
            running[worker] = []
    for worker in running:
        while running[worker] or (got := queue.next_for(worker)) is not None:
            if not running[worker]:
                running[worker].append(got)
            finished = running[worker].pop(0)
            queue.succeeded(worker, finished)
            done.append(finished)
    assert sorted(done, key=str) == sorted(wanted, key=str)
    assert queue.finished


def test_a_death_before_the_last_progress_counts_no_more() -> None:
    queue = Dispatcher(tasks(1, 1), attempts=2)
    for _ in range(5):
        got = queue.next_for("w")
        assert got is not None
        queue.progressed(got)
        queue.died("w")
    queue.next_for("w")
    with pytest.raises(WorkerError, match="2 workers that died on it"):
        queue.died("w")
