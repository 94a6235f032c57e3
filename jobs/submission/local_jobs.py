"""Processes of this machine as a backend: submission without a cluster, and what tests use.

A job is a process in a session of its own that outlives who started it. Its record lies beside its fleet, so that any
later process can watch and stop it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock

from jobs.submission.backend import ATTEMPT, GRACE_SECONDS, AlreadySubmitted, JobInfo, Phase
from jobs.submission.submission import LISTED, folder_in, known_in, read_ending
from services.errors import ConfigError, Problem, UnknownAudit
from services.records import Outcome
from services.storage import files, plainjson
from tracking.mlflow.process import Driver, driver_of

_children: dict[int, subprocess.Popen[bytes]] = {}
"""Jobs that this process started; who has children must ask after them, or they stay in the process table."""


class LocalJobs:
    """Jobs whose files lie in the storage `base`, a local folder.

    Raises:
        ConfigError: it is a URL; a process id means nothing to another machine.
    """

    def __init__(self, base: str) -> None:
        if "://" in base:
            remedy = "use a local folder, or submit to a cluster with --address http://HEAD:8265"
            raise ConfigError(Problem("storage", "a local folder to run audits on this machine", base, remedy))
        self.address = "local"
        self._base = str(Path(base).expanduser().absolute())

    def start(self, name: str, folder: str, metadata: Mapping[str, str], environment: Mapping[str, str]) -> None:
        """Start the process, unless one of that name lives."""
        record = Path(folder) / "process.json"
        command = [sys.executable, "-m", "jobs.submission.submitted", folder, metadata[ATTEMPT]]
        variables = {**os.environ, **environment, "PYTHONUNBUFFERED": "1"}
        with FileLock(f"{folder}/.start.lock", timeout=60):
            known = self.info(name)
            if known is not None and (known.attempt == metadata[ATTEMPT] or not known.phase.over):
                raise AlreadySubmitted(Problem(name, "a job that is not there yet", "one that runs"))
            with (Path(folder) / "log.txt").open("wb") as log:
                child = subprocess.Popen(command, stdout=log, stderr=log, env=variables, start_new_session=True)
            _children[child.pid] = child
            driver = driver_of(child.pid).to_tag()
            started = datetime.now(UTC).isoformat(timespec="seconds")
            body = json.dumps({"driver": driver, "metadata": dict(metadata), "started": started})
            partial = record.with_suffix(".part")
            partial.write_text(body)
            partial.replace(record)

    def info(self, name: str) -> JobInfo | None:
        """What the process table and the ending say."""
        folder = Path(folder_in(self._base, name))
        try:
            body = plainjson.parsed((folder / "process.json").read_text())
            driver = Driver.from_tag(body["driver"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        metadata, started = dict(body.get("metadata", {})), str(body.get("started", ""))
        if driver is not None and not self._gone(driver):
            return JobInfo(name, Phase.RUNNING, metadata=metadata, started=started)
        ending, attempt = read_ending(str(folder)), metadata.get(ATTEMPT, "")
        if ending is None or ending.attempt != attempt or ending.state == "running":
            if _text(folder / "stop") == attempt:  # before it could say so
                return JobInfo(name, Phase.STOPPED, "", metadata, started)
            message = "the process ended without saying an outcome; look for the out-of-memory killer"
            return JobInfo(name, Phase.FAILED, message, metadata, started)
        phase = Phase.STOPPED if ending.state == "stopped" else Phase.FAILED
        if ending.outcome is Outcome.PASS:
            phase = Phase.SUCCEEDED
        return JobInfo(name, phase, "", metadata, started, ending.at)

    def infos(self) -> list[JobInfo]:
        """All jobs in the storage."""
        jobs = [self.info(name) for name in known_in(self._base)]
        return [info for info in jobs if info is not None]

    def logs(self, name: str) -> str:
        """The log file."""
        path = files.join(folder_in(self._base, name), "log.txt")
        return files.read_bytes(path).decode("utf-8", "replace") if files.exists(path) else ""

    def stop(self, name: str) -> None:
        """SIGTERM now; SIGKILL to its whole session when it is still there after `GRACE_SECONDS`."""
        driver = self._driver(name)
        if self._gone(driver):
            return
        folder = Path(folder_in(self._base, name))
        info = self.info(name)
        (folder / "stop").write_text(info.attempt if info is not None else "")
        with suppress(ProcessLookupError):
            os.kill(driver.pid, signal.SIGTERM)
        threading.Thread(target=self._end, args=(driver,), daemon=True).start()

    def check(self) -> None:
        """Nothing to ask."""

    def _driver(self, name: str) -> Driver:
        try:
            record = plainjson.parsed((Path(folder_in(self._base, name)) / "process.json").read_text())
            driver = Driver.from_tag(record["driver"])
        except (OSError, ValueError, KeyError, TypeError):
            driver = None
        if driver is None:
            raise UnknownAudit(Problem(name, "an audit that was submitted here", "none", LISTED))
        return driver

    @staticmethod
    def _gone(driver: Driver) -> bool:
        child = _children.get(driver.pid)
        gone = bool(driver.is_gone()) or (child is not None and child.poll() is not None)
        if gone and child is not None:
            child.wait()
            _children.pop(driver.pid, None)
        return gone

    def _end(self, driver: Driver) -> None:
        deadline = time.monotonic() + GRACE_SECONDS
        while time.monotonic() < deadline:
            if self._gone(driver):
                return
            time.sleep(0.2)
        with suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGKILL)


def _text(path: Path) -> str | None:
    return path.read_text() if path.exists() else None
