"""What a user sees of a sweep: a table on a terminal, a line an epoch on a pipe."""

from __future__ import annotations

import io

from rich.console import Console

from jobs.training.progress import SHOWN, Row, TrainTerminal, duration, training_table
from services.records.trials import EpochPoint, Shares


def point(epoch: int, seconds: float = 30.0) -> EpochPoint:
    return EpochPoint(epoch, 1.25, 0.1, seconds, Shares(clean=0.5), Shares(0.9, 0.51, 0.1))


def printed(table: object) -> str:
    page = io.StringIO()
    Console(file=page, width=120).print(table)
    return page.getvalue()


def test_lines_on_a_pipe() -> None:
    page = io.StringIO()
    with TrainTerminal(Console(file=page, width=200)) as terminal:
        terminal.sweep(["one", "two"], [4, 4])
        terminal.begun("one", 2)
        terminal.epoch("one", point(2))
        terminal.note("[note]")
    assert page.getvalue().splitlines() == [
        "training 2 trials",
        "one: goes on after epoch 2",
        "one: epoch 3/4 loss 1.250 clean 0.900 robust 0.510 worst 0.100 left 00:30",
        "[note]",
    ]


def test_a_live_table_on_a_terminal() -> None:
    page = io.StringIO()
    with TrainTerminal(Console(file=page, width=120, force_terminal=True)) as terminal:
        terminal.sweep(["one", "two"], [3, 3])
        terminal.begun("one", 0)
        terminal.epoch("one", point(0))
    last = page.getvalue().rsplit("trial", 1)[1]
    assert "1/3" in last and "training" in last and "waiting" in last and "01:00" in last


def test_the_time_left_is_told_by_the_epochs_seen() -> None:
    row = Row(10, state="training")
    assert row.left is None
    for epoch, seconds in ((5, 10.0), (6, 20.0)):
        row.take(point(epoch, seconds))
    assert row.left == 3 * 15.0
    row.state = "finished"
    assert row.left is None
    assert (duration(3723), duration(59.6), duration(None)) == ("1:02:03", "01:00", "-")


def test_of_many_trials_those_that_run_are_shown_first() -> None:
    rows = {f"t{index}": Row(1, state="finished") for index in range(100)}
    rows["runs"] = Row(1, state="training")
    text = printed(training_table(rows))
    assert text.index("runs") < text.index("t0") and f"{SHOWN} of 101 trials; 100 ended" in text


def test_mappers_show_what_they_explain_and_networks_their_accuracies() -> None:
    mapped = EpochPoint(0, 2.5, 0.001, 1.0, Shares(), explained=0.625, parts={"divergence": 1.0})
    page = io.StringIO()
    with TrainTerminal(Console(file=page, width=200)) as terminal:
        terminal.sweep(["m"], [4])
        terminal.begun("m", 0)
        terminal.epoch("m", mapped)
    assert page.getvalue().splitlines()[-1] == "m: epoch 1/4 loss 2.500 expl. 0.625 left 00:03"
    rows = {"net": Row(3, point=point(0)), "m": Row(3, point=mapped)}
    lines = printed(training_table(rows)).splitlines()
    assert lines[1].split() == ["trial", "state", "epoch", "loss", "clean", "robust", "worst", "expl.", "left"]
    assert lines[3].split() == ["net", "waiting", "0/3", "1.250", "0.900", "0.510", "0.100", "-", "-"]
    assert lines[4].split() == ["m", "waiting", "0/3", "2.500", "-", "-", "-", "0.625", "-"]
    alone = printed(training_table({"m": Row(3, point=mapped)}))
    assert "clean" not in alone and "expl." in alone
