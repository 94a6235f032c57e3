"""A night of schedules with a moved clock, across the end of summer time: real audits, simulated hours."""

from __future__ import annotations

import os
import time
import uuid
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from benchmarks.drills.stackside import fleet, report
from deploy.stack.layout import Layout
from deploy.stack.parts import variables
from jobs.fleetfile.reading import validate_fleet
from jobs.schedules.schedule import FiringState
from jobs.schedules.scheduler import Scheduler, new_schedule
from jobs.schedules.store import Store
from jobs.submission.client import AuditClient, backend_for
from jobs.submission.signing import KEY_PATH

EVENING = datetime(2026, 10, 24, 18, tzinfo=UTC)
MORNING = datetime(2026, 10, 25, 6, tzinfo=UTC)
"""In Berlin the clock goes from 3 back to 2 at 1 o'clock UTC."""
BERLIN, NEW_YORK = "Europe/Berlin", "America/New_York"


@dataclass(frozen=True)
class Plan:
    """A schedule of the night; `hourly` ones follow the clock, the others name one time."""

    name: str
    cron: str
    zone: str
    hourly: bool = False

    def expected(self) -> int:
        """How often it must fire: a walk over every minute, counting a repeated hour once for a fixed time."""
        minute, hour = self.cron.split()[:2]
        zone, moment, moments = ZoneInfo(self.zone), EVENING, []
        while moment < MORNING:
            moment += timedelta(minutes=1)
            local = moment.astimezone(zone)
            if local.minute == int(minute) and hour in ("*", str(local.hour)):
                moments.append((local.date(), local.hour, local.minute))
        return len(moments) if self.hourly else len(set(moments))


def plans(mark: str) -> list[Plan]:
    """Twenty: most at times that the change repeats."""
    nightly = [Plan(f"n{number}-{mark}", f"{3 * number} 2 * * *", BERLIN) for number in range(17)]
    others = [Plan(f"utc-{mark}", "30 1 * * *", "UTC"), Plan(f"york-{mark}", "0 23 * * *", NEW_YORK)]
    return [*nightly, *others, Plan(f"hourly-{mark}", "15 * * * *", BERLIN, hourly=True)]


class Clock:
    """A time that only the drill moves."""

    def __init__(self) -> None:
        self.now = EVENING

    def __call__(self) -> datetime:
        return self.now


def night(layout: Layout) -> int:
    """Twelve hours by the minute; the clock waits for audits to catch up. Each firing due must be done, once."""
    mark, clock, began = uuid.uuid4().hex[:6], Clock(), time.monotonic()
    home = layout.folder / "drills"
    home.mkdir(exist_ok=True)
    store = Store(f"sqlite:///{home}/night-{mark}.db")  # the stack's own scheduler would take these for missed
    os.environ[KEY_PATH] = variables(layout)[KEY_PATH]
    backend = backend_for(layout.url("dashboard"), token=layout.secret("ray.token"))
    client = AuditClient(backend, storage=str(layout["storage"]))
    scheduler = Scheduler(store, lambda storage: client, clock=clock)
    made = plans(mark)
    for plan in made:
        checked = validate_fleet({**fleet(layout, plan.name), "tracking": {"enabled": False}})
        store.add(new_schedule(plan.name, checked, plan.cron, zone=plan.zone, now=clock()))
    while clock.now < MORNING:
        clock.now += timedelta(minutes=1)
        scheduler.tick()
        while _busy(store, made, at_once=layout.audits if clock.now < MORNING else 0):
            time.sleep(0.5)
            scheduler.tick()
    return _summary(store, client, made, time.monotonic() - began)


def _busy(store: Store, made: list[Plan], *, at_once: int) -> bool:
    """Whether more than so many firings are under way, or one of a schedule whose next would find it running."""
    under_way = [*store.firings(FiringState.RUNNING), *store.firings(FiringState.WAITING)]
    hourly = {plan.name for plan in made if plan.hourly}
    return len(under_way) > at_once or any(firing.schedule in hourly for firing in under_way)


def _summary(store: Store, client: AuditClient, made: list[Plan], took: float) -> int:
    fired = {plan.name: store.firings(schedule=plan.name) for plan in made}
    every = [firing for firings in fired.values() for firing in firings]
    faults = [
        f"{plan.name}: expected {plan.expected()} firings, found {len(fired[plan.name])}"
        for plan in made
        if len(fired[plan.name]) != plan.expected()
    ]
    if any(firing.state is not FiringState.DONE for firing in every):
        faults.append(f"not all done: {dict(Counter(str(firing.state) for firing in every))}")
    if len({firing.submission for firing in every}) != len(every):
        faults.append("one audit for two firings")
    if any(client.status(firing.submission).bundle != firing.bundle for firing in every):
        faults.append("a firing that names another bundle than its audit")
    rows = {
        "schedules": len(made),
        "simulated": f"{EVENING:%Y-%m-%d %H:%M} to {MORNING:%Y-%m-%d %H:%M} UTC, by the minute",
        "firings due and done": f"{sum(plan.expected() for plan in made)}, {len(every)}",
        "of the hourly schedule, over the hour that comes twice": len(fired[made[-1].name]),
        "took": f"{took:.0f} s",
    }
    store.close()
    return report("night", rows, faults)
