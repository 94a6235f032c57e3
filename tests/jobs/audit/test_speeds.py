"""What is left of a stage: from predicted costs, corrected by what tasks took."""

from __future__ import annotations

import random
from typing import Any

import pytest

from jobs.audit.speeds import Remaining, Speed, predicted, scouts_first
from services.measures.clean import Clean
from services.measures.pgd import Pgd
from services.records import ModelSpec, Receipt, SampleSpec, ShardTask

PGD, CLEAN = Pgd(steps=20), Clean(name="clean")
SPEEDS = {"robust": Speed(0.001, 0.003), "plain": Speed(0.002, 0.007)}


def task(model: str, measure: Any, index: int) -> ShardTask:
    kind = "measure" if measure.needs == "model" else "derive"
    spec = ModelSpec(model, "x:y")
    return ShardTask(kind, spec, SampleSpec("npz:x"), 100 * index, 100 * index + 100, 0, 8, measure=measure.canonical())


def tasks(shards: int = 10) -> list[ShardTask]:
    return [task(model, measure, k) for model in SPEEDS for measure in (CLEAN, PGD) for k in range(shards)]


def cost(each: ShardTask) -> float:
    return predicted(each, SPEEDS)


def took(each: ShardTask, rng: random.Random) -> float:
    """The plain network breaks at the first steps: a tenth of what was predicted."""
    share = 0.1 if each.model.name == "plain" and "pgd" in each.measure else 0.8
    return cost(each) * share * rng.uniform(0.9, 1.1)


def test_the_price_of_a_sample() -> None:
    assert SPEEDS["robust"].seconds(PGD) == pytest.approx(20 * 0.003)
    assert SPEEDS["robust"].seconds(None) == 0.001
    assert SPEEDS["robust"].seconds(CLEAN) < 1e-4
    assert Speed.of({"forward": 0.5, "gradient": None}).seconds(PGD) == pytest.approx(0.5 * PGD.most_passes)
    assert Speed.of(None).seconds(PGD) > 0
    assert Speed.of({"forward": 0.001, "gradient": 0.003, "sort": 0.002}).seconds(PGD) == pytest.approx(
        20 * (0.003 + 0.5 * 0.002)
    )
    assert predicted(task("robust", PGD, 0), SPEEDS) == pytest.approx(100 * 20 * 0.003, rel=1e-3)


@pytest.mark.parametrize("workers", [1, 3])
def test_from_the_middle_on_what_is_left_is_right_within_a_quarter(workers: int) -> None:
    rng = random.Random(0)
    todo = [each for part in scouts_first(tasks()) for each in part]
    times = [took(each, rng) for each in todo]
    whole, now, remaining = sum(times) / workers, 0.0, Remaining(todo, cost, 0.0)
    errors = []
    for each, seconds in zip(todo, times, strict=True):
        now += seconds / workers
        share, left = remaining.done(Receipt(each, 100, 0, seconds), now)
        if now > whole / 2:
            errors.append(abs(left - (whole - now)) / whole)
            assert share == pytest.approx(now / whole, abs=0.1)
    assert max(errors) < 0.1 and left == pytest.approx(0, abs=1e-6)


def test_between_two_receipts_time_passes_but_not_beyond_one_task() -> None:
    todo = [task("robust", PGD, index) for index in range(4)]  # 6 s each as predicted
    remaining = Remaining(todo, cost, 100.0, workers=2)
    assert remaining.at(100.0) == (0.0, pytest.approx(12.0, rel=1e-3))
    assert remaining.at(102.0) == (pytest.approx(2 / 12, rel=1e-3), pytest.approx(10.0, rel=1e-3))
    assert remaining.at(150.0)[1] == pytest.approx(9.0, rel=1e-3), "two workers: one task of four ends after 3 s"
    share, left = remaining.done(Receipt(todo[0], 100, 0, 12.0), 112.0)
    assert (share, left) == remaining.at(112.0) == (0.25, pytest.approx(36.0))
    assert remaining.at(116.0) == (pytest.approx(0.25 + 0.75 * 4 / 36), pytest.approx(32.0))
    assert remaining.at(1e6)[1] == pytest.approx(24.0)
    for each in todo[1:]:
        remaining.done(Receipt(each, 100, 0, 12.0), 148.0)
    assert remaining.at(200.0) == (1.0, 0.0)


def test_instant_shards_do_not_count_as_much_as_slow_ones() -> None:
    """Half of the tasks are instant; when these are done hardly anything is."""
    todo = tasks()
    remaining, now = Remaining(todo, cost, 0.0), 0.0
    for each in (each for each in todo if each.kind == "derive"):
        now += 0.001
        share, left = remaining.done(Receipt(each, 100, 0, 0.001), now)
    assert share < 0.02 and left > 50


def test_an_instant_shard_says_nothing_of_slow_ones() -> None:
    """Reading and writing it took twenty times what was predicted, and nights were left of minutes."""
    todo = tasks()
    remaining, whole = Remaining(todo, cost, 0.0), sum(cost(each) for each in todo)
    instant = next(each for each in todo if each.kind == "derive")
    _, left = remaining.done(Receipt(instant, 100, 0, 20 * cost(instant)), 20 * cost(instant))
    assert left == pytest.approx(whole, rel=0.05)
    slow = next(each for each in todo if each.kind == "measure")
    _, left = remaining.done(Receipt(slow, 100, 0, 0.1 * cost(slow)), 0.1 * cost(slow))
    assert left < 0.5 * whole, "a slow one says something of others"


def test_one_task_of_each_kind_comes_first() -> None:
    first, rest = scouts_first(tasks())
    assert len(first) == 4 and {(each.model.name, each.measure) for each in first} == {
        (each.model.name, each.measure) for each in rest
    }
    assert sorted(each.title for each in (*first, *rest)) == sorted(each.title for each in tasks())
    assert scouts_first(tasks(2)) == [tasks(2)] and scouts_first([]) == [[]]


def test_a_task_that_failed_is_not_left() -> None:
    todo = [task("robust", PGD, start) for start in range(3)]
    remaining = Remaining(todo, cost, 0.0)
    remaining.dropped(todo[0])
    remaining.done(Receipt(todo[1], 100, 0, 2.0), 2.0)
    share, left = remaining.done(Receipt(todo[2], 100, 0, 2.0), 4.0)
    assert (share, left) == (1.0, 0.0)
