"""Schedules and firings in SQLite or PostgreSQL.

Plain columns and JSON: nothing is pickled, so that who can write to the database can ask for audits and for nothing
else. Two schedulers on one database double nothing: a schedule is claimed by moving its next firing on, which only one
of two can do, and a partial unique index lets one firing of a fleet run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.schema import CreateIndex, CreateTable

from jobs.schedules.records import Firing, FiringState, Overlap, Schedule
from services.errors import ConfigError, Problem, ServiceError, one_line
from services.records import Outcome
from services.registry import did_you_mean
from tracking.bundle.marker import without_secret

CREATE_ATTEMPTS = 5


class _Moment(sa.types.TypeDecorator[datetime]):
    """UTC in every database: SQLite forgets zones."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Any) -> datetime | None:
        return value.astimezone(UTC) if value is not None else None

    def process_result_value(self, value: datetime | None, dialect: Any) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


_META = sa.MetaData()
_SCHEDULES = sa.Table(
    "classwise_schedules",
    _META,
    sa.Column("name", sa.String(100), primary_key=True),
    sa.Column("fleet", sa.String(100), nullable=False),
    sa.Column("content", sa.Text, nullable=False),
    sa.Column("cron", sa.String(200), nullable=False),
    sa.Column("zone", sa.String(100), nullable=False),
    sa.Column("overlap", sa.String(10), nullable=False),
    sa.Column("paused", sa.Boolean, nullable=False),
    sa.Column("next_at", _Moment),
)
_FIRINGS = sa.Table(
    "classwise_firings",
    _META,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("schedule", sa.String(100), nullable=False, index=True),
    sa.Column("fleet", sa.String(100), nullable=False),
    sa.Column("content", sa.Text, nullable=False),
    sa.Column("due_at", _Moment, nullable=False),
    sa.Column("state", sa.String(10), nullable=False, index=True),
    sa.Column("missed", sa.Integer, nullable=False),
    sa.Column("submission", sa.String(150), nullable=False),
    sa.Column("outcome", sa.String(10)),
    sa.Column("bundle", sa.Text, nullable=False),
    sa.Column("message", sa.Text, nullable=False),
    sa.Column("ended_at", _Moment),
    sa.UniqueConstraint("schedule", "due_at"),
)
_FAULTS = sa.Table(
    "classwise_schedule_faults",
    _META,
    sa.Column("schedule", sa.String(100), primary_key=True),
    sa.Column("message", sa.Text, nullable=False),
)
_BEATS = sa.Table(
    "classwise_scheduler_beats",
    _META,
    sa.Column("host", sa.String(255), primary_key=True),
    sa.Column("at", _Moment, nullable=False),
)
_RUNS = sa.Index(
    "classwise_one_audit_a_fleet",
    _FIRINGS.c.fleet,
    unique=True,
    sqlite_where=_FIRINGS.c.state == "running",
    postgresql_where=_FIRINGS.c.state == "running",
)


class Store:
    """The database.

    Args:
        uri: sqlite:///FILE or postgresql+psycopg://USER@HOST/NAME.

    Raises:
        ConfigError: another kind of database.
        ServiceError: it cannot be reached or written.
    """

    def __init__(self, uri: str) -> None:
        self._shown = without_secret(uri)
        try:
            url = sa.make_url(uri)
        except SQLAlchemyError as error:
            raise ConfigError(Problem("--db", "the URI of a database", repr(self._shown), str(error))) from None
        if url.get_backend_name() not in ("sqlite", "postgresql"):
            raise ConfigError(Problem("--db", "sqlite:///FILE or postgresql+psycopg://...", self._shown))
        with self._unavailable():
            if url.get_backend_name() == "sqlite" and url.database:
                Path(url.database).parent.mkdir(parents=True, exist_ok=True)
            self._engine = sa.create_engine(uri, pool_pre_ping=True)
            if url.get_backend_name() == "sqlite":
                sa.event.listen(self._engine, "connect", _sqlite_waits)
            self._create()

    def close(self) -> None:
        """Give the connections back."""
        self._engine.dispose()

    # --- schedules -----------------------------------------------------------------------------------------------

    def add(self, schedule: Schedule) -> None:
        """Add a schedule.

        Raises:
            ConfigError: its name is taken.
        """
        row = {
            "name": schedule.name,
            "fleet": schedule.fleet,
            "content": json.dumps(schedule.content, allow_nan=False),
            "cron": schedule.cron,
            "zone": schedule.zone,
            "overlap": schedule.overlap.value,
            "paused": schedule.paused,
            "next_at": schedule.next_at,
        }
        try:
            with self._begin() as link:
                link.execute(_SCHEDULES.insert().values(row))
        except IntegrityError:
            remedy = "remove it first, or take another name"
            raise ConfigError(Problem("--name", "a new name", f"{schedule.name!r} again", remedy)) from None

    def schedules(self) -> list[Schedule]:
        """All, by name; one that cannot be read is among them, with its fault."""
        with self._begin() as link:
            faults = {row.schedule: row.message for row in link.execute(_FAULTS.select())}
            return [_schedule(row, faults) for row in _rows(link, _SCHEDULES, _SCHEDULES.select(), _SCHEDULES.c.name)]

    def set_fault(self, name: str, message: str) -> None:
        """Record why a schedule does not fire; "" when it does again."""
        with suppress(IntegrityError), self._begin() as link:  # another scheduler was first
            link.execute(_FAULTS.delete().where(_FAULTS.c.schedule == name))
            if message:
                link.execute(_FAULTS.insert().values(schedule=name, message=message[:4000]))

    def schedule(self, name: str) -> Schedule:
        """One by name.

        Raises:
            ConfigError: there is none; the message offers the nearest name.
        """
        known = {each.name: each for each in self.schedules()}
        if name not in known:
            remedy = did_you_mean(name, list(known)) if known else "add one with classwise schedule add"
            raise ConfigError(Problem("schedule", "the name of a schedule", repr(name), remedy))
        return known[name]

    def remove(self, name: str) -> None:
        """Remove a schedule; its firings stay on record, and one that runs goes on."""
        self.schedule(name)
        with self._begin() as link:
            link.execute(_SCHEDULES.delete().where(_SCHEDULES.c.name == name))
            link.execute(_FAULTS.delete().where(_FAULTS.c.schedule == name))

    def set_paused(self, name: str, paused: bool, next_at: datetime | None) -> None:
        """Pause or resume."""
        self.schedule(name)
        with self._begin() as link:
            change = _SCHEDULES.update().where(_SCHEDULES.c.name == name)
            link.execute(change.values(paused=paused, next_at=next_at))

    # --- firings -------------------------------------------------------------------------------------------------

    def claim(self, schedule: Schedule, due_at: datetime, missed: int, next_at: datetime | None) -> bool:
        """Move a schedule on and record its firing, together or not at all; False when another scheduler did.

        A time that is on record already (of a schedule that was removed and added again) is not fired twice.
        """
        same = (_SCHEDULES.c.name == schedule.name) & (_SCHEDULES.c.next_at == schedule.next_at)
        move = _SCHEDULES.update().where(same & ~_SCHEDULES.c.paused).values(next_at=next_at)
        try:
            with self._begin() as link:
                if link.execute(move).rowcount != 1:
                    return False
                _insert(link, schedule, due_at, missed)
        except IntegrityError:
            with self._begin() as link:
                link.execute(move)
            return False
        return True

    def fire(self, schedule: Schedule, now: datetime) -> None:
        """Record a firing beside the schedule's own."""
        with self._begin() as link:
            _insert(link, schedule, now, 0)

    def firings(self, *states: FiringState, schedule: str = "", limit: int = 10_000) -> list[Firing]:
        """Firings in these states, or all; the earliest first, and of many the latest."""
        query = _FIRINGS.select()
        if states:
            query = query.where(_FIRINGS.c.state.in_([state.value for state in states]))
        if schedule:
            query = query.where(_FIRINGS.c.schedule == schedule)
        order = (_FIRINGS.c.due_at.desc(), _FIRINGS.c.id.desc())
        with self._begin() as link:
            return [_firing(row) for row in reversed(_rows(link, _FIRINGS, query, *order, limit=limit))]

    def content(self, firing: Firing) -> dict[str, Any]:
        """The fleet of a firing, as it was when it came due.

        Raises:
            ConfigError: it is no JSON object.
        """
        with self._begin() as link:
            text = link.execute(sa.select(_FIRINGS.c.content).where(_FIRINGS.c.id == firing.id)).scalar_one()
        return _content(text)

    # --- the scheduler -------------------------------------------------------------------------------------------

    def beat(self, host: str, now: datetime) -> None:
        """Record that the scheduler of a host is at work; hosts that have been silent for a week are forgotten."""
        with suppress(IntegrityError), self._begin() as link:
            link.execute(_BEATS.delete().where((_BEATS.c.host == host) | (_BEATS.c.at < now - timedelta(days=7))))
            link.execute(_BEATS.insert().values(host=host, at=now))

    def beats(self) -> dict[str, datetime]:
        """When the schedulers of hosts were at work last."""
        with self._begin() as link:
            return {row.host: row.at for row in link.execute(_BEATS.select())}

    def start(self, firing: Firing, submission: str) -> bool:
        """Let a waiting firing run; False when it waits no more, or an audit of its fleet runs."""
        try:
            return self._change(firing, FiringState.WAITING, state="running", submission=submission)
        except IntegrityError:
            return False

    def end(
        self,
        firing: Firing,
        state: FiringState,
        now: datetime,
        *,
        outcome: Outcome | None = None,
        bundle: str = "",
        message: str = "",
    ) -> bool:
        """Record the end of a firing; False when another scheduler did."""
        ending = {"outcome": outcome.value if outcome else None, "bundle": bundle, "message": message[:4000]}
        return self._change(firing, firing.state, state=state.value, ended_at=now, **ending)

    def put_back(self, firing: Firing, message: str) -> bool:
        """Let a firing that could not be submitted wait again."""
        return self._change(firing, FiringState.RUNNING, state="waiting", message=message[:4000])

    def _change(self, firing: Firing, before: FiringState, **values: Any) -> bool:
        same = (_FIRINGS.c.id == firing.id) & (_FIRINGS.c.state == before.value)
        with self._begin() as link:
            return link.execute(_FIRINGS.update().where(same).values(**values)).rowcount == 1

    # --- the database --------------------------------------------------------------------------------------------

    def _create(self) -> None:
        """Make the tables that are missing.

        `IF NOT EXISTS`, for many processes may do so together; PostgreSQL can refuse even that while another is at it.
        """
        for attempt in range(1, CREATE_ATTEMPTS + 1):
            try:
                with self._engine.begin() as link:
                    for table in _META.sorted_tables:
                        link.execute(CreateTable(table, if_not_exists=True))
                        for index in table.indexes:
                            link.execute(CreateIndex(index, if_not_exists=True))
            except SQLAlchemyError:
                if attempt == CREATE_ATTEMPTS:
                    raise
            else:
                return

    @contextmanager
    def _begin(self) -> Iterator[sa.Connection]:
        with self._unavailable(), self._engine.begin() as link:
            yield link

    @contextmanager
    def _unavailable(self) -> Iterator[None]:
        try:
            yield
        except IntegrityError:
            raise
        except (SQLAlchemyError, NoSuchModuleError, ImportError, OSError) as error:
            actual = one_line(error, 300)
            remedy = "check --db and that the database runs; PostgreSQL needs classwise[postgres]"
            raise ServiceError(Problem(self._shown, "a database that can be written", actual, remedy)) from error


def _sqlite_waits(link: Any, record: Any) -> None:
    """Wait for another writer instead of failing, and let readers read meanwhile."""
    cursor = link.cursor()
    cursor.execute("PRAGMA busy_timeout = 30000")
    cursor.execute("PRAGMA journal_mode = WAL")
    cursor.close()


def _insert(link: sa.Connection, schedule: Schedule, due_at: datetime, missed: int) -> None:
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
    link.execute(_FIRINGS.insert().values(row))


def _rows(link: sa.Connection, table: sa.Table, query: Any, *order: Any, limit: int | None = None) -> list[Any]:
    """Rows in order, as mappings; a time that is none (SQLite takes any text) is its text, and the rest is read."""
    try:
        return list(link.execute(query.order_by(*order).limit(limit)).mappings())
    except ValueError:  # of one row: none of them could be had
        texts = [sa.type_coerce(column, sa.String).label(column.name) for column in table.columns]
        moments = [column.name for column in table.columns if isinstance(column.type, _Moment)]
        records = link.execute(query.with_only_columns(*texts).order_by(*order).limit(limit)).mappings()
        return [{**row, **{name: _moment(row[name]) for name in moments}} for row in records]


def _moment(text: str | None) -> datetime | str | None:
    """The time of a text; the text itself when it is none."""
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC) if text else None
    except ValueError:
        return text


def _content(text: str) -> dict[str, Any]:
    try:
        body = json.loads(text)
    except ValueError as error:
        raise ConfigError(Problem("content", "a fleet as JSON", one_line(error))) from None
    if not isinstance(body, dict):
        raise ConfigError(Problem("content", "a fleet as a JSON object", type(body).__name__))
    return body


def _schedule(row: Any, faults: Mapping[str, str]) -> Schedule:
    plain = row["name"], row["fleet"]
    timed = bool(row["paused"]), _time(row["next_at"])
    try:
        if isinstance(row["next_at"], str):
            raise ValueError(f"next_at is no time: {row['next_at'][:100]!r}")
        overlap, content = Overlap(row["overlap"]), _content(row["content"])
    except (ValueError, ConfigError) as error:
        fault = f"its row cannot be read: {one_line(error, 500)}"
        return Schedule(*plain, {}, row["cron"], row["zone"], Overlap.SKIP, *timed, fault=fault, readable=False)
    return Schedule(*plain, content, row["cron"], row["zone"], overlap, *timed, fault=faults.get(row["name"], ""))


def _firing(row: Any) -> Firing:
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
