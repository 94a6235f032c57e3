"""An audit that was cut off between its last shard and the end of its upload: the same command goes on with it.

Judged anew under another id it would stand in MLflow beside its own first half. ``begun.json`` in the bundle's folder
says whose audit it is, from before its first file until it is published.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from services.errors import StorageError
from services.records import SCHEMA_VERSION, AuditResult
from services.storage import files, plainjson
from tracking.bundle.bundle import BUNDLE, fleet_folder, folder_of, read_bundle
from tracking.mlflow.process import Driver, this_driver

BEGUN = "begun.json"
WITHIN = timedelta(hours=12)
"""How old an audit may be that is gone on with: what a schedule starts a day later is an audit of its own."""
NEWEST = 20
"""Audits of the fleet that are looked at."""


@dataclass(frozen=True)
class Begun:
    """An audit's id and folder, and its result when that is complete already."""

    audit_id: str
    folder: str
    result: AuditResult | None = None


def begin(base: str, fleet: str, audit_id: str, content: str) -> Begun:
    """Take up the audit of the same `content` whose driver is gone, or begin `audit_id`.

    Args:
        content: a digest of all that the audit's numbers and verdicts depend on.

    Raises:
        StorageError: the storage is full, read-only or unreachable.
    """
    unfinished = _cut_off(base, fleet, content)
    folder = folder_of(base, fleet, unfinished or audit_id)
    body = {
        "schema_version": SCHEMA_VERSION,
        "audit_id": unfinished or audit_id,
        "content": content,
        "driver": this_driver().to_tag(),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    files.write_bytes(files.join(folder, BEGUN), json.dumps(body).encode())
    return Begun(unfinished or audit_id, folder, _complete(folder) if unfinished else None)


def end(folder: str) -> None:
    """The audit is published. One that cannot be marked so is reported again by the next command, and not repeated."""
    with suppress(StorageError):
        files.remove(files.join(folder, BEGUN))


def _cut_off(base: str, fleet: str, content: str) -> str:
    home = fleet_folder(base, fleet)
    for name in reversed(files.listing(home)[-NEWEST:]):
        begun = _read(files.join(home, name, BEGUN))
        if begun.get("content") == content and _is_recent(begun) and _is_gone(begun):
            return str(begun["audit_id"])
    return ""


def _read(path: str) -> dict[str, Any]:
    """Empty when there is none; one that is damaged counts as none."""
    if not files.exists(path):
        return {}
    try:
        body = plainjson.parsed(files.read_bytes(path))
    except (ValueError, StorageError):
        return {}
    return body if isinstance(body, dict) else {}


def _is_recent(begun: dict[str, Any]) -> bool:
    return datetime.now(UTC) - datetime.fromisoformat(begun["at"]) < WITHIN


def _is_gone(begun: dict[str, Any]) -> bool:
    """Certainly: a driver on another host may still be at work."""
    driver = Driver.from_tag(begun["driver"])
    return driver is not None and bool(driver.is_gone())


def _complete(folder: str) -> AuditResult | None:
    """The result that was kept before the end came; None where it was not, or is damaged: it is judged again."""
    if not files.exists(files.join(folder, BUNDLE)):
        return None
    with suppress(StorageError):
        return read_bundle(folder)
    return None
