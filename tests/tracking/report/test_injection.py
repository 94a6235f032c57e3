"""Markup in every text of an audit and of a leaderboard, opened in a real browser: shown as text, never run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from services.records import AuditResult
from tracking.leaderboard.known_numbers import Catalogue
from tracking.leaderboard.page import render
from tracking.leaderboard.rows import Board
from tracking.report.report import write_report

pytestmark = pytest.mark.filterwarnings("default::DeprecationWarning", "default::FutureWarning")

PAYLOADS = (
    "<img src=x onerror=hit()>",
    "</script><script>hit()</script>",
    "\"'><svg/onload=hit()>",
    "</style></title></textarea><iframe srcdoc='<script>parent.hit()</script>'>",
    "{{ hit() }}${hit()}<a href='javascript:hit()'>",
    "<!--<script>",
    "\u202e\u2028]]>&lt;b&gt;",
)
KEPT = {"started", "finished", "grouping", "norm", "policy", "audit_id", "unit"}
"""Fields that hold no free text: they come from classwise itself, and the pages read them."""

FOUND = """return {hit: window.hits || 0, frames: document.querySelectorAll('iframe').length,
  images: document.querySelectorAll('img[src="x"]').length,
  links: document.querySelectorAll('a[href^="javascript"]').length,
  handlers: document.querySelectorAll('[onerror], [onload]').length,
  text: document.body.innerText.length}"""


def marked(value: Any, payload: str, field: str = "") -> Any:
    """The record with the payload behind every free text; equal texts stay equal."""
    if isinstance(value, Enum) or field in KEPT:
        return value
    if isinstance(value, str):
        return f"{value}{payload}"
    if is_dataclass(value) and not isinstance(value, type):
        return replace(
            value, **{each.name: marked(getattr(value, each.name), payload, each.name) for each in fields(value)}
        )
    if isinstance(value, tuple | list):
        return type(value)(marked(each, payload, field) for each in value)
    if isinstance(value, dict):
        return {key: marked(inner, payload, field) for key, inner in value.items()}
    return value


def opened(browser: Any, path: Path) -> dict[str, int]:
    """What the page did with its texts once it was open."""
    text = path.read_text()
    path.write_text(text.replace("<head>", "<head><script>window.hits=0;function hit(){window.hits++}</script>", 1))
    assert path.read_text() != text
    browser.get(path.as_uri())
    value: dict[str, int] = browser.execute_script(FOUND)
    return value


def harmless(found: dict[str, int]) -> bool:
    return found.pop("text") > 500 and not any(found.values())


@pytest.mark.parametrize("number", range(len(PAYLOADS)))
def test_every_text_of_a_report(number: int, attacked_audit: AuditResult, browser: Any, tmp_path: Path) -> None:
    audit = marked(attacked_audit, PAYLOADS[number])
    write_report(audit, str(tmp_path), [replace(audit, audit_id="20261127T001500Z-0a1b2c3d")])
    assert harmless(opened(browser, tmp_path / "report.html"))


@pytest.mark.parametrize("number", range(len(PAYLOADS)))
def test_every_text_of_a_leaderboard(
    number: int, make_board: Callable[..., Board], browser: Any, tmp_path: Path
) -> None:
    board = make_board(3, metrics=7)
    entries = tuple(replace(marked(entry, PAYLOADS[number]), catalogue=Catalogue()) for entry in board.entries)
    page = tmp_path / "board.html"
    page.write_text(render([replace(board, entries=entries)], store=f"x{PAYLOADS[number]}"))
    assert harmless(opened(browser, page))


def test_a_payload_that_ran_would_be_seen(browser: Any, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(f"<html><head></head><body>{'.' * 600}<svg/onload=hit()></body></html>")
    assert not harmless(opened(browser, page))
