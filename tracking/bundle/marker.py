"""``tracking.json`` in a bundle's folder: what was uploaded where, so that `sync` sends each audit once."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from services import limits
from services.records import SCHEMA_VERSION
from services.storage import files, plainjson
from services.telemetry.redaction import redacted

MARKER = "tracking.json"


def without_secret(uri: str) -> str:
    """The URI without its password and without options that hold a secret."""
    parts = urlsplit(uri)
    if parts.password:
        host = parts.netloc.rpartition("@")[2]
        uri = urlunsplit(parts._replace(netloc=f"{parts.username}@{host}"))
    return redacted(uri)


def uploads(folder: str) -> list[dict[str, Any]]:
    """Past uploads of the bundle in `folder`, oldest first; a damaged marker counts as none."""
    path = files.join(folder, MARKER)
    if not files.exists(path):
        return []
    try:
        entries = plainjson.parsed(files.read_bytes(path, most=limits.FILE)).get("uploads", [])
    except (ValueError, AttributeError):
        return []
    return [entry for entry in entries if isinstance(entry, dict)]


def uploaded_to(folder: str, tracking_uri: str) -> dict[str, Any] | None:
    """The upload to that server, None when there was none."""
    target = without_secret(tracking_uri)
    return next((entry for entry in uploads(folder) if entry.get("tracking_uri") == target), None)


def record(folder: str, tracking_uri: str, entry: dict[str, Any]) -> None:
    """Add or replace the upload to that server."""
    target = without_secret(tracking_uri)
    kept = [known for known in uploads(folder) if known.get("tracking_uri") != target]
    stamp = {"tracking_uri": target, "uploaded": datetime.now(UTC).isoformat(timespec="seconds")}
    body = {"schema_version": SCHEMA_VERSION, "uploads": [*kept, {**stamp, **entry}]}
    files.write_bytes(files.join(folder, MARKER), json.dumps(body, indent=1).encode())
