"""The page in a real browser: what a person, a keyboard and a phone meet, and what hostile names do not do."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from jobs.api.local_dashboard import local_app
from jobs.api.serve import build
from jobs.api.settings import Settings, digests, plain
from jobs.dashboard.places import places_of
from tests.jobs.dashboard.page import PHONE, Page

from .conftest import AUDITS, FLEET, HOSTILE, ID, TOKEN, Audit, keep_why


@pytest.fixture
def address(base: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The dashboard, served."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with serving(local_app(places_of(str(base), None, None), TOKEN)) as url:
        yield url


@contextmanager
def serving(app: Any) -> Iterator[str]:
    """The address of an application, while it is served."""
    config = uvicorn.Config(app, port=0, log_level="critical", proxy_headers=False)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(30)


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Page]:
    """The page of a caller with a token; whatever the test did, the console has no fault."""
    browser.get_log("browser")
    browser.get(f"{address}/#token={TOKEN}")
    opened = Page(browser, address)
    opened.until("document.querySelector('h1') && document.querySelector('h1').textContent === 'Fleets'")
    yield opened
    faults = [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    browser.execute_script("sessionStorage.clear()")
    browser.get("about:blank")
    assert [fault for fault in faults if fault not in opened.expected] == []


def test_a_token_is_asked_for_kept_out_of_the_address_and_asked_for_again(browser: Any, address: str) -> None:
    browser.get(f"{address}/")
    page = Page(browser, address)
    page.until("document.getElementById('gate').open")
    for text, there in (("wrong", False), (TOKEN, True)):
        browser.find_element("id", "token").send_keys(text)
        browser.find_element("css selector", "#gate button").click()
        if not there:
            page.until("document.getElementById('gate-said').textContent && document.getElementById('gate').open")
    page.until("document.querySelector('main table')")
    assert page.text("main table").count(FLEET) == 1 and TOKEN not in browser.current_url
    browser.get_log("browser")  # the 401 that was asked for


def test_from_the_fleets_to_a_class_of_a_model(page: Page) -> None:
    rows = page.rows("Fleets")
    assert [row[0] for row in rows] == [HOSTILE, FLEET]
    assert any("cannot be read" in row[1] for row in rows)
    ids = page.ids()
    page.drawn()
    lines = page.rows("Audits")
    assert len(lines) == 4 and "update classwise" not in lines[0][2] and "cannot be read" in lines[0][2]
    assert "or older" in lines[0][3]
    page.go(f"#/fleet/{FLEET}/{ids[AUDITS[2]]}?series=clean", FLEET)
    assert [row[0] for row in page.rows("Models")] == ["second", "first"]
    assert page.rows("Models")[0][4].startswith("0.600")
    page.drawn()
    page.js("document.querySelector('main tbody th a').click()")
    page.until("document.querySelector('h1')?.textContent.startsWith('second')")
    assert "upper bound 0.64 is below 0.7" in page.text("main")
    assert page.rows("The largest gap")[0][2:] == ["0.2500.100 to 0.400", "cat"]
    assert [row[0][:3] for row in page.rows("Every class")] == ["cat", "bee", "ant"]
    page.drawn()
    page.choose("Measure", "clean")
    page.until("location.hash.includes('series=clean') && !document.querySelector('main[aria-busy]')")
    assert page.rows("Every class")[0][2] == "0.600", "its limits have columns of their own"


def test_tables_filter_and_sort_with_the_keyboard(page: Page) -> None:
    page.ids()
    page.choose("Verdict", "fail")
    page.until("document.querySelector('main').textContent.includes('1 of 4 audits')")
    assert [row[2] for row in page.rows("Audits")] == ["✗ fail"]
    page.choose("Verdict", "broken")
    assert len(page.rows("Audits")) == 1
    page.choose("Verdict", "all")
    find = "[...document.querySelectorAll('main thead button')].find(b => b.textContent === 'id')"
    page.js(f"{find}.focus()")
    from selenium.webdriver.common.keys import Keys

    page.browser.switch_to.active_element.send_keys(Keys.ENTER)
    assert [row[6][:16] for row in page.rows("Audits")] == [*(audit[:16] for audit in AUDITS), "–"]
    assert page.js(f"return {find}.closest('th').getAttribute('aria-sort')") == "ascending"
    outline = page.js("return getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid", "focus is seen"
    assert page.js("return document.querySelector('a, button, input, select').id") == "skip"
    page.js("document.getElementById('skip').focus()")
    page.browser.switch_to.active_element.send_keys(Keys.ENTER)
    assert page.js("return document.activeElement.id") == "main"


def test_over_time_follows_its_choices_and_has_its_numbers_as_a_table(page: Page) -> None:
    page.ids()
    page.drawn()
    page.choose("Measure", "clean")
    page.choose("Number", "mean over all samples (score)")
    page.until("document.querySelector('main figure h3')?.textContent === 'clean: mean over all samples (score)'")
    rows = {row[0]: row[1:] for row in page.rows("The same numbers")}
    assert [cell[:5] for cell in rows["second"]] == ["0.900", "0.800", "0.700", "–"]
    assert "0.680 to 0.720" in rows["second"][2] and "fail" in rows["second"][2]
    assert "metric=aggregate" in page.js("return location.hash")
    box = page.browser.find_element("xpath", "//label[starts-with(., 'Model contains')]/input")
    box.send_keys("FIRST")
    page.until("document.querySelectorAll('main figure tbody tr').length === 1")


def test_two_audits_are_ticked_and_compared(page: Page, base: Path) -> None:
    ids = page.ids()
    compare = "[...document.querySelectorAll('main button')].find(b => b.textContent.startsWith('Compare'))"
    ticks = page.browser.find_elements("css selector", "main input[type=checkbox]")
    assert len(ticks) == 3 and page.js(f"return {compare}.disabled")
    ticks[0].click()
    ticks[2].click()
    path = base / "audits" / FLEET / ids[AUDITS[2]] / "comparison.json"
    path.write_text('{"compared_with": {"verdict": "worse"}}')
    page.js(f"{compare}.click()")
    page.until("document.querySelector('h1')?.textContent.startsWith('Two audits')")
    assert f"/{ids[AUDITS[0]]}/{ids[AUDITS[2]]}" in page.js("return location.hash"), "the earlier one first"
    page.drawn()
    assert "is not a test" in page.text("main") and "compared_withverdict worse" in page.text("dl.tested")
    page.choose("Measure", "clean")
    page.until("location.hash.includes('series=clean')")
    page.choose("Number", "score: mean over all samples")
    page.until("[...document.querySelectorAll('main td')].some(cell => cell.textContent === '−0.200')")
    rows = {row[0]: row for row in page.rows("Each model")}
    assert rows["second"][4:] == ["−0.200", "do not overlap"] and rows["firstsame weights"][5] == "overlap"
    change = {"index": 2, "name": "cat", "n": 50, "then": 0.8, "now": 0.6, "p": 0.004, "flag": "worse"}
    change["difference"] = {"value": -0.2, "low": -0.3, "high": -0.1, "reason": ""}
    series = {"series": "clean", "title": "clean accuracy", "overall": {**change, "flag": "not separated"}}
    bodies = {
        "compared_with": "another",
        "alpha": 0.05,
        "comparisons": 8,
        "worse": 1,
        "better": 0,
        "error_rate": "Holm",
    }
    bodies |= {"models": [{"name": HOSTILE, "series": [{**series, "groups": [change]}]}]}
    drift = {"kind": "versions", "subject": "torch", "then": "2.13", "now": "2.14"}
    bodies |= {"drift": [drift, {"kind": "temperature", "subject": "", "then": "T = 1", "now": ""}]}
    path.write_text(json.dumps(bodies))
    page.go(f"#/compare/{FLEET}/{ids[AUDITS[0]]}/{ids[AUDITS[2]]}?metric=aggregate&series=clean", "Two audits")
    page.until("document.querySelector('main').textContent.includes('not the earlier audit of this page')")
    [row] = page.rows("What the test flags")
    assert row == [HOSTILE, "clean accuracy", "cat", "0.800", "0.600", "-0.200-0.300 to -0.100", "0.0040", "worse"]
    assert "versions torch: 2.13, now 2.14" in page.text("main")
    assert "temperature: T = 1, now none" in page.text("main")
    page.choose("Model", "second")
    page.until("[...document.querySelectorAll('main h3')].some(h => h.textContent.startsWith('second'))")
    assert [row[3] for row in page.rows("Every class")] == ["−0.200"] * 3


def test_a_running_audit_moves_while_it_is_looked_at_and_ends(page: Page, base: Path) -> None:
    from jobs.terminal.progress import Quiet

    assert "No audit runs now." in page.text("#running")
    audit = Audit(base, Quiet())
    audit.telling.stage("measures", 4, 2)
    page.until(f"document.querySelector('#running')?.textContent.includes({ID!r})")
    page.until("document.querySelector('#running').textContent.includes('0 of 4 shards')")
    audit.shard()
    page.until("document.querySelector('#running progress').value === 1")
    assert "measures, 1 of 4 shards, 2 models, 50 images/s, about 6 s left" in page.text("#running")
    assert page.text("#pulse") == "1 audit running"
    audit.end()
    page.until("document.querySelector('#running li') === null")
    assert page.text("#live") == f"{ID} has ended."
    page.until("[...document.querySelectorAll('main caption')].some(c => c.textContent.includes('without a result'))")
    assert page.rows("The latest submitted audits")[0][:2] == [ID, "crashed"]


def test_audits_that_wait_are_counted_and_folded_away(page: Page) -> None:
    """Only a cluster lets audits wait, so the list is shown what the server says of such ones."""
    page.js(
        "import(document.querySelector('script[type=module]').src.replace('app.js', 'running.js')).then((it) => {"
        "  const list = it.runningList(), waits = (id) => ({ id, fleet: 'f', key: '', state: 'queued', stage: '' });"
        "  const runs = { ...waits('c'), state: 'running', stage: 'scores', done: 1, total: 4, models: 2 };"
        "  list.show({ running: [waits('a'), runs, waits('b')], problem: null });"
        "  document.querySelector('main').replaceChildren(list.element);"
        "  window.pulse = it.pulse([waits('a'), runs, waits('b')]);"
        "})"
    )
    page.until("window.pulse")
    assert page.js("return window.pulse") == "1 audit running, 2 waiting"
    assert page.text("#running summary") == "2 audits wait for a turn"
    assert page.text("#running .running") == "f cscores, 1 of 4 shards, 2 models"
    hidden = "return !document.querySelector('#running .behind li').checkVisibility()"
    assert page.js(hidden)
    page.js("document.querySelector('#running summary').click()")
    assert not page.js(hidden)
    assert page.text("#running .behind") == "ab"


def test_hostile_names_are_text_everywhere(page: Page) -> None:
    link = "[...document.querySelectorAll('main tbody th a')].find(a => a.textContent.includes('<img'))"
    fleet = page.js(f"return {link}.getAttribute('href')")
    page.go(fleet, "<img src=x")
    page.drawn()
    audit = page.js("return document.querySelector('main tbody th a').getAttribute('href')")
    page.go(audit, "<img src=x")
    page.drawn()
    page.go(f"{audit}/0", "plain")
    page.drawn()
    parts = audit.split("/")
    page.go(f"#/compare/{parts[2]}/{parts[3]}/{parts[3]}", "Two audits")
    page.drawn()
    assert page.js("return document.querySelectorAll('main img, main script, main iframe').length") == 0
    assert page.js("return window.owned") is None


def test_nothing_inline_runs_and_nothing_is_asked_of_another_server(page: Page) -> None:
    page.ids()
    page.drawn()
    requested = page.js("return performance.getEntriesByType('resource').map(e => e.name)")
    assert requested and all(name.startswith((page.address, "data:")) for name in requested)
    page.js(
        "const made = document.createElement('script'); made.textContent = 'window.ran = true';"
        "document.head.append(made)"
    )
    assert page.js("return window.ran") is None, "the policy refuses it"
    page.expected += [e["message"] for e in page.browser.get_log("browser") if "inline script" in e["message"]]
    assert len(page.expected) == 1


def test_what_is_not_there_is_said_on_the_page(page: Page) -> None:
    page.go("#/fleet/nobody", "This cannot be shown")
    assert "a fleet of /v1/fleets" in page.text(".problem")
    page.go("#/nowhere", "This cannot be shown")
    faults = [e["message"] for e in page.browser.get_log("browser") if e["level"] == "SEVERE"]
    assert len(faults) == 1 and "404" in faults[0], "the browser's own line on the status"


def test_a_phone_sees_all_of_it_without_scrolling_sideways(page: Page, running: Audit) -> None:
    page.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
    try:
        ids = page.ids()
        last = ids[AUDITS[2]]
        for path, heading, figures in (
            ("#/", "Fleets", False),
            (f"#/fleet/{FLEET}", FLEET, True),
            (f"#/fleet/{FLEET}/{last}", FLEET, True),
            (f"#/fleet/{FLEET}/{last}/1", "second", True),
            (f"#/compare/{FLEET}/{ids[AUDITS[0]]}/{last}", "Two audits", True),
            ("#/leaderboard", "Leaderboard", False),
            ("#/schedules", "Schedules", False),
        ):
            page.go(path, heading)
            page.until("!document.querySelector('.waiting')")
            if figures:
                page.drawn()
            assert page.js("return [innerWidth, document.documentElement.scrollWidth]") == [400, 400], path
            outside = "[...document.querySelectorAll('main table.cards td, main table.cards th')]"
            assert page.js(f"return {outside}.filter(c => c.getBoundingClientRect().right > 400).length") == 0, path
    finally:
        page.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_an_axis_that_is_cut_ends_in_arrows_where_an_interval_goes_on(page: Page) -> None:
    script = (
        "const done = arguments[0]; import('/ui/charts.js').then(m => done(m.dots(['a', 'b'], "
        "[{ name: 'x', cells: [[0.75, -3724, 3588], [0.25, 0, 0.5]] }], 'score', [-0.5, 1.5])(false)))"
    )
    result = page.browser.execute_async_script(script)
    marks, left, right = result["data"]
    assert result["layout"]["xaxis"]["range"] == [-0.5, 1.5]
    assert (marks["error_x"]["arrayminus"], marks["error_x"]["array"]) == ([1.25, 0.25], [0.75, 0.25])
    assert [(arrow["x"], arrow["y"]) for arrow in (left, right)] == [([-0.5], [0]), ([1.5], [0])]
    assert "-3724" in marks["text"][0], "the numbers are told on hover"


def test_numbers_are_written_as_the_report_writes_them(page: Page) -> None:
    from services.records.estimates import Estimate
    from tracking.bundle.words import interval, number

    values = [None, 0.0, 1.0, 0.1, 0.0995, 0.09949, 0.00005, 0.00001, -0.00001, -0.25, 12.3456, 0.5]
    script = "const done = arguments[1]; import('/ui/dom.js').then(m => done(arguments[0].map(m.{})))"
    ask: Callable[[str, Any], Any] = lambda name, inputs: page.browser.execute_async_script(script.format(name), inputs)  # noqa: E731
    assert ask("number", values) == [number(value) for value in values]
    estimates = [
        Estimate(0.5),
        Estimate(0.5, 0.4),
        Estimate(0.5, None, 0.6),
        Estimate(0.5, 0.4, 0.6),
        Estimate(None),
        Estimate(None, reason="0/0"),
    ]
    plain = [{"value": e.value, "low": e.low, "high": e.high, "reason": e.reason} for e in estimates]
    assert ask("interval", plain) == [interval(each) for each in estimates]


def test_a_user_whom_a_proxy_has_signed_in_is_asked_for_no_token(
    browser: Any, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("CI_TOKEN", TOKEN)
    people = [{"name": "*@example.org", "may": ["read"]}]
    settings = Settings.model_validate(
        {
            "storage": str(base),
            "tokens": [{"name": "ci", "env": "CI_TOKEN"}],
            "trusted_proxies": ["127.0.0.1"],
            "identity": {"header": "X-Auth-Email", "callers": people},
        }
    )
    app = build(plain(settings), digests(settings, {"CI_TOKEN": TOKEN}))

    async def proxy(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            scope = {**scope, "headers": [*scope["headers"], (b"x-auth-email", b"eve@example.org")]}
        await app(scope, receive, send)

    browser.get_log("browser")
    with serving(proxy) as url:
        browser.get(url)
        page = Page(browser, url)
        page.until("[...document.querySelectorAll('main td, main th')].some(e => e.textContent.includes('robust'))")
        assert page.js("return document.getElementById('gate').open") is False
        assert page.js("return document.getElementById('leave').hidden") is True
        page.go("#/schedules", "Schedules")
        browser.get("about:blank")
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


def test_a_model_shows_what_its_classes_are_taken_for_and_pictures_of_them(page: Page, base: Path) -> None:
    keep_why(base, AUDITS[1])
    ids = page.ids()
    page.go(f"#/fleet/{FLEET}/{ids[AUDITS[1]]}/0", "first")
    assert page.rows("Pairs of classes")[0][:4] == ["ant", "bee", "20 of 50", "40 %"]
    page.until("[...document.querySelectorAll('.gallery img')].every(i => i.complete && i.naturalWidth)")
    alts = page.js("return [...document.querySelectorAll('.gallery img')].map(i => i.alt)")
    assert len(alts) == 6 and alts[0] == "sample 4, class ant, predicted ant"
    page.choose("Goes to", "cat")
    assert page.js("return document.querySelectorAll('.gallery figure').length") == 1
    assert page.rows("Groups in measured attributes")[0][:3] == ["brightness below 0.3", "clean accuracy", "40"]
    page.go(f"#/fleet/{FLEET}/{ids[AUDITS[1]]}", FLEET)
    page.until("document.querySelector('main').textContent.includes('of ant goes to bee')")
    page.until(
        "document.querySelector('section[aria-label=\"Samples that most models fail\"] img')?.naturalWidth === 4"
    )
    assert page.rows("The hardest samples first")[0][1:4] == [HOSTILE, "2 of 2", "bee by 1"]
