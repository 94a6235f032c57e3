"""The tables of schedules and firings, and their rows as records; a row that cannot be read spoils no other."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from jobs.schedules.schedule import Firing, FiringState, Overlap, Schedule
from services.errors import ConfigError, Problem, one_line
from services.records import Outcome


class Moment(sa.types.TypeDecorator[datetime]):
    """UTC in every database: SQLite forgets zones."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Any) -> datetime | None:
        return value.astimezone(UTC) if value is not None else None

    def process_result_value(self, value: datetime | None, dialect: Any) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Words(sa.types.TypeDecorator[str]):
    """Text of others, such as what an ending says: without NUL and halves of characters, which databases refuse."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Any) -> str | None:
        return value.replace("\x00", "\ufffd").encode("utf-8", "replace").decode() if value is not None else None

    def process_result_value(self, value: str | None, dialect: Any) -> str | None:
        return value


META = sa.MetaData()
SCHEDULES = sa.Table(
    "classwise_schedules",
    META,
    sa.Column("name", sa.String(100), primary_key=True),
    sa.Column("fleet", sa.String(100), nullable=False),
    sa.Column("content", sa.Text, nullable=False),
    sa.Column("cron", sa.String(200), nullable=False),
    sa.Column("zone", sa.String(100), nullable=False),
    sa.Column("overlap", sa.String(10), nullable=False),
    sa.Column("paused", sa.Boolean, nullable=False),
    sa.Column("next_at", Moment),
)
FIRINGS = sa.Table(
    "classwise_firings",
    META,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("schedule", sa.String(100), nullable=False, index=True),
    sa.Column("fleet", sa.String(100), nullable=False),
    sa.Column("content", sa.Text, nullable=False),
    sa.Column("due_at", Moment, nullable=False),
    sa.Column("state", sa.String(10), nullable=False, index=True),
    sa.Column("missed", sa.Integer, nullable=False),
    sa.Column("submission", sa.String(150), nullable=False),
    sa.Column("outcome", sa.String(10)),
    sa.Column("bundle", Words, nullable=False),
    sa.Column("message", Words, nullable=False),
    sa.Column("ended_at", Moment),
    sa.UniqueConstraint("schedule", "due_at"),
)
FAULTS = sa.Table(
    "classwise_schedule_faults",
    META,
    sa.Column("schedule", sa.String(100), primary_key=True),
    sa.Column("message", Words, nullable=False),
)
BEATS = sa.Table(
    "classwise_scheduler_beats",
    META,
    sa.Column("host", sa.String(255), primary_key=True),
    sa.Column("at", Moment, nullable=False),
)
ONE_RUNNING = sa.Index(
    "classwise_one_audit_a_fleet",
    FIRINGS.c.fleet,
    unique=True,
    sqlite_where=FIRINGS.c.state == "running",
    postgresql_where=FIRINGS.c.state == "running",
)


def row_of(schedule: Schedule) -> dict[str, Any]:
    """The columns of a schedule."""
    return {
        "name": schedule.name,
        "fleet": schedule.fleet,
        "content": json.dumps(schedule.content, allow_nan=False),
        "cron": schedule.cron,
        "zone": schedule.zone,
        "overlap": schedule.overlap.value,
        "paused": schedule.paused,
        "next_at": schedule.next_at,
    }


def insert_firing(link: sa.Connection, schedule: Schedule, due_at: datetime, missed: int) -> None:
    row = {
        "schedule": schedule.name,
        "fleet": schedule.fleet,
        "content": json.dumps(schedule.content, allow_nan=False),
        "due_at": due_at,
        "state": FiringState.WAITING.value,
        "missed": missed,
        "submission": "",
        "bundle": "",
        "message": "",
    }
    link.execute(FIRINGS.insert().values(row))


def read_rows(link: sa.Connection, table: sa.Table, query: Any, *order: Any, limit: int | None = None) -> list[Any]:
    """Rows in order, as mappings; a time that is none (SQLite takes any text) is its text, and the rest is read."""
    try:
        return list(link.execute(query.order_by(*order).limit(limit)).mappings())
    except ValueError:  # of one row: none of them could be had
        texts = [sa.type_coerce(column, sa.String).label(column.name) for column in table.columns]
        moments = [column.name for column in table.columns if isinstance(column.type, Moment)]
        records = link.execute(query.with_only_columns(*texts).order_by(*order).limit(limit)).mappings()
        return [{**row, **{name: _moment(row[name]) for name in moments}} for row in records]


def _moment(text: str | None) -> datetime | str | None:
    """The time of a text; the text itself when it is none."""
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC) if text else None
    except ValueError:
        return text


def content_of(text: str) -> dict[str, Any]:
    try:
        body = json.loads(text)
    except ValueError as error:
        raise ConfigError(Problem("content", "a fleet as JSON", one_line(error))) from None
    if not isinstance(body, dict):
        raise ConfigError(Problem("content", "a fleet as a JSON object", type(body).__name__))
    return body


def schedule_of(row: Any, faults: Mapping[str, str]) -> Schedule:
    plain = row["name"], row["fleet"]
    timed = bool(row["paused"]), _time(row["next_at"])
    try:
        if isinstance(row["next_at"], str):
            raise ValueError(f"next_at is no time: {row['next_at'][:100]!r}")
        overlap, content = Overlap(row["overlap"]), content_of(row["content"])
    except (ValueError, ConfigError) as error:
        fault = f"its row cannot be read: {one_line(error, 500)}"
        return Schedule(*plain, {}, row["cron"], row["zone"], Overlap.SKIP, *timed, fault=fault, readable=False)
    return Schedule(*plain, content, row["cron"], row["zone"], overlap, *timed, fault=faults.get(row["name"], ""))


def firing_of(row: Any) -> Firing:
    """A firing; one of a state, an outcome or an unknown time counts as lost."""
    try:
        if isinstance(row["due_at"], str):
            raise ValueError(f"due_at is no time: {row['due_at'][:100]!r}")
        return _read(row)
    except ValueError as error:
        message = f"its row cannot be read: {one_line(error, 500)}"
        return _read({**row, "state": FiringState.LOST, "outcome": None, "message": message})


def _time(value: Any) -> datetime | None:
    return value if isinstance(value, datetime) else None


def _read(row: Any) -> Firing:
    return Firing(
        id=row["id"],
        schedule=row["schedule"],
        fleet=row["fleet"],
        due_at=_time(row["due_at"]) or datetime.fromtimestamp(0, UTC),
        state=FiringState(row["state"]),
        missed=row["missed"],
        submission=row["submission"],
        outcome=Outcome(row["outcome"]) if row["outcome"] else None,
        bundle=row["bundle"],
        message=row["message"],
        ended_at=_time(row["ended_at"]),
    )
