"""The commands that change a schedule."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from jobs.cli import app
from jobs.schedules.schedule import FiringState, Overlap
from jobs.schedules.scheduler import now_utc
from jobs.schedules.store import Store


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/schedules.db"


@pytest.fixture
def schedule(uri: str, tmp_path: Path) -> Callable[..., str]:
    def run(*words: str, code: int = 0) -> str:
        ran = CliRunner().invoke(app, ["schedule", *words, "--db", uri])
        assert ran.exit_code == code, ran.output
        return ran.output

    return run


def written(tmp_path: Path, name: str, **more: Any) -> str:
    data = {"fleet": "shop", "models": [{"name": "m", "uri": "logits:/d/m.npz"}], "samples": {"uri": "npz:/d/s.npz"}}
    path = tmp_path / name
    path.write_text(yaml.safe_dump({**data, "storage": str(tmp_path / "runs"), **more}))
    return str(path)


def test_update_changes_what_is_named_and_nothing_else(schedule: Callable[..., str], uri: str, tmp_path: Path) -> None:
    schedule("add", written(tmp_path, "one.yaml"), "--name", "night", "--cron", "30 2 * * *", "--zone", "Europe/Berlin")
    store = Store(uri)
    before = store.schedule("night")
    assert "0 4 * * * Europe/Berlin, skip, next" in schedule("update", "night", "--cron", "0 4 * * *")
    after = store.schedule("night")
    assert (after.content, after.zone, after.overlap, after.cron) == (
        before.content,
        "Europe/Berlin",
        Overlap.SKIP,
        "0 4 * * *",
    )
    schedule("update", "night", "--fleet-file", written(tmp_path, "two.yaml", seed=7), "--overlap", "queue")
    assert store.schedule("night").content == {**before.content, "seed": 7}
    schedule("pause", "night")
    assert "paused" in schedule("update", "night", "--zone", "UTC")
    assert store.schedule("night").paused and store.schedule("night").next_at is None
    schedule("resume", "night")
    assert store.schedule("night").next_at is not None and store.schedule("night").zone == "UTC"
    store.close()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nigth", "--cron", "0 4 * * *"), "did you mean 'night'"),
        (("night", "--cron", "0 4 * *"), "five fields"),
        (("night", "--zone", "Europe/Bonn"), "IANA name"),
        (("night", "--overlap", "both"), "skip or queue"),
        (("night", "--fleet-file", "nowhere.yaml"), "nowhere.yaml"),
    ],
)
def test_a_mistake_changes_nothing(
    words: tuple[str, ...], said: str, schedule: Callable[..., str], uri: str, tmp_path: Path
) -> None:
    schedule("add", written(tmp_path, "one.yaml"), "--name", "night", "--cron", "30 2 * * *")
    store = Store(uri)
    before = store.schedules()
    assert said in schedule("update", *words, code=2)
    assert store.schedules() == before
    store.close()


def test_forget_says_how_many_went(schedule: Callable[..., str], uri: str, tmp_path: Path) -> None:
    schedule("add", written(tmp_path, "one.yaml"), "--name", "night", "--cron", "30 2 * * *")
    store = Store(uri)
    known = store.schedule("night")
    for days in (30, 20, 1):
        store.fire(known, now_utc() - timedelta(days=days))
    for firing, days in zip(store.firings(), (30, 20, 1), strict=True):
        store.end(firing, FiringState.SKIPPED, now_utc() - timedelta(days=days))
    assert schedule("forget", "--days", "25") == "1 firing removed\n"
    assert schedule("forget", "--days", "0.5", code=2)
    assert len(store.firings()) == 2
    store.close()
