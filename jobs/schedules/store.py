"""Schedules and firings in SQLite or PostgreSQL.

Plain columns and JSON: nothing is pickled, so that who can write to the database can ask for audits and for nothing
else. Two schedulers on one database double nothing: a schedule is claimed by moving its next firing on, which only one
of two can do, and a partial unique index lets one firing of a fleet run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import DataError, IntegrityError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.schema import CreateIndex, CreateTable

from jobs.schedules.schedule import Firing, FiringState, Schedule
from jobs.schedules.schema import (
    BEATS,
    FAULTS,
    FIRINGS,
    META,
    SCHEDULES,
    content_of,
    firing_of,
    insert_firing,
    read_rows,
    row_of,
    schedule_of,
)
from services.errors import ClasswiseError, ConfigError, Problem, ServiceError, one_line
from services.records import Outcome
from services.registry import did_you_mean
from tracking.bundle.marker import without_secret

CREATE_ATTEMPTS = 5
CONNECT_SECONDS = 10
"""How long a server is waited for that takes connections and says nothing; `?connect_timeout=` of the URI counts."""


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
            remote = url.get_backend_name() == "postgresql"
            waits = {"connect_timeout": CONNECT_SECONDS} if remote and "connect_timeout" not in url.query else {}
            self._engine = sa.create_engine(uri, pool_pre_ping=True, connect_args=waits)
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
        try:
            with self._begin() as link:
                link.execute(SCHEDULES.insert().values(row_of(schedule)))
        except IntegrityError:
            remedy = "remove it first, or take another name"
            raise ConfigError(Problem("--name", "a new name", f"{schedule.name!r} again", remedy)) from None

    def update(self, schedule: Schedule) -> None:
        """Put a schedule in the place of the one of its name; its firings stay, and one that waits or runs goes on.

        Raises:
            ConfigError: there is none of that name.
        """
        self.schedule(schedule.name)
        with self._begin() as link:
            link.execute(SCHEDULES.update().where(SCHEDULES.c.name == schedule.name).values(row_of(schedule)))
            link.execute(FAULTS.delete().where(FAULTS.c.schedule == schedule.name))

    def schedules(self) -> list[Schedule]:
        """All, by name; one that cannot be read is among them, with its fault."""
        with self._begin() as link:
            faults = {row.schedule: row.message for row in link.execute(FAULTS.select())}
            return [
                schedule_of(row, faults) for row in read_rows(link, SCHEDULES, SCHEDULES.select(), SCHEDULES.c.name)
            ]

    def set_fault(self, name: str, message: str) -> None:
        """Record why a schedule does not fire; "" when it does again."""
        with suppress(IntegrityError), self._begin() as link:  # another scheduler was first
            link.execute(FAULTS.delete().where(FAULTS.c.schedule == name))
            if message:
                link.execute(FAULTS.insert().values(schedule=name, message=message[:4000]))

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
            link.execute(SCHEDULES.delete().where(SCHEDULES.c.name == name))
            link.execute(FAULTS.delete().where(FAULTS.c.schedule == name))

    def set_paused(self, name: str, paused: bool, next_at: datetime | None) -> None:
        """Pause or resume."""
        self.schedule(name)
        with self._begin() as link:
            change = SCHEDULES.update().where(SCHEDULES.c.name == name)
            link.execute(change.values(paused=paused, next_at=next_at))

    # --- firings -------------------------------------------------------------------------------------------------

    def claim(self, schedule: Schedule, due_at: datetime, missed: int, next_at: datetime | None) -> bool:
        """Move a schedule on and record its firing, together or not at all; False when another scheduler did.

        A time that is on record already (of a schedule that was removed and added again) is not fired twice.
        """
        same = (SCHEDULES.c.name == schedule.name) & (SCHEDULES.c.next_at == schedule.next_at)
        move = SCHEDULES.update().where(same & ~SCHEDULES.c.paused).values(next_at=next_at)
        try:
            with self._begin() as link:
                if link.execute(move).rowcount != 1:
                    return False
                insert_firing(link, schedule, due_at, missed)
        except IntegrityError:
            with self._begin() as link:
                link.execute(move)
            return False
        return True

    def fire(self, schedule: Schedule, now: datetime) -> None:
        """Record a firing beside the schedule's own."""
        with self._begin() as link:
            insert_firing(link, schedule, now, 0)

    def firings(self, *states: FiringState, schedule: str = "", limit: int = 10_000) -> list[Firing]:
        """Firings in these states, or all; the earliest first, and of many the latest."""
        query = FIRINGS.select()
        if states:
            query = query.where(FIRINGS.c.state.in_([state.value for state in states]))
        if schedule:
            query = query.where(FIRINGS.c.schedule == schedule)
        order = (FIRINGS.c.due_at.desc(), FIRINGS.c.id.desc())
        with self._begin() as link:
            return [firing_of(row) for row in reversed(read_rows(link, FIRINGS, query, *order, limit=limit))]

    def content(self, firing: Firing) -> dict[str, Any]:
        """The fleet of a firing, as it was when it came due.

        Raises:
            ConfigError: it is no JSON object.
        """
        with self._begin() as link:
            text = link.execute(sa.select(FIRINGS.c.content).where(FIRINGS.c.id == firing.id)).scalar_one()
        return content_of(text)

    def forget(self, before: datetime) -> int:
        """Remove firings that ended before a time, but the latest of each schedule; returns how many."""
        latest = sa.select(sa.func.max(FIRINGS.c.id)).group_by(FIRINGS.c.schedule)
        old = (FIRINGS.c.ended_at < before) & FIRINGS.c.id.not_in(latest)
        with self._begin() as link:
            return int(link.execute(FIRINGS.delete().where(old)).rowcount)

    # --- the scheduler -------------------------------------------------------------------------------------------

    def beat(self, host: str, now: datetime) -> None:
        """Record that the scheduler of a host is at work; hosts that have been silent for a week are forgotten."""
        with suppress(IntegrityError), self._begin() as link:
            link.execute(BEATS.delete().where((BEATS.c.host == host) | (BEATS.c.at < now - timedelta(days=7))))
            link.execute(BEATS.insert().values(host=host, at=now))

    def beats(self) -> dict[str, datetime]:
        """When the schedulers of hosts were at work last."""
        with self._begin() as link:
            return {row.host: row.at for row in link.execute(BEATS.select())}

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
        same = (FIRINGS.c.id == firing.id) & (FIRINGS.c.state == before.value)
        with self._begin() as link:
            return link.execute(FIRINGS.update().where(same).values(**values)).rowcount == 1

    # --- the database --------------------------------------------------------------------------------------------

    def _create(self) -> None:
        """Make the tables that are missing.

        `IF NOT EXISTS`, for many processes may do so together; PostgreSQL can refuse even that while another is at it.
        """
        for attempt in range(1, CREATE_ATTEMPTS + 1):
            try:
                with self._engine.begin() as link:
                    for table in META.sorted_tables:
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


def is_of_data(error: ClasswiseError) -> bool:
    """Whether a database refused what it was given, and would give the same answer again; it is no outage."""
    return isinstance(error.__cause__, DataError)


def _sqlite_waits(link: Any, record: Any) -> None:
    """Wait for another writer instead of failing, and let readers read meanwhile."""
    cursor = link.cursor()
    cursor.execute("PRAGMA busy_timeout = 30000")
    cursor.execute("PRAGMA journal_mode = WAL")
    cursor.close()
