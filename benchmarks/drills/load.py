"""Many simultaneous submissions, many schedules, and a user who watches them."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import requests

from benchmarks.drills.page import OpenPage
from benchmarks.drills.stackside import Api, fleet, report, spread, wait_until
from deploy.stack.layout import Layout
from jobs.fleetfile.reading import validate_fleet
from jobs.schedules.schedule import Firing, FiringState, Overlap
from jobs.schedules.scheduler import new_schedule, now_utc
from jobs.schedules.store import Store

OVER = {FiringState.DONE, FiringState.STOPPED, FiringState.LOST, FiringState.SKIPPED, FiringState.REFUSED}


class Watcher(threading.Thread):
    """Asks one address again and again, as an open dashboard does, and keeps how long it took."""

    def __init__(self, api: Api, url: str, pause: float = 2.0) -> None:
        super().__init__(daemon=True)
        self.seconds: list[float] = []
        self.refused: list[int] = []
        self._headers, self._url, self._pause = api.headers, url, pause
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(self._pause):
            began = time.monotonic()
            status = requests.get(self._url, headers=self._headers, timeout=120).status_code
            self.seconds.append(time.monotonic() - began)
            if status != 200:
                self.refused.append(status)

    def end(self) -> None:
        """Stop asking."""
        self._over.set()
        self.join(150)


def load(layout: Layout, *, submissions: int, schedules: int, poll: str, picture: Path | None, seconds: float) -> int:
    """Everything at the same time; each audit and each firing must end once, with an outcome."""
    api, mark = Api(layout), uuid.uuid4().hex[:6]
    fleet(layout, "warm")  # the network is trained before the clock runs
    watcher = Watcher(api, poll or f"{api.root}/v1/audits?limit=100")
    watcher.start()
    page = OpenPage(api, layout.secret("api.token"), picture) if picture else None
    if page:
        page.start()
    store = Store(layout.database("classwise", "schedules"))
    began = time.monotonic()
    try:
        names = _add_schedules(layout, store, mark, schedules)
        posted = _submit_all(layout, api, mark, submissions)
        ids = [str(name) for _, name, status in posted if status in (200, 202)]
        done = wait_until(lambda: _all_over(api, store, mark, ids, names), seconds, 2.0)
        took = time.monotonic() - began
    finally:
        watcher.end()
        if page:
            page.end()
    states = Counter(f"{each['state']} {each['outcome'] or ''}".strip() for each in map(api.audit, ids))
    firings = [each for name in names for each in store.firings(schedule=name)]
    faults = [] if done else [f"not all over after {seconds:g} s"]
    faults += _faults(layout, ids, submissions, states, firings, schedules)
    faults += [f"the watcher was refused with {status}" for status in sorted(set(watcher.refused))]
    delays = page.seconds if page else []
    if page:
        faults += [f"the page's console: {line}" for line in page.faults]
        faults += [f"the page was refused with {status}" for status in sorted(set(page.refused))]
    rows = {
        "submissions at once": submissions,
        "schedules due at once": schedules,
        "POST /v1/audits, median / p95 / most": spread([took for took, _, _ in posted]),
        "answers": dict(Counter(status for _, _, status in posted)),
        "watcher's GET, median / p95 / most": f"{spread(watcher.seconds)} ({len(watcher.seconds)} times)",
        "the page's requests, median / p95 / most": f"{spread(delays)} ({len(delays)} times)",
        "submissions ended": dict(states),
        "firings ended": dict(Counter(f"{each.state} {each.outcome or ''}".strip() for each in firings)),
        "all over after": f"{took:.0f} s",
    }
    for name in names:
        store.remove(name)
    return report("load", rows, faults)


def _add_schedules(layout: Layout, store: Store, mark: str, count: int) -> list[str]:
    names = []
    for number in range(count):
        each = validate_fleet(fleet(layout, f"scheduled-{mark}-{number}"))
        schedule = new_schedule(each.config.fleet, each, "0 3 * * *", overlap=Overlap.QUEUE, now=now_utc())
        store.add(schedule)
        store.fire(schedule, now_utc())
        names.append(schedule.name)
    return names


def _submit_all(layout: Layout, api: Api, mark: str, count: int) -> list[tuple[float, Any, int]]:
    """Submit all at the same moment."""
    body, gate = fleet(layout, f"load-{mark}"), threading.Barrier(count)

    def submit(number: int) -> tuple[float, Any, int]:
        gate.wait(60)
        began = time.monotonic()
        reply = requests.post(
            f"{api.root}/v1/audits",
            json=body,
            headers={**api.headers, "Idempotency-Key": f"k{number}"},
            timeout=300,
        )
        return time.monotonic() - began, reply.json().get("id"), reply.status_code

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(submit, range(count)))


def _all_over(api: Api, store: Store, mark: str, ids: list[str], names: list[str]) -> bool:
    running = {each["id"] for each in api.audits(fleet=f"load-{mark}") if each["state"] in ("queued", "running")}
    if running & set(ids):
        return False
    return all(each.state in OVER for name in names for each in store.firings(schedule=name))


def _faults(
    layout: Layout, ids: list[str], submissions: int, states: Counter[str], firings: list[Firing], schedules: int
) -> list[str]:
    faults = []
    if len(set(ids)) != submissions:
        faults.append(f"{submissions} submissions, {len(set(ids))} audits")
    if states["finished pass"] != submissions:
        faults.append(f"submissions that did not pass: {dict(states)}")
    if len(firings) != schedules or any(each.state is not FiringState.DONE for each in firings):
        faults.append(f"{schedules} firings due: {dict(Counter(str(each.state) for each in firings))}")
    bundles = Counter(_submission_of(path) for path in layout["storage"].glob("audits/*/*/submission.json"))
    wanted = [*ids, *(each.submission for each in firings)]
    if doubled := [name for name in wanted if bundles[name] != 1]:
        faults.append(f"audits without exactly one bundle: {doubled[:5]}")
    return faults


def _submission_of(path: Path) -> str:
    return str(json.loads(path.read_text())["id"])
