"""The page as text, and as a browser sees it where Chromium and its driver are installed."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from services.records import AuditResult, Outcome
from tracking.report.data import MAX_ROWS, class_table
from tracking.report.report import render, write_report


class Page(HTMLParser):
    """Elements and attributes that a browser would act on."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.external: list[str] = []
        self.handlers: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attributes:
            if name.startswith("on"):
                self.handlers.append(name)
            if name in {"src", "href"} and not (value or "").startswith(("#", "data:")):
                self.external.append(value or "")


UNFOLD = "document.querySelectorAll('details.part').forEach((part) => { part.open = true; })"


def table_data(text: str) -> dict[str, Any]:
    rows = re.search(r'id="table-data">(.*?)</script>', text, re.S)
    assert rows
    data: dict[str, Any] = json.loads(rows[1])
    return data


def test_the_page_is_self_contained_with_plotly_once(gf_audit: AuditResult, tmp_path: Path) -> None:
    path = write_report(gf_audit, str(tmp_path), [gf_audit])
    text = Path(path).read_text()
    page = Page(text)
    assert page.external == [] and page.handlers == []
    assert text.count("plotly.js v") == 1 and len(text) < 6_000_000
    places = [text.index(f">{heading}") for heading in ("Verdict", "How far to trust it", "Pictures", "Every class")]
    assert places == sorted(places)
    assert "14 of 17 models fail, 2 are undecided, 1 passes." in text
    assert re.findall(r'class="chip \w+"><span aria-hidden="true">.</span> (\d+ \w+)<', text) == [
        "14 fail",
        "2 undecided",
        "1 pass",
    ]
    assert "the weakest class is cat in 13 of 17 models" in text
    assert text.count("Spearman +0.90") == text.count("the grid chose it") == 1
    assert len(table_data(text)["rows"]) == 17 * 2 * 10


@pytest.mark.long
def test_names_cannot_break_out(hostile_audit: AuditResult) -> None:
    text = render(hostile_audit, interactive=False)
    page = Page(text)
    assert page.handlers == [] and page.tags.count("script") == 2
    assert all(picture.startswith("data:") for picture in re.findall(r'<img src="([^"]*)"', text))
    assert table_data(text)["models"][0] == "<img src=x onerror=alert(1)>"
    assert set(table_data(text)["groups"][0].values()) == {g.name for g in hostile_audit.models[0].series[0].groups}


def test_every_outcome_is_said_in_words(small_audit: AuditResult) -> None:
    models = [
        replace(small_audit.models[0], spec=replace(small_audit.models[0].spec, name=o.value), outcome=o)
        for o in Outcome
    ]
    models[-1] = replace(models[-1], series=(), gates=(), reasons=("no weights at this path",))
    text = render(replace(small_audit, models=tuple(models)), interactive=True)
    for outcome in Outcome:
        assert re.search(rf'class="chip {outcome}"><span aria-hidden="true">.</span> {outcome}<', text)
    assert "no weights at this path" in text


def test_the_largest_table_is_bounded_and_keeps_the_weakest(make_audit: Callable[..., AuditResult]) -> None:
    audit = make_audit(5, 200)
    whole = class_table(audit)
    assert len(whole["rows"]) == whole["total"] == 1_000
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tracking.report.data.MAX_ROWS", 100)
        cut = class_table(audit)
    assert len(cut["rows"]) == 100 and cut["total"] == 1_000 and MAX_ROWS >= 200_000
    weakest = min(row[4] for row in whole["rows"] if row[0] == 0)
    assert cut["rows"][0][4] == weakest


def test_refuted_claims_stand_beside_the_verdict(attacked_audit: AuditResult, small_audit: AuditResult) -> None:
    text = render(attacked_audit)
    assert "GREAT score (sigmoid, T=1): attacks refuted this claim in 3 of 3 models" in text
    assert text.count("attacks refuted this claim for 75 of 300 correctly classified samples") == 3
    assert 'data-label="refuted"' not in text
    assert text.count("proved, claimed, broken") >= 3
    table = table_data(text)
    assert table["refuted"] and {row[2]: row[8] for row in table["rows"] if row[1] == 1}[5] == 0.3
    assert {row[8] for row in table["rows"] if row[1] == 0} == {None}
    untested = render(small_audit)
    assert "refuted" not in re.sub(r"<script.*?</script>", "", untested, flags=re.S)


def test_a_browser_draws_sorts_and_filters_without_a_fault(
    browser: Any, small_audit: AuditResult, tmp_path: Path
) -> None:
    browser.get(Path(write_report(small_audit, str(tmp_path))).as_uri())
    browser.execute_script(UNFOLD)
    browser.execute_script("document.getElementById('figures').scrollIntoView()")
    end = time.monotonic() + 60
    while not browser.execute_script("return document.querySelectorAll('.canvas .main-svg').length"):
        assert time.monotonic() < end, "no figure was drawn"
        time.sleep(0.2)
    rows = "return [...document.querySelectorAll('#per-class tbody tr')].map(r => [...r.cells].map(c => c.textContent))"
    shown = browser.execute_script(rows)
    scores = [float(row[4]) for row in shown]
    assert len(shown) == 18 and scores == sorted(scores)
    browser.execute_script("document.querySelectorAll('#per-class thead button')[4].click()")
    assert [float(row[4]) for row in browser.execute_script(rows)] == sorted(scores, reverse=True)
    browser.find_element("name", "text").send_keys("number 3")
    end = time.monotonic() + 30
    while len(browser.execute_script(rows)) != 3:
        assert time.monotonic() < end, "the filter did nothing"
        time.sleep(0.1)
    browser.execute_script("document.querySelectorAll('#verdicts thead button')[3].click()")
    cells = browser.execute_script(
        "return [...document.querySelectorAll('#verdicts tbody td:nth-child(4)')].map(c => +c.dataset.value)"
    )
    assert cells == sorted(cells)
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


def test_a_phone_sees_all_of_it(browser: Any, attacked_audit: AuditResult, tmp_path: Path) -> None:
    screen = {"width": 400, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    try:
        browser.get(Path(write_report(attacked_audit, str(tmp_path))).as_uri())
        assert browser.execute_script("return [window.innerWidth, document.documentElement.scrollWidth]") == [400, 400]
        cells = "[...document.querySelectorAll('#verdicts td, #verdicts th')]"
        assert browser.execute_script(f"return {cells}.every(cell => cell.getBoundingClientRect().right <= 400)")
        browser.execute_script(UNFOLD)
        browser.execute_script("document.getElementById('model-figures').scrollIntoView()")
        end = time.monotonic() + 60
        titles = (
            "return [...document.querySelectorAll('#figure-model-0-profile g[class$=title] text')]"
            ".filter(t => /^x/.test(t.getAttribute('class'))).map(t => t.getBoundingClientRect())"
            ".map(box => [box.left, box.right, box.top])"
        )
        while len(boxes := browser.execute_script(titles)) < 2:
            assert time.monotonic() < end, "no figure was drawn"
            time.sleep(0.2)
        assert all(0 <= left < right <= 400 for left, right, _ in boxes)
        assert boxes[1][2] > boxes[0][2] + 100, "panels stand below each other"
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {**screen, "width": 1200})
        end = time.monotonic() + 60
        while (boxes := browser.execute_script(titles))[1][2] != boxes[0][2]:
            assert time.monotonic() < end, "in a wider window panels stand side by side again"
            time.sleep(0.2)
        assert boxes[1][0] > boxes[0][1]
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
