"""Retention: which bundles, cache tables and leftovers of a storage go, and their removal.

A plan is made first and shown; carrying it out asks again, before each bundle, whether another became complete in its
fleet or was accepted, for audits go on meanwhile. What the newest compares with is read again when the fleet changed.
A bundle is never removed while it is its fleet's newest, accepted, compared with by name, still being written, or
known to no MLflow server. Tables may go at any time: an audit that misses one makes it again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from jobs.audit.tables import USED
from jobs.comparison.accepted import read_accepted
from jobs.submission.queue import HOME as QUEUE
from jobs.submission.queue import submission_in
from jobs.upkeep.ended import entries_to_go, is_at_work, submissions_to_go
from services.errors import StorageError
from services.records import SCHEMA_VERSION
from services.storage import files, plainjson
from services.storage.files import Entry
from tracking.bundle.bundle import BUNDLE
from tracking.bundle.marker import uploads
from tracking.names import file_name

DAY = 86_400.0
ORPHAN_SECONDS = DAY
"""Files half written, and audits without a bundle, are left alone as long: somebody may be writing them."""
FRESH_SECONDS = 3_600.0
"""Tables that were used within that time are not removed for want of room: an audit may be reading them."""
MERGED = "0-merged.json"
_LEFTOVER = re.compile(r"^\..*\.(part|probe)$")
_HOMES = (QUEUE, "cache", "audits", "submissions", "training")

Kind = Literal["bundle", "unfinished audit", "table", "temporary file", "submission", "queue entry"]


@dataclass(frozen=True)
class Rules:
    """What may go.

    Attributes:
        keep_last, keep_days: bundles are kept that either keeps; with neither, all are.
        fleet: only bundles of this fleet; "" means all.
        cache_days: tables not used for so long go.
        cache_bytes: then the least recently used go until the cache is as small.
        even_unsynced: bundles that were uploaded nowhere may go as well.
        submission_days: submissions that ended so long ago go, unless their bundle is there.
    """

    keep_last: int | None = None
    keep_days: float | None = None
    fleet: str = ""
    cache_days: float | None = None
    cache_bytes: int | None = None
    even_unsynced: bool = False
    submission_days: float | None = None


@dataclass(frozen=True)
class Item:
    """What goes: its path below the storage, and why."""

    kind: Kind
    path: str
    size: int
    why: str


@dataclass(frozen=True)
class PrunePlan:
    """What goes, and what a rule would let go that stays, with the reason."""

    remove: tuple[Item, ...]
    kept: tuple[tuple[str, str], ...] = ()

    @property
    def size(self) -> int:
        """Bytes that become free."""
        return sum(item.size for item in self.remove)


@dataclass
class _Unit:
    """Files that go together: a table's folder, or a file of its own."""

    size: int = 0
    newest: float = 0.0

    def add(self, entry: Entry, now: float) -> None:
        self.size += entry.size
        self.newest = max(self.newest, now if entry.modified is None else entry.modified)


def plan_prune(base: str, rules: Rules, now: float) -> PrunePlan:
    """Look through a storage once and decide. No link in it is followed, now or when the plan is carried out.

    Raises:
        StorageError: it cannot be listed, what was accepted cannot be read, or a link leads out of it.
    """
    files.keep_within(base)
    remove: list[Item] = []
    kept: list[tuple[str, str]] = []
    waiting: set[str] = set()
    for home in _HOMES:
        entries = list(files.walk(files.join(base, home)))
        remove += _leftovers(home, entries, now)
        if home == "audits":
            bundles, held = _bundles(base, entries, rules, now)
            remove, kept = remove + bundles, kept + held
        elif home == "cache":
            remove += _tables(base, entries, rules, now)
        elif home == "submissions":
            ended = submissions_to_go(base, entries, waiting, rules.submission_days, rules.fleet, now)
            remove += [Item("submission", path, size, why) for path, size, why in ended]
        elif home == QUEUE:
            waiting = {submission_in(entry.path) for entry in entries}
            remove += [Item("queue entry", path, size, why) for path, size, why in entries_to_go(base, entries, now)]
    return PrunePlan(tuple(remove), tuple(kept))


def carry_out(plan: PrunePlan, base: str, now: float) -> list[Item]:
    """Remove what was planned and may still go; returns what was removed."""
    gone = []
    known: dict[str, list[str]] = {}
    held: dict[str, dict[str, str]] = {}
    for item in plan.remove:
        if item.kind == "bundle":
            _, fleet, name = item.path.split("/")
            names = _complete(base, fleet, known.get(fleet, ()))
            if names != known.get(fleet):
                known[fleet], held[fleet] = names, _in_use(base, fleet, names)
            if name in held[fleet] or name in _accepted(base, fleet):
                continue
            files.remove(files.join(base, item.path, BUNDLE))  # first: without it no command takes it for complete
            known[fleet] = [remaining for remaining in names if remaining != name]
        elif item.kind == "submission" and is_at_work(base, item.path.partition("/")[2], now):
            continue  # it was submitted again since
        files.remove(files.join(base, item.path))
        gone.append(item)
    _merge_uses(base, {item.path.removeprefix("cache/") for item in gone}, now)
    return gone


# --- bundles ----------------------------------------------------------------------------------------------------


def _bundles(base: str, entries: Sequence[Entry], rules: Rules, now: float) -> tuple[list[Item], list[tuple[str, str]]]:
    folders: dict[tuple[str, str], _Unit] = {}
    for entry in entries:
        fleet, _, rest = entry.path.partition("/")
        name, slash, _ = rest.partition("/")
        if slash and (not rules.fleet or fleet == file_name(rules.fleet)):
            folders.setdefault((fleet, name), _Unit()).add(entry, now)
    complete = {
        tuple(e.path.split("/")[:2]) for e in entries if e.path.count("/") == 2 and e.path.endswith(f"/{BUNDLE}")
    }
    remove, kept = list(_unfinished(folders, complete, now)), []
    for fleet in sorted({fleet for fleet, _ in folders}):
        names = sorted(name for owner, name in folders if owner == fleet and (owner, name) in complete)
        for name, why, held in _judged(base, fleet, names, rules, now):
            path = f"audits/{fleet}/{name}"
            if held:
                kept.append((path, held))
            else:
                remove.append(Item("bundle", path, folders[fleet, name].size, why))
    return remove, kept


def _judged(base: str, fleet: str, names: Sequence[str], rules: Rules, now: float) -> Iterator[tuple[str, str, str]]:
    """Bundles that no rule keeps, why they go, and why they stay all the same, "" when they do not.

    Raises:
        StorageError: what was accepted cannot be read; then nothing may go.
    """
    old = list(_too_old(names, rules, now))
    if not old:
        return
    held = _in_use(base, fleet, names) | _accepted(base, fleet)
    for name, why in old:
        unsynced = not rules.even_unsynced and not uploads(files.join(base, "audits", fleet, name))
        yield name, why, held.get(name) or ("not uploaded to MLflow (--even-unsynced)" if unsynced else "")


def _in_use(base: str, fleet: str, names: Sequence[str]) -> dict[str, str]:
    """Bundles of a fleet that no rule lets go, with the reason; `names` are its complete ones, the newest last."""
    if not names:
        return {}
    newest = files.join(base, "audits", fleet, names[-1])
    held = dict.fromkeys(_compared(newest, names), "compared with by a gate of the newest audit")
    return held | {names[-1]: "the newest of its fleet"}


def _accepted(base: str, fleet: str) -> dict[str, str]:
    """Folders of a fleet's accepted audit as of now, and of the first that was, with why; raises as `read_accepted`."""
    home = files.join(base, "audits", fleet)
    files.forget_listing(home)
    accepted = read_accepted(home)
    if accepted is None:
        return {}
    return {file_name(accepted.history[0].audit_id): "the first that was accepted", accepted.folder: "accepted"}


def _complete(base: str, fleet: str, known: Sequence[str]) -> list[str]:
    """Names of the bundles in a fleet's folder as it is now, the newest last; `known` ones are not looked into."""
    home = files.join(base, "audits", fleet)
    files.forget_listings(home)
    names = files.listing(home)
    return [name for name in names if name in known or files.exists(files.join(home, name, BUNDLE))]


def _unfinished(folders: dict[tuple[str, str], _Unit], complete: set[Any], now: float) -> Iterator[Item]:
    for key, unit in folders.items():
        if key not in complete and now - unit.newest > ORPHAN_SECONDS:
            reason = "no bundle.json, and no process writes to it"
            yield Item("unfinished audit", "audits/" + "/".join(key), unit.size, reason)


def _too_old(names: Sequence[str], rules: Rules, now: float) -> Iterator[tuple[str, str]]:
    """Bundles that no rule keeps, oldest first; names begin with the time of the audit."""
    if rules.keep_last is None and rules.keep_days is None:
        return
    recent = set(names[-rules.keep_last :]) if rules.keep_last else set()
    for name in names:
        age = _age_days(name, now)
        if name not in recent and (rules.keep_days is None or (age is not None and age > rules.keep_days)):
            yield name, f"{age:.0f} days old" if age is not None else "beyond --keep-last"


def _age_days(name: str, now: float) -> float | None:
    try:
        started = datetime.strptime(name[:16], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        return None
    return (now - started.timestamp()) / DAY


def _compared(folder: str, names: Sequence[str]) -> set[str]:
    """Audits of the fleet that the gates of this one name, and the one that it was compared with."""
    try:
        body = plainjson.parsed(files.read_bytes(files.join(folder, BUNDLE)))
        gates = [gate.get("not_worse_than") for gate in body["config"].get("gates", ())]
        prefixes = {str(name) for name in [*gates, body.get("compared_with"), body.get("baseline")] if name}
    except (StorageError, ValueError, KeyError, AttributeError, TypeError):
        return set()
    return {name for name in names if any(name.startswith(prefix) for prefix in prefixes)}


def _last(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


# --- the cache --------------------------------------------------------------------------------------------------


def _leftovers(home: str, entries: Sequence[Entry], now: float) -> Iterator[Item]:
    for entry in entries:
        old = entry.modified is not None and now - entry.modified > ORPHAN_SECONDS
        if old and _LEFTOVER.match(_last(entry.path)):
            yield Item("temporary file", f"{home}/{entry.path}", entry.size, "left by a process that was killed")


def _tables(base: str, entries: Sequence[Entry], rules: Rules, now: float) -> Iterator[Item]:
    """Tables unused for too long, then the least recently used ones until the rest is small enough."""
    if rules.cache_days is None and rules.cache_bytes is None:
        return
    units: dict[str, _Unit] = {}
    for entry in entries:
        if not entry.path.startswith(f"{USED}/") and not _LEFTOVER.match(_last(entry.path)):
            units.setdefault(_unit_of(entry.path), _Unit()).add(entry, now)
    used = _uses(base, [entry.path for entry in entries if entry.path.startswith(f"{USED}/")])
    last = {path: max(unit.newest, used.get(path, 0.0)) for path, unit in units.items()}
    left = sum(unit.size for unit in units.values())
    for path in sorted(units, key=lambda path: (last[path], path)):
        idle = now - last[path]
        stale = rules.cache_days is not None and idle > rules.cache_days * DAY
        full = rules.cache_bytes is not None and left > rules.cache_bytes and idle > FRESH_SECONDS
        if stale or full:
            left -= units[path].size
            yield Item("table", f"cache/{path}", units[path].size, f"unused for {idle / DAY:.1f} days")


def _unit_of(path: str) -> str:
    """``logits/XX/KEY/START-STOP.parquet`` goes with its table; other files go alone."""
    parts = path.split("/")
    return "/".join(parts[:3]) if len(parts) > 3 else path


def _uses(base: str, notes: Sequence[str]) -> dict[str, float]:
    """When each table was last used, as audits noted it; a damaged note counts as none."""
    last_uses: dict[str, float] = {}
    for note in notes:
        for path, moment in _noted(files.join(base, "cache", note)).items():
            last_uses[path] = max(last_uses.get(path, 0.0), moment)
    return last_uses


def _noted(url: str) -> dict[str, float]:
    try:
        body = plainjson.parsed(files.read_bytes(url))
        if isinstance(body["used"], dict):
            return {str(path): float(moment) for path, moment in body["used"].items()}
        return dict.fromkeys(map(str, body["used"]), datetime.fromisoformat(body["at"]).timestamp())
    except (StorageError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _merge_uses(base: str, gone: set[str], now: float) -> None:
    """One note instead of many: that of the running audits stays, the others become one."""
    home = files.join(base, "cache", USED)
    notes = [entry for entry in files.walk(home) if entry.modified is not None and now - entry.modified > DAY]
    old = [entry.path for entry in notes if entry.path != MERGED]
    if not old:
        return
    merged = _noted(files.join(home, MERGED)) if files.exists(files.join(home, MERGED)) else {}
    for name in old:
        for path, moment in _noted(files.join(home, name)).items():
            merged[path] = max(merged.get(path, 0.0), moment)
    body = {"schema_version": SCHEMA_VERSION, "used": {path: at for path, at in merged.items() if path not in gone}}
    files.write_bytes(files.join(home, MERGED), json.dumps(body).encode())
    for name in old:
        files.remove(files.join(home, name))
