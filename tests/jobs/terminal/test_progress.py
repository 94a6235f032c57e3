"""What a user sees of an audit: a live bar on a terminal, a line a stage on a pipe and in CI."""

from __future__ import annotations

import io
import re
import time

import pytest
from rich.console import Console

from jobs.terminal.progress import Quiet, Rate, Reporter, Terminal
from services.records import ModelSpec, Receipt, SampleSpec, ShardTask


def receipt(model: str, rows: int) -> Receipt:
    task = ShardTask("logits", ModelSpec(model, "x:y"), SampleSpec("npz:x"), 0, rows, 0, 8)
    return Receipt(task, rows, rows, 0.5)


def tell_all(reporter: Reporter) -> None:
    reporter.stage("preflight", 0, 0)
    reporter.stage("logits", 4, 2)
    reporter.done(receipt("resnet20", 1000))
    reporter.remaining(0.4, 247.0)
    reporter.note("[note]")


def seen(*, terminal: bool, width: int = 140) -> str:
    page = io.StringIO()
    with Terminal(Console(file=page, width=width, force_terminal=terminal)) as reporter:
        tell_all(reporter)
    return re.sub("\x1b\\[[0-9;?]*[A-Za-z]", "", page.getvalue())


def test_a_pipe_gets_a_line_a_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    assert seen(terminal=False).splitlines() == ["logits: 4 shards of 2 models", "[note]"]


def test_one_is_not_many() -> None:
    page = io.StringIO()
    with Terminal(Console(file=page, width=140, force_terminal=False)) as reporter:
        reporter.stage("logits", 1, 1)
    assert page.getvalue() == "logits: 1 shard of 1 model\n"


@pytest.mark.parametrize(("width", "model"), [(80, ""), (140, " resnet20 .*")])
def test_a_terminal_shows_shards_models_images_a_second_and_time_left(
    width: int, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)
    last = seen(terminal=True, width=width).replace("\r", "\n").strip().splitlines()[-1]
    assert re.search(rf"^logits .* 1/4 shards of 2 models +[0-9,]+ images/s{model} left +4:07", last), last


def test_a_log_of_ci_that_passes_for_a_terminal_stays_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    assert seen(terminal=True).splitlines() == ["logits: 4 shards of 2 models", "[note]"]


def test_without_a_terminal_a_stage_says_a_line_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    now, page = [0.0], io.StringIO()
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with Terminal(Console(file=page, width=140, force_terminal=False)) as reporter:
        reporter.stage("measures", 40, 2)
        for _ in range(40):
            now[0] += 7.0
            reporter.done(receipt("resnet20", 1000))
            reporter.remaining(now[0] / 280.0, 280.0 - now[0])
    lines = page.getvalue().splitlines()
    assert lines[:2] == ["measures: 40 shards of 2 models", "measures: 9 of 40 shards, 22%, 3:37 left"]
    assert len(lines) == 5


def test_quiet_says_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    tell_all(Quiet())
    assert capfd.readouterr() == ("", "")


def test_images_a_second_count_from_the_stage_on() -> None:
    rate = Rate(10.0)
    assert rate.add(receipt("a", 100), 12.0) == 50.0
    assert rate.add(receipt("a", 300), 14.0) == 100.0
