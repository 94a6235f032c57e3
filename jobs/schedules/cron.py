"""When a cron expression fires next, in a time zone that changes its clocks.

APScheduler's `CronTrigger` reads the fields. It is asked in fixed offsets from UTC only: across a change of the clocks
its own answers go back in time (at the end of summer time it names the same half hour again and again). So a firing is
looked for under the offset of now; if the zone has another offset by then, the search goes on from the change.

An expression whose minute or hour begins with ``*`` follows the clock through a change. Any other names fixed times:
one that a change skips fires right after it, and one that comes twice fires the first time only, so that a nightly
audit runs once every night.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from services.errors import ConfigError, Problem

FIELDS = ("second", "minute", "hour", "day", "month", "day_of_week")
DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_DAY = timedelta(days=1)
_COUNTED = 1000
_CHANGES = 1000
"""Changes of the clocks to look across: a February 29 is found, a February 30 is not looked for for ever."""


@dataclass(frozen=True)
class Cron:
    """A checked expression: minute, hour, day of month, month, day of week; a sixth field before them is the second.

    Days of the week are 0 to 7 or names, with 0 and 7 for Sunday.

    Attributes:
        text: the expression.
        zone: an IANA name such as Europe/Berlin.
    """

    text: str
    zone: str = "UTC"

    def __post_init__(self) -> None:
        _fields(self.text)
        _zone(self.zone)
        _trigger(self.text, timedelta(0))

    def after(self, moment: datetime) -> datetime | None:
        """The first firing later than `moment`, in UTC; None when there is none."""
        zone, start = _zone(self.zone), moment.astimezone(UTC) + timedelta(microseconds=1)
        for _ in range(_CHANGES):
            offset = _offset(zone, start)
            fire_time = _trigger(self.text, offset).get_next_fire_time(None, start.astimezone(timezone(offset)))
            if fire_time is None:
                return None
            candidate: datetime = fire_time.astimezone(UTC)
            if _offset(zone, candidate) == offset:
                return candidate
            change = _change(zone, start, candidate)
            jump = _offset(zone, change) - offset
            if not self.follows_the_clock:
                if jump > timedelta(0) and candidate < change + jump:
                    return change  # it names a time that the clocks skipped
                start = change - min(jump, timedelta(0))  # the hour that comes again had its firings
            else:
                start = change
        return None

    @property
    def follows_the_clock(self) -> bool:
        """Whether it names no fixed times of day."""
        fields = _fields(self.text)
        return fields["minute"].startswith("*") or fields["hour"].startswith("*")

    def due(self, first: datetime, now: datetime) -> tuple[datetime, int]:
        """The latest firing from `first` up to `now`, and how many there were, both ends included.

        Of more than `_COUNTED` only those of the last hour are gone through: a scheduler that was away for a month
        does not count its seconds.
        """
        latest, count = first, 1
        while (following := self.after(latest)) is not None and following <= now:
            latest, count = following, count + 1
            if count == _COUNTED:
                latest = max(latest, self.after(now - timedelta(hours=1)) or latest)
                latest = min(latest, now)
        return latest, count


def _fields(text: str) -> dict[str, str]:
    parts = text.split()
    if len(parts) == 5:
        parts = ["0", *parts]
    if len(parts) != 6 or len(text) > 200:
        remedy = "write for example: 0 3 * * 1-5"
        expected = "five fields (minute hour day month weekday), or six with the second first"
        raise ConfigError(Problem("cron", expected, repr(text)[:220], remedy))
    fields = dict(zip(FIELDS, parts, strict=True))
    if "*" not in (fields["day"][:1], fields["day_of_week"][:1]):
        remedy = "cron programs disagree on what both mean; add two schedules"
        raise ConfigError(Problem("cron", "a day of the month or a day of the week", repr(text), remedy))
    return fields


@cache
def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        remedy = "write for example Europe/Berlin or UTC"
        raise ConfigError(Problem("zone", "the IANA name of a time zone", repr(name)[:120], remedy)) from None


@cache
def _trigger(text: str, offset: timedelta) -> Any:
    from apscheduler.triggers.cron import CronTrigger

    fields = _fields(text)
    try:
        return CronTrigger(**{**fields, "day_of_week": _weekdays(fields["day_of_week"])}, timezone=timezone(offset))
    except ValueError as error:
        raise ConfigError(Problem("cron", "fields that cron has", f"{text!r}: {error}"[:300])) from None


def _weekdays(field: str) -> str:
    """The days by name: APScheduler counts from Monday, cron from Sunday, and a range may pass over it (fri-mon)."""
    if field == "*":
        return field
    chosen = {day % 7 for part in field.lower().split(",") for day in _days(part, field)}
    return ",".join(DAYS[day] for day in sorted(chosen))


def _days(part: str, field: str) -> range:
    match = re.fullmatch(r"(\*|[0-7]|[a-z]{3})(?:-([0-7]|[a-z]{3}))?(?:/([1-7]))?", part)
    names = {**{name: day for day, name in enumerate(DAYS)}, **{str(day): day for day in range(8)}, "*": 0}
    ends = [end for end in match.groups()[:2] if end is not None] if match else []
    if match is None or any(end not in names for end in ends) or (ends[0] == "*" and len(ends) > 1):
        raise ConfigError(Problem("cron", "days of the week 0 to 7 or sun to sat", repr(field)[:120]))
    first = names[ends[0]]
    last = 6 if ends[0] == "*" else names[ends[-1]]
    if len(ends) == 1 and match[3] and ends[0] != "*":
        last = 6
    return range(first, last + (7 if last < first else 0) + 1, int(match[3] or 1))


def _offset(zone: ZoneInfo, moment: datetime) -> timedelta:
    return moment.astimezone(zone).utcoffset() or timedelta(0)


def _change(zone: ZoneInfo, start: datetime, end: datetime) -> datetime:
    """The first moment after `start` with another offset than there; there is one until `end`."""
    offset, low = _offset(zone, start), start
    high = min(low + _DAY, end)
    while _offset(zone, high) == offset:
        low, high = high, min(high + _DAY, end)
    while high - low > timedelta(seconds=1):
        middle = low + (high - low) / 2
        low, high = (middle, high) if _offset(zone, middle) == offset else (low, middle)
    return high.replace(microsecond=0)
