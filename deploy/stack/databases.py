"""PostgreSQL of the stack: its files, its roles and its databases.

It listens on the loopback alone, without a socket in the file system, and asks for passwords (SCRAM). MLflow has one
role with two databases, the schedules have another, so that neither sees the other's.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from pathlib import Path

from deploy.stack.layout import Layout, write_private
from services.errors import ConfigError, Problem, ServiceError

DATABASES = {"mlflow": "mlflow", "mlflow_auth": "mlflow", "classwise": "schedules"}
"""Role by database."""


def binary(name: str) -> str:
    """Path of a program of PostgreSQL.

    Raises:
        ConfigError: it is not installed.
    """
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_version, reverse=True)
    path = next((str(folder / name) for folder in folders if (folder / name).exists()), shutil.which(name))
    if path is None:
        remedy = "install PostgreSQL (Debian: apt-get install postgresql), or put its programs on the PATH"
        raise ConfigError(
            Problem(name, "PostgreSQL's program", "nothing in /usr/lib/postgresql or on the PATH", remedy)
        )
    return path


def owner() -> str | None:
    """Who runs PostgreSQL: the user of the stack; the user postgres when that is root, which it refuses.

    Raises:
        ConfigError: root without such a user.
    """
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres").pw_name
    except KeyError:
        remedy = "run the stack as another user, or make one: useradd --system postgres"
        raise ConfigError(Problem("user", "postgres, since PostgreSQL refuses root", "none", remedy)) from None


def make_cluster(layout: Layout) -> None:
    """Make PostgreSQL's files, once."""
    home, user = layout["postgres"], owner()
    if (home / "data" / "PG_VERSION").exists():
        return
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(mode=0o700)
    password = home / "password"
    write_private(password, layout.secret("postgres.password"))
    if user is not None:
        for path in (home, password):
            shutil.chown(path, user, pwd.getpwnam(user).pw_gid)
        _require_reached(home, user)
    words = [binary("initdb"), "-D", str(home / "data"), "-U", "postgres", "--auth=scram-sha-256", "--no-sync"]
    words += ["--encoding=UTF8", "--locale=C.UTF-8", f"--pwfile={password}"]
    made = _as(user, words)
    password.unlink()
    if made.returncode != 0:
        shutil.rmtree(home)
        raise ServiceError(Problem("initdb", "PostgreSQL's files to be made", made.stderr.strip()[-500:]))


def command(layout: Layout) -> list[str]:
    """How PostgreSQL is started."""
    words = [binary("postgres"), "-D", str(layout["postgres"] / "data"), "-p", str(layout.ports["postgres"])]
    return [*words, "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="]


def make_databases(layout: Layout) -> None:
    """Make the roles and databases that are not there yet."""
    import psycopg
    from psycopg import sql

    with psycopg.connect(_admin(layout), autocommit=True) as connection:
        roles = {row[0] for row in connection.execute("SELECT rolname FROM pg_roles")}
        for role in sorted(set(DATABASES.values()) - roles):
            made = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}")
            password = layout.secret(f"{role}-db.password")
            connection.execute(made.format(sql.Identifier(role), sql.Literal(password)))
        there = {row[0] for row in connection.execute("SELECT datname FROM pg_database")}
        for name, role in DATABASES.items():
            if name not in there:
                made = sql.SQL("CREATE DATABASE {} OWNER {}")
                connection.execute(made.format(sql.Identifier(name), sql.Identifier(role)))
            closed = sql.SQL("REVOKE ALL ON DATABASE {} FROM PUBLIC")
            connection.execute(closed.format(sql.Identifier(name)))


def accepts(layout: Layout) -> bool:
    """Whether PostgreSQL lets its administrator in."""
    import psycopg

    try:
        psycopg.connect(_admin(layout), connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True


def _admin(layout: Layout) -> str:
    password = layout.secret("postgres.password")
    return f"postgresql://postgres:{password}@127.0.0.1:{layout.ports['postgres']}/postgres"


def _require_reached(home: Path, user: str) -> None:
    if _as(user, ["test", "-w", str(home)]).returncode != 0:
        remedy = "name a folder whose parents everybody may enter with --dir, such as /srv/classwise-stack"
        raise ConfigError(Problem("--dir", f"a folder that the user {user} can get to", str(home.parent), remedy))


def _as(user: str | None, words: list[str]) -> subprocess.CompletedProcess[str]:
    more = {} if user is None else {"user": user, "group": user, "extra_groups": []}
    return subprocess.run(words, capture_output=True, text=True, check=False, cwd="/", **more)  # type: ignore[call-overload,no-any-return]


def _version(folder: Path) -> int:
    text = folder.parent.name
    return int(text) if text.isdecimal() else 0
