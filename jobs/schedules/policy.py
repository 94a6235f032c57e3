"""What becomes of the firings that wait: a pure decision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

from jobs.schedules.schedule import Firing, Overlap


class Decision(StrEnum):
    """What to do with a waiting firing."""

    START = "start"
    WAIT = "wait"
    SKIP = "skip"
    REPLACE = "replace"


def decide(
    waiting: Sequence[Firing], running: Sequence[Firing], overlaps: Mapping[str, Overlap]
) -> list[tuple[Firing, Decision]]:
    """Decide on each waiting firing, the earliest first.

    One audit of a fleet runs at a time. Of one schedule only the latest firing waits. While the fleet is busy, a firing
    waits or is skipped as its schedule says; one of a schedule that was removed waits.

    Args:
        waiting, running: firings in these states.
        overlaps: the rule of each schedule, by name.
    """
    busy = {firing.fleet for firing in running}
    ordered = sorted(waiting, key=lambda firing: (firing.due_at, firing.id))
    latest = {firing.schedule: firing.id for firing in ordered}
    decided = []
    for firing in ordered:
        if firing.id != latest[firing.schedule]:
            decided.append((firing, Decision.REPLACE))
        elif firing.fleet not in busy:
            busy.add(firing.fleet)
            decided.append((firing, Decision.START))
        elif overlaps.get(firing.schedule, Overlap.QUEUE) is Overlap.SKIP:
            decided.append((firing, Decision.SKIP))
        else:
            decided.append((firing, Decision.WAIT))
    return decided
