"""Bundles, tables and accepted audits as pruning meets them."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from jobs.comparison.accepted import Acceptance, Accepted
from jobs.upkeep.prune import DAY, Rules, carry_out, plan_prune
from services.records import Outcome
from services.storage import files

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)


def bundle(base: str, fleet: str, days: float, *, synced: bool = True, gates: tuple[str, ...] = ()) -> str:
    """A finished audit so many days ago; its folder's name."""
    name = f"{NOW - timedelta(days=days):%Y%m%dT%H%M%SZ}-0a1b2c3d-00000000"
    folder = files.join(base, "audits", fleet, name)
    body = {"schema_version": 1, "config": {"gates": [{"not_worse_than": gate} for gate in gates]}}
    files.write_bytes(files.join(folder, "bundle.json"), json.dumps(body).encode())
    files.write_bytes(files.join(folder, "tables", "000_m.parquet"), b"x" * 1000)
    if synced:
        files.write_bytes(files.join(folder, "tracking.json"), b'{"uploads": [{"tracking_uri": "sqlite:///x"}]}')
    return name


def accept(base: str, fleet: str, name: str) -> str:
    """What `classwise accept` writes of that bundle; the file."""
    record = Accepted(fleet, name, (Acceptance(name, Outcome.PASS, NOW.isoformat(), "somebody"),))
    path = files.join(base, "audits", fleet, "accepted.json")
    files.write_bytes(path, TypeAdapter(Accepted).dump_json(record))
    return path


def pruned(base: str, **rules: Any) -> set[str]:
    """Last parts of the paths that went."""
    requested = Rules(**rules)
    plan = plan_prune(base, requested, NOW.timestamp())
    return {item.path.rpartition("/")[2] for item in carry_out(plan, base, NOW.timestamp())}


def age(path: Path, days: float) -> None:
    moment = NOW.timestamp() - days * DAY
    for each in [path, *path.rglob("*")]:
        os.utime(each, (moment, moment))
