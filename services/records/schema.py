"""The version of what is written to disk, and the digests that name it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import Any

SCHEMA_VERSION = 1
"""Version of Parquet files and of the small JSON files. Readers accept this version and older ones."""
AUDIT_VERSION = 2
"""Version of an audit's record, `bundle.json`: 2 has typed series; 1 is read too (`services.records.upgrade`)."""


def digest_of(*parts: Any) -> str:
    """Hex SHA-256 (first 32 digits) of the canonical JSON of `parts`; dataclasses are taken by their fields."""

    def plain(value: Any) -> Any:
        return asdict(value) if hasattr(value, "__dataclass_fields__") else value

    text = json.dumps([plain(part) for part in parts], sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
