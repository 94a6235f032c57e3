"""The page as text, and in a browser: it must rank as Python does, follow the weights, and keep names as text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from services.numerics.ranking.composite import composite, pareto_front, places, with_leader
from services.records.estimates import Estimate
from tracking.leaderboard.page import render
from tracking.leaderboard.rows import NOT_MEASURED, SCALE, Board, Entry
from tracking.leaderboard.spelled import number

Make = Callable[..., Board]
ROWS = """return [...document.querySelectorAll('#rows tbody tr')].map(row => ({
  name: row.querySelector('th bdi').textContent, place: row.cells[0].textContent,
  score: row.querySelector('.score').dataset, chips: [...row.querySelectorAll('.chip')].map(c => c.textContent),
  numbers: [...row.querySelectorAll('td.number')].map(c => c.dataset.value)}))"""


class Page(HTMLParser):
    """Tags, handlers and addresses that a browser would act on."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.found: list[tuple[str, str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.found += [(name, value or "") for name, value in attributes if name.startswith("on")]
        self.found += [(name, value or "") for name, value in attributes if name in {"src", "href"}]


def embedded(text: str) -> dict[str, Any]:
    rows = re.search(r'id="data">(.*?)</script>', text, re.S)
    assert rows
    data: dict[str, Any] = json.loads(rows[1])
    return data


def test_the_page_is_self_contained_and_small(make_board: Make) -> None:
    text = render([make_board(200, metrics=7)], store="sqlite:///x.db")
    page = Page(text)
    assert page.found == [("href", "data:,"), ("href", "#ranking")] and page.tags.count("script") == 2
    assert "http" not in re.sub(r"http://www.w3.org/2000/svg", "", text) and len(text) < 400_000
    assert len(embedded(text)["boards"][0]["rows"]) == 200


def test_cells_hold_numbers_in_full_or_the_reason(make_board: Make) -> None:
    board = make_board(3, metrics=7)
    data = embedded(render([board], store="x"))["boards"][0]
    keys = [column["key"] for column in data["columns"]]
    value = board.entries[0].numbers["clean/aggregate"]
    assert data["rows"][0]["cells"][keys.index("clean")] == [value.value, value.low, value.high, None]
    assert data["rows"][2]["cells"][keys.index("pgd20/linf-0.03137")] == "not measured"
    seconds = board.entries[0].numbers["train/seconds_per_epoch"].value
    assert data["rows"][0]["cells"][keys.index("train/seconds_per_epoch")] == [seconds, seconds, seconds, None]
    assert [column["key"] for column in data["columns"] if column["lower"]] == [
        "ge/pgd20/linf-0.03137",
        "ge/pr/uniform-0.08",
        "pgd20/linf-0.03137/nrgc",
        "train/seconds_per_epoch",
    ]


HOSTILE = ("<img src=x onerror=alert(1)>", "</script><script>alert(2)</script>", "\u202eevil", "猫", "x" * 5_000)


@pytest.fixture
def hostile_board(make_board: Make) -> Board:
    board = make_board(5, names=HOSTILE, metrics=3, dataset="<b>d</b>")
    entries = tuple(
        replace(entry, method=f"{name[:40]}", worst={"pgd20/linf-0.03137": name}, source=name if index == 1 else "")
        for index, (entry, name) in enumerate(zip(board.entries, HOSTILE, strict=True))
    )
    return replace(board, entries=entries, notes=HOSTILE[:2])


def test_names_cannot_break_out(hostile_board: Board) -> None:
    page = Page(render([hostile_board], store=HOSTILE[0], notes=HOSTILE))
    assert page.tags.count("script") == 2 and "img" not in page.tags
    assert page.found == [("href", "data:,"), ("href", "#ranking")]


def opened(browser: Any, boards: Sequence[Board], folder: Path, **options: Any) -> Any:
    path = folder / "page.html"
    path.write_text(render(list(boards), store="sqlite:///x.db", **options), encoding="utf-8")
    browser.get_log("browser")
    browser.get(path.as_uri())
    return browser


@pytest.fixture
def quiet(browser: Any) -> Iterator[Any]:
    """The browser, whose console must stay empty of errors."""
    yield browser
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


def set_weight(browser: Any, place: int, value: float, kind: str = "number") -> None:
    browser.execute_script(
        "const input = document.querySelectorAll('#weights .weight')[arguments[0]].querySelector(arguments[1]);"
        "input.value = arguments[2]; input.dispatchEvent(new Event('input', {bubbles: true}))",
        place,
        f"input[type={kind}]",
        str(value),
    )


def select(browser: Any, name: str, value: str) -> None:
    browser.execute_script(
        "const found = document.querySelector(`select[name=${arguments[0]}], select#${arguments[0]}`);"
        "found.value = arguments[1];"
        "for (const kind of ['input', 'change']) found.dispatchEvent(new Event(kind))",
        name,
        value,
    )


def by_python(board: Board, entries: Sequence[Entry], weights: Sequence[float]) -> dict[str, tuple[Any, ...]]:
    """Score, place, separation and front of each row by the Python implementation."""

    def table(keys: Sequence[str], side: int) -> np.ndarray:
        cells = [[entry.numbers.get(key, NOT_MEASURED) for key in keys] for entry in entries]
        sides = [[(c.value, *number(k).limits(c))[side] for k, c in zip(keys, row, strict=True)] for row in cells]
        return np.array([[np.nan if cell is None else cell for cell in row] for row in sides], dtype=float)

    keys = [metric.key for metric in board.metrics]
    lower = [metric.lower_is_better for metric in board.metrics]
    names = [metric.name for metric in board.metrics]
    options = {"names": names, "weights": weights, "lower_is_better": lower}
    scores = composite(table(keys, 0), low=table(keys, 1), high=table(keys, 2), **options).scores
    front = pareto_front(table(board.criteria, 0), [False] * len(board.criteria))
    output = zip(entries, scores, places(scores), with_leader(scores), front, strict=True)
    return {entry.name: tuple(rest) for entry, *rest in output}


def agree(rows: list[dict[str, Any]], expected: dict[str, tuple[Any, ...]]) -> None:
    assert [row["name"] for row in rows if row["name"] not in expected] == [] and len(rows) == len(expected)
    for row in rows:
        score, place, near, front = expected[row["name"]]
        for side in ("value", "low", "high"):
            mine, its = getattr(score, side), row["score"][side]
            assert (mine is None) == (its == "") and (mine is None or abs(mine - float(its)) < 1e-12)
        assert row["place"] == ("–" if place is None else str(place))
        assert ("not separated" in row["chips"]) == (near is True and place != 1)
        assert ("separation unknown" in row["chips"]) == (near is None and place is not None)
        assert ("front" in row["chips"]) == (front is True)


def test_the_browser_ranks_as_python_does_and_follows_the_weights(quiet: Any, make_board: Make, tmp_path: Path) -> None:
    board = make_board(40, metrics=7)
    gap = {**board.entries[4].numbers, "clean/aggregate": Estimate(0.7, None, 0.8)}
    entries = (*board.entries[:4], replace(board.entries[4], numbers=gap), *board.entries[5:])
    board = replace(board, entries=entries)
    opened(quiet, [board], tmp_path)
    before = quiet.execute_script(ROWS)
    agree(before, by_python(board, entries, [1.0] * 7))
    assert [row["place"] for row in before[:2]] == ["1", "2"] and before[-1]["place"] == "–"
    for weights in ((0, 3, 1, 1, 0, 0, 0), (0.1, 0, 0, 0, 0, 2.7, 5), (1, 0, 1, 1, 1, 1, 1)):
        for place, weight in enumerate(weights):
            set_weight(quiet, place, weight, "range" if weight == 3 else "number")
        after = quiet.execute_script(ROWS)
        agree(after, by_python(board, entries, weights))
        assert [row["name"] for row in after] != [row["name"] for row in before]
    assert quiet.execute_script("return document.querySelectorAll('#rows th[scope=col]').length") == 3 + 6 + 2


def test_the_scale_is_that_of_the_rows_shown(quiet: Any, make_board: Make, tmp_path: Path) -> None:
    board = make_board(24, metrics=3)
    opened(quiet, [board], tmp_path)
    select(quiet, "architecture", "arch1")
    kept = [entry for entry in board.entries if entry.architecture == "arch1"]
    assert len(kept) == 8
    agree(quiet.execute_script(ROWS), by_python(board, kept, [1.0] * 3))
    quiet.find_element("name", "text").send_keys("model 00")
    kept = [entry for entry in kept if "model 00" in entry.name]
    agree(quiet.execute_script(ROWS), by_python(board, kept, [1.0] * 3))
    assert quiet.find_element("id", "summary").text.startswith(f"{len(kept)} of 24 rows; first: ")


def test_a_range_wider_than_the_scale_is_told_as_that(quiet: Any, make_board: Make, tmp_path: Path) -> None:
    board = make_board(2, metrics=1)
    close = [
        replace(each, numbers={**each.numbers, "clean/aggregate": Estimate(0.5 + place / 1e4, 0.4, 0.6)})
        for place, each in enumerate(board.entries)
    ]
    opened(quiet, [replace(board, entries=tuple(close))], tmp_path)
    message = (
        "return [...document.querySelectorAll('#rows .score')]"
        ".map(c => [c.querySelector('.remark').textContent, c.querySelector('.range').className])"
    )
    assert quiet.execute_script(message) == [["wider than the scale", "range below above"]] * 2
    assert "const SAME" in (text := quiet.page_source) and f"SCALE = [{SCALE[0]}, {SCALE[1]}]" in text
    opened(quiet, [make_board(2, metrics=1)], tmp_path)
    assert all(" to " in remark for remark, _ in quiet.execute_script(message))


def test_no_weight_and_one_row_are_said_and_not_ranked(quiet: Any, make_board: Make, tmp_path: Path) -> None:
    opened(quiet, [make_board(2)], tmp_path)
    for place in (0, 1):
        set_weight(quiet, place, 0)
    assert {row["place"] for row in quiet.execute_script(ROWS)} == {"–"}
    assert "no metric counts" in quiet.find_element("id", "rows").text
    for bad in (-1, "", "e"):
        set_weight(quiet, 0, bad)
        assert {row["place"] for row in quiet.execute_script(ROWS)} == {"–"}
    opened(quiet, [make_board(1)], tmp_path)
    assert "nothing to compare with" in quiet.find_element("id", "rows").text


def test_columns_sort_both_ways_with_gaps_last(quiet: Any, make_board: Make, tmp_path: Path) -> None:
    opened(quiet, [make_board(12)], tmp_path)
    press = "document.querySelectorAll('#rows thead button')[arguments[0]].click()"
    message = "return [...document.querySelectorAll('#rows thead th')].map(th => th.getAttribute('aria-sort'))"
    quiet.execute_script(press, 4)
    values = [row["numbers"][1] for row in quiet.execute_script(ROWS)]
    assert values[-1] == "" and quiet.execute_script(message)[4] == "descending"
    assert (down := [float(value) for value in values[:-1]]) == sorted(down, reverse=True)
    quiet.execute_script(press, 4)
    values = [row["numbers"][1] for row in quiet.execute_script(ROWS)]
    assert values[-1] == "" and [float(value) for value in values[:-1]] == sorted(down)
    quiet.execute_script(press, 1)
    names = [row["name"] for row in quiet.execute_script(ROWS)]
    assert names == sorted(names)
    assert quiet.execute_script("return document.activeElement.textContent") == "model"


def test_boards_are_ranked_apart_and_chosen_by_data_set(quiet: Any, make_board: Make, tmp_path: Path) -> None:
    boards = [make_board(4), make_board(6, dataset="svhn", names=[f"s{index}" for index in range(6)])]
    opened(quiet, boards, tmp_path)
    assert len(quiet.execute_script(ROWS)) == 4
    select(quiet, "dataset", "svhn")
    agree(quiet.execute_script(ROWS), by_python(boards[1], boards[1].entries, [1.0] * 2))
    assert quiet.execute_script("return document.querySelector('[name=board]').length") == 1
    select(quiet, "dataset", "")
    select(quiet, "board", "0")
    assert len(quiet.execute_script(ROWS)) == 4


def test_the_scatter_draws_every_known_point_with_its_interval_and_the_front(
    quiet: Any, make_board: Make, tmp_path: Path
) -> None:
    board = make_board(9, metrics=3)
    opened(quiet, [board], tmp_path)
    marks = (
        "return [...document.querySelectorAll('#scatter .mark')].map(m => [m.getAttribute('aria-label'),"
        "m.querySelectorAll('line').length, m.tabIndex, m.querySelector('path').getAttribute('fill')])"
    )
    value = quiet.execute_script(marks)
    front = by_python(board, board.entries, [1.0] * 3)
    assert len(value) == 8 and {mark[1] for mark in value} == {2} and {mark[2] for mark in value} == {0}
    for label, _, _, fill in value:
        assert (fill != "var(--bg)") == (front[label.split(":")[0]][3] is True)
    corners = quiet.execute_script(
        "const path = document.querySelector('#scatter .front').getAttribute('d');"
        "return [...path.matchAll(/H([\\d.]+) V/g)].length"
    )
    xy = np.array([[e.numbers[key].value for key in board.criteria[:2]] for e in board.entries[:8]], dtype=float)
    assert corners == sum(each is True for each in pareto_front(xy, [False, False]))
    quiet.execute_script("document.querySelector('#scatter .mark').dispatchEvent(new Event('focus'))")
    assert quiet.find_element("id", "point").text in {mark[0] for mark in value}
    assert quiet.execute_script("return document.querySelectorAll('#rows tr.lit').length") == 1
    quiet.execute_script(
        "const s = document.getElementById('up'); s.value = 'pr'; s.dispatchEvent(new Event('change'))"
    )
    assert len(quiet.execute_script(marks)) == 9, "the row without ar has acc and pr"


def test_hostile_names_are_text_in_the_browser(quiet: Any, hostile_board: Board, tmp_path: Path) -> None:
    opened(quiet, [hostile_board], tmp_path, notes=HOSTILE)
    assert sorted(row["name"] for row in quiet.execute_script(ROWS)) == sorted(HOSTILE)
    assert quiet.execute_script("return document.querySelectorAll('img, main script, b b').length") == 0
    assert quiet.execute_script("return [window.innerWidth, document.documentElement.scrollWidth <= innerWidth]")[1]
    marked = [row["name"] for row in quiet.execute_script(ROWS) if "† published" in row["chips"]]
    assert marked == [HOSTILE[1]]
    quiet.execute_script("const p = document.querySelector('[name=published]'); p.click()")
    assert len(quiet.execute_script(ROWS)) == 4


def test_the_keyboard_reaches_weights_headers_and_points(quiet: Any, make_board: Make, tmp_path: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    opened(quiet, [make_board(6)], tmp_path)
    first = quiet.execute_script(ROWS)
    slider = quiet.find_element("css selector", "#weights input[type=range]")
    slider.send_keys(Keys.END)
    assert slider.get_attribute("value") == "5"
    number = quiet.find_element("css selector", "#weights input[type=number]")
    assert number.get_attribute("value") == "5" and quiet.execute_script(ROWS) != first
    quiet.find_element("css selector", "#rows thead th:nth-child(2) button").send_keys(Keys.ENTER)
    names = [row["name"] for row in quiet.execute_script(ROWS)]
    assert names == sorted(names)
    unnamed = (
        "return [...document.querySelectorAll('input, select')].filter(e => !e.labels.length && !e.ariaLabel).length"
    )
    assert quiet.execute_script(unnamed) == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_sees_all_of_it(quiet: Any, make_board: Make, tmp_path: Path, scheme: str) -> None:
    screen = {"width": 400, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    quiet.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    quiet.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    try:
        opened(quiet, [make_board(9, metrics=7)], tmp_path)
        assert quiet.execute_script("return [innerWidth, document.documentElement.scrollWidth]") == [400, 400]
        inside = (
            "return [...document.querySelectorAll(arguments[0])].every(e => e.getBoundingClientRect().right <= 400)"
        )
        for selector in ("#rows td", "#rows th", "#scatter .mark path", "select", ".weight"):
            assert quiet.execute_script(inside, selector), selector
        background = quiet.execute_script("return getComputedStyle(document.body).backgroundColor")
        assert (background == "rgb(255, 255, 255)") == (scheme == "light")
        assert not quiet.execute_script("return document.getElementById('weighing').open")
    finally:
        quiet.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        quiet.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_a_thousand_rows_open_and_follow_the_weights(quiet: Any, make_board: Make, tmp_path: Path) -> None:
    board = make_board(1_000, metrics=7)
    opened(quiet, [board], tmp_path)
    agree(quiet.execute_script(ROWS), by_python(board, board.entries, [1.0] * 7))
    set_weight(quiet, 1, 4)
    agree(quiet.execute_script(ROWS), by_python(board, board.entries, [1.0, 4.0, *[1.0] * 5]))
