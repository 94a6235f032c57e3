"""The head of the cluster is killed in the middle of an audit: what survives, and how long it takes to go on."""

from __future__ import annotations

import os
import subprocess
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from benchmarks.drills.stackside import Api, fleet, report, wait_until
from deploy.stack import processes
from deploy.stack.layout import Layout
from deploy.stack.parts import ROOT, variables
from jobs.fleetfile.reading import Fleet, validate_fleet
from jobs.schedules.schedule import Firing, FiringState
from jobs.schedules.scheduler import new_schedule, now_utc
from jobs.schedules.store import Store
from jobs.submission.client import AuditClient, backend_for
from jobs.submission.signing import KEY_PATH

SURVIVORS = ("postgres", "mlflow", "api", "scheduler")
STEPS = 100


@dataclass(frozen=True)
class Outage:
    """What was seen while the head was gone, and seconds since it was killed."""

    ready: int
    submitted: int
    accepted: str
    earlier: str
    up: float
    answers: float
    lost: float
    state: str


def head(layout: Layout) -> int:
    """Kill it in an audit of a schedule, start it again, submit again; every finished shard must be kept."""
    api, mark = Api(layout), uuid.uuid4().hex[:6]
    before = str(api.submit(fleet(layout, f"before-{mark}"), "k").json()["id"])
    wait_until(lambda: api.audit(before)["state"] == "finished", 300)
    earlier = set(_shards(layout))
    store = Store(layout.database("classwise", "schedules"))
    name = _schedule(layout, store, mark)
    wait_until(lambda: len(set(_shards(layout)) - earlier) >= 3, 300, 0.05)
    kept = {path: when for path, when in _shards(layout).items() if path not in earlier}
    alive = {part: processes.running(layout, part) for part in SURVIVORS}

    outage = _outage(layout, api, store, name, before)
    firing = _firing(store, name)
    again = _submitted_again(layout, mark, firing.key)
    both = (firing.submission, outage.accepted)
    wait_until(lambda: not any(api.audit(each)["state"] in ("queued", "running") for each in both), 600)
    meanwhile = api.audit(outage.accepted)
    ended, after = api.audit(firing.submission), _shards(layout)
    redone = [path for path, when in kept.items() if after.get(path) != when]

    faults = _unexpected(outage)
    if again != firing.submission or ended["outcome"] != "pass":
        faults.append(f"the audit did not go on to its end: {ended['state']} {ended['outcome']}")
    if meanwhile["outcome"] != "pass":
        faults.append(f"what was accepted meanwhile did not pass: {meanwhile['state']} {meanwhile['outcome']}")
    if redone:
        faults.append(f"{len(redone)} finished shards were done again")
    if {part: processes.running(layout, part) for part in SURVIVORS} != alive:
        faults.append("something beside the cluster ended as well")
    store.remove(name)
    rows = {
        "score shards finished when it was killed": len(kept),
        "of them done again": len(redone),
        "score shards in the end": len(set(after) - earlier),
        "GET /ready and POST /v1/audits meanwhile": f"{outage.ready}, {outage.submitted}",
        "outcome of an earlier audit meanwhile": outage.earlier,
        "local-stack.sh up had it back after": f"{outage.up:.0f} s",
        "the API was ready after": f"{outage.answers:.0f} s",
        "the scheduler had recorded its firing as lost after": f"{outage.lost:.0f} s",
        "submitted again, the audit ended": f"{ended['state']}, {ended['outcome']}",
        "what was accepted meanwhile ended": f"{meanwhile['state']}, {meanwhile['outcome']}",
        "the same processes all along": ", ".join(SURVIVORS),
    }
    return report("head", rows, faults)


def _outage(layout: Layout, api: Api, store: Store, name: str, before: str) -> Outage:
    processes.kill(layout, "head")
    killed = time.monotonic()
    wait_until(lambda: api.ready() == 503, 30)  # an answer of the job server counts for a few seconds
    ready = api.ready()
    sent = api.submit(fleet(layout, f"{name}-meanwhile"), "k")
    earlier = str(api.result(before).get("outcome"))
    command = [str(ROOT / "deploy" / "local-stack.sh"), "up", "--dir", str(layout.folder)]
    subprocess.run(command, check=True, capture_output=True)
    up = time.monotonic() - killed
    wait_until(lambda: api.ready() == 200, 120)
    answers = time.monotonic() - killed
    wait_until(lambda: _firing(store, name).state is FiringState.LOST, 120)
    lost = time.monotonic() - killed
    state = api.audit(_firing(store, name).submission)["state"]
    return Outage(ready, sent.status_code, str(sent.json().get("id")), earlier, up, answers, lost, state)


def _slow(layout: Layout, mark: str) -> Fleet:
    """An audit of some seconds a shard, of which nothing is in the cache yet."""
    data = fleet(layout, f"head-{mark}", workers=2, steps=STEPS)
    return validate_fleet({**data, "seed": int(mark, 16)})


def _submitted_again(layout: Layout, mark: str, key: str) -> str:
    """As the scheduler submits, who is an operator: the API's settings make another audit of the same file."""
    os.environ[KEY_PATH] = variables(layout)[KEY_PATH]
    client = AuditClient(backend_for(layout.url("dashboard"), token=layout.secret("ray.token")))
    return client.submit(_slow(layout, mark), key).id


def _unexpected(outage: Outage) -> list[str]:
    wanted, actual = (503, 202, "pass", "crashed"), (outage.ready, outage.submitted, outage.earlier, outage.state)
    return [] if actual == wanted else [f"expected {wanted}, found {actual}"]


def _schedule(layout: Layout, store: Store, mark: str) -> str:
    name = f"head-{mark}"
    schedule = new_schedule(name, _slow(layout, mark), "0 3 * * *", now=now_utc())
    store.add(schedule)
    store.fire(schedule, now_utc())
    return name


def _firing(store: Store, name: str) -> Firing:
    return store.firings(schedule=name)[-1]


def _shards(layout: Layout) -> dict[Path, int]:
    """Finished score shards and when each was written."""
    return {path: path.stat().st_mtime_ns for path in layout["storage"].rglob("cache/scores/**/*.parquet")}
