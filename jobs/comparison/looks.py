"""How often a fleet was compared with its accepted audit, at which level, and what came of it: ``looks.json``.

Every night is a test more. The next one's level is that of a stream (`services.numerics.evidence.streams`), so that
over all nights since the acceptance a false "worse" keeps its bound. A new acceptance begins a new stream.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pydantic import TypeAdapter

from services.numerics.evidence.streams import false_alarm_bound, lond_level
from tracking.bundle.record_file import RecordFile

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Look:
    """One audit that was compared with the accepted one: the level of its comparisons, and whether one was worse."""

    audit_id: str
    level: float
    worse: bool = False


@dataclass(frozen=True)
class Looks:
    """The content of ``looks.json``: the audits compared with `accepted` so far, the oldest first."""

    accepted: str
    looks: tuple[Look, ...] = ()
    schema_version: int = SCHEMA_VERSION

    def before(self, audit_id: str) -> Looks:
        """Without what came from that audit on; an audit that is compared again keeps its place."""
        place = next((i for i, look in enumerate(self.looks) if look.audit_id == audit_id), len(self.looks))
        return replace(self, looks=self.looks[:place])

    def next_level(self, delta: float) -> float:
        """Of the comparison that comes next."""
        return lond_level(delta, [look.worse for look in self.looks])

    @property
    def bound(self) -> float:
        """The chance of one or more false "worse" since the acceptance, at most."""
        return false_alarm_bound([look.level for look in self.looks])


_FILE = RecordFile(
    "looks.json",
    TypeAdapter(Looks),
    "a record of comparisons",
    "delete it: then the stream of tests begins anew, and errs more often than it says",
    SCHEMA_VERSION,
)


def read_looks(home: str, accepted: str) -> Looks:
    """What the fleet whose audits lie in `home` was compared with that accepted audit; raises as `RecordFile.read`."""
    known = _FILE.read(home)
    return known if known is not None and known.accepted == accepted else Looks(accepted)


def write_looks(looks: Looks, home: str) -> None:
    """Write ``looks.json``; raises as `RecordFile.write`."""
    _FILE.write(looks, home)
