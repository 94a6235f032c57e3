"""Where a stack lies, its ports and its secrets. Everything is below one folder, and secrets are for their owner alone.

::

    FOLDER/
      stack.json         ports, and the mark by which its processes are known
      secrets/           tokens and passwords, one a file, mode 600
      env                what a shell sources to talk to the stack, mode 600
      settings.yaml      of the REST API; written once, yours to change
      run/               one record a process
      logs/              one log a process
      postgres/ mlflow/ ray/ storage/ models/ data/
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from services.errors import ConfigError, Problem

PORTS = ("postgres", "mlflow", "gcs", "dashboard", "client", "api")
SECRETS = (
    "postgres.password",
    "mlflow-db.password",
    "schedules-db.password",
    "mlflow-admin.password",
    "mlflow-classwise.password",
    "mlflow-flask.key",
    "ray.token",
    "signing.key",
    "api.token",
)


@dataclass(frozen=True)
class Layout:
    """One stack.

    Attributes:
        folder: of everything.
        mark: in the environment of all its processes, and of no other.
        link: a short name of Ray's folder: the path of a socket has at most 107 bytes, and Ray needs half of them.
        workers, cpus: worker nodes, and cores of each.
        audits: so many run at the same time; the others wait.
        ports: by name.
    """

    folder: Path
    mark: str
    link: str
    workers: int
    cpus: int
    audits: int
    ports: dict[str, int]

    def __getitem__(self, name: str) -> Path:
        """A file or folder of the stack."""
        return self.folder / name

    def secret(self, name: str) -> str:
        """The content of a secret's file."""
        return self.secret_file(name).read_text().strip()

    def secret_file(self, name: str) -> Path:
        """Where a secret is."""
        return self.folder / "secrets" / name

    def url(self, name: str) -> str:
        """Address of a server."""
        return f"http://127.0.0.1:{self.ports[name]}"

    def database(self, name: str, role: str) -> str:
        """URI of a database, with its password: for environments, never for command lines."""
        password = self.secret(f"{role}-db.password")
        return f"postgresql+psycopg://{role}:{password}@127.0.0.1:{self.ports['postgres']}/{name}"


def existing(folder: Path) -> Layout | None:
    """The stack in a folder, when there is one.

    Raises:
        ConfigError: its record is damaged.
    """
    path = folder / "stack.json"
    if not path.exists():
        return None
    try:
        body = json.loads(path.read_text())
        return Layout(folder, body["mark"], body["link"], body["workers"], body["cpus"], body["audits"], body["ports"])
    except (ValueError, KeyError, TypeError) as error:
        actual = f"{type(error).__name__}: {error}"
        raise ConfigError(Problem(str(path), "the record of a stack", actual, "remove the folder")) from error


def require_ours(folder: Path) -> None:
    """Raise a ConfigError when a folder holds something else than a stack."""
    if existing(folder) is None and folder.exists() and any(entry.name != "lock" for entry in folder.iterdir()):
        remedy = "name an empty folder or one that is not there yet with --dir"
        raise ConfigError(Problem("--dir", "the folder of a stack", f"{folder}, with other files", remedy))


def made(folder: Path, *, workers: int, cpus: int, audits: int) -> Layout:
    """The stack in a folder: as it was made, or a new one with free ports and random secrets."""
    if (known := existing(folder)) is not None:
        _write_secrets(folder)
        return linked(known)
    for part in ("", "secrets", "run", "logs", "mlflow", "ray", "storage", "models", "data"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    # PostgreSQL does not run as root but as a user who must reach its folder, and no other.
    folder.chmod(0o711 if os.geteuid() == 0 else 0o700)
    for part in ("secrets", "run", "logs", "mlflow", "ray", "storage"):
        (folder / part).chmod(0o700)
    _write_secrets(folder)
    nodes = ("head", *(f"worker-{number + 1}" for number in range(workers)))
    ports = free_ports((*PORTS, *(f"{node}-agent" for node in nodes)))
    layout = Layout(folder, secrets.token_hex(16), "", workers, cpus, audits, ports)
    return linked(layout)


def _write_secrets(folder: Path) -> None:
    """Those that are not there yet: all of a new stack's, and what a later version added to an older one's."""
    for path in (folder / "secrets" / name for name in SECRETS):
        if not path.exists():
            write_private(path, secrets.token_hex(24))


def linked(layout: Layout) -> Layout:
    """The stack with a short name that leads to Ray's folder."""
    if layout.link and os.path.realpath(layout.link) == os.path.realpath(layout["ray"]):
        return layout
    link = Path(tempfile.mkdtemp(prefix="cw-")) / "s"
    link.symlink_to(layout["ray"])
    body = {**asdict(layout), "link": str(link)}
    body.pop("folder")
    write_private(layout["stack.json"], json.dumps(body, indent=1))
    return Layout(layout.folder, **body)


def unlinked(layout: Layout) -> None:
    """Remove the short name."""
    link = Path(layout.link)
    if layout.link and link.is_symlink():
        link.unlink()
        link.parent.rmdir()


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner may read, at no moment otherwise."""
    partial = path.with_name(f".{path.name}.part")
    partial.unlink(missing_ok=True)
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    partial.replace(path)


def free_ports(names: tuple[str, ...]) -> dict[str, int]:
    """A free port for each name; all are held until all are known, so that no two are the same."""
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in names]
    try:
        return {name: probe.getsockname()[1] for name, probe in zip(names, probes, strict=True)}
    finally:
        for probe in probes:
            probe.close()
