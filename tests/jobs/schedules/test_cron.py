"""Firings against a naive walk over every minute, and across changes of the clocks."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.schedules.cron import Cron
from services.errors import ConfigError

BERLIN = ZoneInfo("Europe/Berlin")


def firings(cron: Cron, start: datetime, count: int) -> list[datetime]:
    result, moment = [], start
    for _ in range(count):
        following = cron.after(moment)
        assert following is not None
        result.append(following)
        moment = following
    return result


def local(text: str, start: datetime, count: int, zone: str = "Europe/Berlin") -> list[str]:
    return [f"{each.astimezone(ZoneInfo(zone)):%d %H:%M%z}" for each in firings(Cron(text, zone), start, count)]


def test_a_nightly_audit_runs_once_every_night_through_both_changes() -> None:
    spring = datetime(2027, 3, 27, tzinfo=BERLIN)
    assert local("30 2 * * *", spring, 3) == ["27 02:30+0100", "28 03:00+0200", "29 02:30+0200"]
    autumn = datetime(2026, 10, 24, tzinfo=BERLIN)
    assert local("30 2 * * *", autumn, 3) == ["24 02:30+0200", "25 02:30+0200", "26 02:30+0100"]
    assert local("0 3 * * *", spring, 2) == ["27 03:00+0100", "28 03:00+0200"]


def test_an_hourly_audit_follows_the_clock() -> None:
    autumn = firings(Cron("0 * * * *", "Europe/Berlin"), datetime(2026, 10, 24, 21, tzinfo=UTC), 8)
    spring = firings(Cron("0 * * * *", "Europe/Berlin"), datetime(2027, 3, 27, 22, tzinfo=UTC), 8)
    for each in (autumn, spring):
        assert {later - earlier for earlier, later in pairwise(each)} == {timedelta(hours=1)}


def test_a_change_of_half_an_hour_and_one_of_a_whole_day() -> None:
    lord_howe = datetime(2026, 10, 3, 0, tzinfo=ZoneInfo("Australia/Lord_Howe"))
    assert local("15 2 * * *", lord_howe, 2, "Australia/Lord_Howe") == ["03 02:15+1030", "04 02:30+1100"]
    samoa = datetime(2011, 12, 29, 0, tzinfo=ZoneInfo("Pacific/Apia"))
    assert local("0 12 * * *", samoa, 2, "Pacific/Apia") == ["29 12:00-1000", "31 00:00+1400"]


WEEKDAYS = {
    "0": {6},
    "7": {6},
    "1-5": {0, 1, 2, 3, 4},
    "sun": {6},
    "fri-mon": {4, 5, 6, 0},
    "*/3": {6, 2, 5},
    "*": set(range(7)),
}


@pytest.mark.parametrize(("field", "days"), WEEKDAYS.items())
def test_days_of_the_week_are_crons(field: str, days: set[int]) -> None:
    history = firings(Cron(f"0 0 * * {field}"), datetime(2026, 11, 1, tzinfo=UTC), 14)
    assert {each.weekday() for each in history} == days


def matching(minutes: set[int], hours: set[int], zone: ZoneInfo, start: datetime) -> Iterator[datetime]:
    """The naive oracle of an expression that follows the clock: every minute, asked for what the clock shows."""
    moment = start
    while True:
        moment += timedelta(minutes=1)
        shown = moment.astimezone(zone)
        if shown.minute in minutes and shown.hour in hours:
            yield moment


@given(
    step=st.sampled_from([5, 7, 15, 30, 60]),
    hours=st.sampled_from(["*", "1-3", "2", "0,2,23", "*/2"]),
    zone=st.sampled_from(["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "UTC"]),
    day=st.sampled_from([(2026, 10, 24), (2026, 10, 31), (2027, 3, 13), (2027, 3, 27), (2027, 4, 3), (2026, 7, 1)]),
)
def test_an_expression_that_follows_the_clock_agrees_with_a_walk_over_every_minute(
    step: int, hours: str, zone: str, day: tuple[int, int, int]
) -> None:
    every = "*" if step == 60 else f"*/{step}"
    minutes = set(range(60)) if step == 60 else set(range(0, 60, step))
    allowed = {"*": set(range(24)), "1-3": {1, 2, 3}, "2": {2}, "0,2,23": {0, 2, 23}, "*/2": set(range(0, 24, 2))}
    start = datetime(*day, 20, tzinfo=UTC)
    walk = matching(minutes, allowed[hours], ZoneInfo(zone), start)
    expected = [next(walk) for _ in range(20)]
    assert firings(Cron(f"{every} {hours} * * *", zone), start, 20) == expected


@given(st.datetimes(datetime(2026, 1, 1), datetime(2028, 1, 1)), st.sampled_from(["30 2 * * *", "*/20 * * * * *"]))
def test_a_firing_is_always_later_and_on_a_whole_second(moment: datetime, text: str) -> None:
    result = Cron(text, "Europe/Berlin").after(moment.replace(tzinfo=UTC))
    assert result is not None and result > moment.replace(tzinfo=UTC) and result.microsecond == 0


def test_missed_firings_are_counted_and_the_latest_is_due() -> None:
    hourly, first = Cron("0 * * * *"), datetime(2026, 11, 28, 1, tzinfo=UTC)
    assert hourly.due(first, first) == (first, 1)
    assert hourly.due(first, first + timedelta(hours=3, minutes=59)) == (first + timedelta(hours=3), 4)
    latest, count = Cron("* * * * * *").due(first, first + timedelta(days=30))
    assert latest == first + timedelta(days=30) and count > 1000


@pytest.mark.parametrize(
    ("text", "zone", "said"),
    [
        ("* * * *", "UTC", "five fields"),
        ("", "UTC", "five fields"),
        ("* * * * * * *", "UTC", "five fields"),
        ("61 * * * *", "UTC", "fields that cron has"),
        ("a * * * *", "UTC", "fields that cron has"),
        ("0 3 1 * 1", "UTC", "add two schedules"),
        ("0 3 * * 8", "UTC", "days of the week"),
        ("0 3 * * noday", "UTC", "days of the week"),
        ("0 3 * * *", "Europe/Berln", "the IANA name of a time zone"),
        ("0 3 * * *", "../../etc/passwd", "the IANA name of a time zone"),
        ("0 3 * * *", "", "the IANA name of a time zone"),
    ],
)
def test_what_is_no_expression_or_no_zone_says_so(text: str, zone: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Cron(text, zone)


def test_a_day_that_never_comes_is_not_waited_for() -> None:
    assert Cron("0 0 30 2 *").after(datetime(2026, 1, 1, tzinfo=UTC)) is None
    assert Cron("0 0 29 2 *").after(datetime(2026, 1, 1, tzinfo=UTC)) == datetime(2028, 2, 29, tzinfo=UTC)
