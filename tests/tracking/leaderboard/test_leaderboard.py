"""The records of a leaderboard: keys and their order, flat tables, and the table for the terminal."""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from services.numerics.ranking.composite import composite
from services.records.estimates import Estimate
from tracking.leaderboard.known_numbers import Catalogue
from tracking.leaderboard.numbers import decimals, natural
from tracking.leaderboard.rows import (
    Board,
    Entry,
    Standing,
    board_json,
    csv_text,
    fill_parquet,
    flat_rows,
)
from tracking.leaderboard.spelled import number
from tracking.leaderboard.terminal import MOST_ROWS, board_text

Make = Callable[..., Board]


def test_table_4_comes_first_and_in_its_order() -> None:
    expected = [
        "clean/aggregate",
        "pgd10/linf-0.03137/aggregate",
        "pgd20/linf-0.03137/aggregate",
        "cw20/linf-0.03137/aggregate",
        "autoattack/linf-0.03137/aggregate",
        "great-softmax/aggregate",
        "pr/uniform-0.03137/aggregate",
        "pr/uniform-0.08/aggregate",
        "pr/uniform-0.1/aggregate",
        "pr/uniform-0.12/aggregate",
        "probacc/uniform-0.03137/aggregate",
        "mine/aggregate",
        "ge/pgd20/linf-0.03137",
        "ge/pr/uniform-0.08",
        "clean/wcr",
        "pgd20/linf-0.03137/wcr",
        "pgd20/linf-0.03137/nrgc",
        "train/seconds_per_epoch",
    ]
    mixed = random.Random(1).sample(expected, len(expected))
    assert mixed != expected and Catalogue().sorted(mixed) == expected


def test_numbers_in_names_are_compared_as_numbers() -> None:
    names = ["pgd100", "pgd20", "a", "pgd9x2", "pgd9"]
    assert sorted(names, key=natural) == ["a", "pgd9", "pgd9x2", "pgd20", "pgd100"]


@pytest.mark.parametrize(
    ("key", "lower"),
    [
        ("clean/aggregate", False),
        ("great/wcr", False),
        ("great/fp", False),
        ("great/rdi", True),
        ("pgd20/linf-0.1/nrgc", True),
        ("great/refuted", True),
        ("ge/clean", True),
        ("train/seconds_per_epoch", True),
    ],
)
def test_which_numbers_are_better_when_smaller(key: str, lower: bool) -> None:
    assert number(key).lower_is_better is lower


def test_an_attack_that_is_not_known_here_is_an_attack() -> None:
    """A published row of another tool's attack: the ball in its key says what it is."""
    series = number("fab20/linf-0.03137").series
    assert series is not None and series.attack and series.threat is not None and series.threat.norm == "Linf"
    assert number("fab20/linf-0.03137").range == (0.0, 1.0)


def test_the_range_that_a_key_tells() -> None:
    assert number("pgd20x5/linf-0.1/wcr").range == number("great/nrgc").range == (0.0, 1.0)
    assert number("great-softmax/aggregate").range == (0.0, float("inf"))
    assert number("ge/clean").range[0] == number("clean/fp").range[0] == -float("inf")


def test_numbers_are_told_in_five_characters() -> None:
    texts = [decimals(value) for value in (0.8341, -0.0124, 1.2049, 12.345, 1.0, 0.0, None)]
    assert texts == [".834", "-.012", "1.205", "12.35", "1.000", ".000", "–"]
    assert [number("train/seconds_per_epoch").formatted(value) for value in (0.041, 3.0, 61.24, 164.4)] == [
        "0.04",
        "3.00",
        "61.2",
        "164",
    ]


def test_csv_and_parquet_hold_every_number_with_its_limits(make_board: Make, tmp_path: Path) -> None:
    boards = [make_board(3), make_board(2, dataset='d,"x"\n')]
    rows = list(csv.DictReader(io.StringIO(csv_text(boards))))
    with (tmp_path / "rows.parquet").open("wb") as file:
        fill_parquet(boards, file)
    table = pq.read_table(tmp_path / "rows.parquet").to_pylist()
    assert table == flat_rows(boards) and len(rows) == len(table) == 5
    assert [float(row["clean/aggregate"]) for row in rows] == [row["clean/aggregate"] for row in table]
    assert table[0]["clean/aggregate_low"] is not None and rows[3]["dataset"] == 'd,"x"\n'
    assert table[2]["pgd20/linf-0.03137/aggregate"] is None and rows[2]["pgd20/linf-0.03137/aggregate"] == ""
    assert table[2]["score_reason"] == "ar not measured" and table[2]["place"] is None


def test_no_cell_of_the_csv_is_a_formula(make_board: Make) -> None:
    rows = list(csv.DictReader(io.StringIO(csv_text([make_board(3, dataset="=HYPERLINK(1)")]))))
    assert {row["dataset"] for row in rows} == {"'=HYPERLINK(1)"}
    numbers = [each for row in rows for key, each in row.items() if key.startswith("clean/") and each]
    assert numbers and not any(each.startswith("'") for each in numbers)


def test_json_is_plain_and_holds_the_standing(make_board: Make) -> None:
    body = json.loads(json.dumps(board_json(make_board(3)), allow_nan=False))
    assert [row["place"] for row in body["rows"]] == [1, 2, None]
    assert body["metrics"][1]["lower_is_better"] is False and body["rows"][0]["n"] == 1


def printed(board: Board, width: int = 80) -> list[str]:
    page = io.StringIO()
    Console(file=page, width=width).print(board_text(board, width))
    return page.getvalue().splitlines()


@pytest.mark.parametrize("metrics", [1, 2, 7])
@pytest.mark.parametrize("width", [80, 140])
def test_fifty_rows_fit_the_terminal_and_keep_their_names_apart(make_board: Make, metrics: int, width: int) -> None:
    board = make_board(50, metrics=metrics)
    lines = printed(board, width)
    assert max(map(len, lines)) <= width
    body = [line for line in lines if "model" in line and "." in line and "note" not in line]
    assert len(body) == 50 and len({line[4:] for line in body}) == 50
    assert ("low to high" in "\n".join(lines)) == (metrics < 7 or width > 80)


def test_a_table_of_many_rows_is_cut_and_says_so(make_board: Make) -> None:
    text = "\n".join(printed(make_board(MOST_ROWS + 5)))
    assert f"{MOST_ROWS} of {MOST_ROWS + 5} rows; --csv" in text


def test_marks_tell_front_separation_and_source(make_board: Make) -> None:
    board = make_board(4)
    entries = (*board.entries[:3], replace(board.entries[3], source="others"))
    marks = ((1, True, True), (2, None, False), (3, False, True), (None, None, None))
    standings = tuple(
        replace(each, place=place, with_leader=near, front=front)
        for each, (place, near, front) in zip(board.standings, marks, strict=True)
    )
    lines = printed(replace(board, entries=entries, standings=standings))
    firsts = [line.split()[0] for line in lines if " model 0" in line]
    assert firsts == ["1*", "2?", "3*", "–†"]


def test_a_range_wider_than_the_scale_is_no_number_in_the_terminal_but_in_the_files(make_board: Make) -> None:
    board = make_board(3)
    standings = (replace(board.standings[0], score=Estimate(0.75, -3724.187, 3588.173)), *board.standings[1:])
    wide = replace(board, standings=standings)
    assert "3724" not in "\n".join(printed(wide)) and any(" wide " in line for line in printed(wide))
    assert any(line.startswith("wide: ") for line in printed(wide)) and "wide" not in "\n".join(printed(board))
    assert flat_rows([wide])[0]["score_low"] == -3724.187


def test_a_metric_of_tiny_spread_makes_ranges_that_are_too_wide_to_tell() -> None:
    values = np.array([[0.90, 0.5000], [0.70, 0.5001], [0.80, 0.5000]])

    def wide(table: np.ndarray) -> list[bool]:
        count = table.shape[1]
        options: dict[str, Any] = {"names": ["a", "b"][:count], "weights": [1] * count}
        options["lower_is_better"] = [False] * count
        scores = composite(table, low=table - 0.03, high=table + 0.03, **options).scores
        return [Standing(1, score, None, None).wide for score in scores]

    assert wide(values) == [True] * 3 and wide(values[:, :1]) == [False] * 3
    assert not Standing(1, Estimate(0.5, -9.0), None, None).wide


def test_hostile_names_stay_on_their_line(make_board: Make) -> None:
    board = make_board(2, names=["[red]x[/red]\n\x1b[31m‮", "y" * 500], dataset="a\nb")
    lines = printed(board)
    assert max(map(len, lines)) <= 80 and "[red]x[/re" in "\n".join(lines)
    assert not any(char in "\n".join(lines) for char in "\x1b‮")


def test_a_board_of_training_samples_says_so(make_board: Make) -> None:
    board = make_board(2)
    assert replace(board, count=1000, split="train").title.endswith(", 1,000 train samples")
    assert replace(board, count=1000).title.endswith(", 1,000 samples")


def test_an_entry_counts_its_models() -> None:
    entry = Entry("a", "", "", "", "", {"clean/aggregate": Estimate(0.5)})
    assert entry.count == 1 and replace(entry, models=("a", "b")).count == 2
