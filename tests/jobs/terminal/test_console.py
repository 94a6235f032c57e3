"""What commands print: names come from files and logs of others, and a terminal obeys what stands in them."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from rich.table import Table
from rich.text import Text

from jobs.terminal import console

ORDERS = (
    *("\x1b]0;title\x07", "\x1b[2J\x1b[H", "\x1b]52;c;cm0gLXJm\x07", "\x9b2J", "\rpass"),
    *("\x08", "\u202eelif", "\x00"),
)
X = (
    "\x1b]0;title\x07",
    "\x1b[2J\x1b[H",
    "\x1b]52;c;cm0gLXJm\x07",
    "\x9b2J",
    "\rpass",
    "\x08\x08",
    "\u202eelif",
    "\x00",
)
Say = Callable[[str], None]


def shown(text: str) -> None:
    table = Table(title=text)
    table.add_column(text)
    table.add_row(text)
    console.show([table, Text(text)], [text])


@pytest.mark.parametrize("say", [console.say, console.note, shown, console.print_json], ids=lambda say: say.__name__)
@pytest.mark.parametrize("order", ORDERS)
def test_no_text_gives_a_terminal_orders(say: Say, order: str, capsys: pytest.CaptureFixture[str]) -> None:
    say(f"name{order}name")
    printed = "".join(capsys.readouterr())
    assert "name" in printed and not {each for each in printed if not each.isprintable()} - {"\n"}
    if say is console.print_json:
        assert json.loads(printed) == f"name{order}name"


@pytest.mark.parametrize("say", [console.say, console.note, shown], ids=lambda say: say.__name__)
def test_lines_and_words_of_all_languages_stay(say: Say, capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("two\nlines", "Größe, 猫, קטה", "👩‍🔬 e\u0301"):
        say(text)
        assert set(text) <= set("".join(capsys.readouterr()))


def test_colours_of_ones_own_stay_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    console.show([Text("red\x1b[2J", "red")])
    printed = capsys.readouterr().out
    assert "\x1b[31m" in printed and "\x1b[2J" not in printed
