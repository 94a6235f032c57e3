"""Ray's own Jobs API as a backend: every call goes through `ray.job_submission.JobSubmissionClient`.

What Ray says in tracebacks and status codes comes out as one `ServiceError`, with what to set. Its client takes
RAY_API_SERVER_ADDRESS and RAY_ADDRESS over the address it is given; here the address that was asked for counts.

The first attempt of a submission is the job of its id, the next are ID.2, ID.3 and so on: Ray refuses a name that it
knows, so two submitters never start one attempt twice. A name is not used again, not even after deleting its job: the
supervisor of the old job, on its way out, takes the new one with it.

Ray starts every job immediately, however many: their drivers then fill the head's memory, and those that find no
free worker give up. On a cluster with the custom resource `classwise_audits` each audit holds one of it, and the others
wait as queued.
"""

from __future__ import annotations

import os
import re
import shlex
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from jobs.submission.backend import AT_ONCE, ATTEMPT, GRACE_SECONDS, AlreadySubmitted, JobInfo, Phase, iso
from jobs.submission.submission import ID_FORM
from services.errors import Problem, ServiceError

if TYPE_CHECKING:
    from ray.job_submission import JobSubmissionClient

SLOTS = "classwise_audits"
"""Custom resource of a cluster: so many audits run at the same time; without it, any number."""
SLOTS_SECONDS = 30.0
"""How long it counts whether a cluster has them."""
CONNECT_SECONDS = 5.0
READ_SECONDS = 15.0
"""How long an answer of the job server is waited for; one that is stopped takes connections and never answers."""
CHANGE_SECONDS = 60.0
"""The same of a submission or a stop, which a busy head takes seconds for."""
_OVERRIDES = ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")
_environment = threading.Lock()


class RayJobs:
    """Jobs of a Ray cluster.

    Args:
        address: of its dashboard, http://HEAD:8265, or anything else that Ray's client takes.
        token: of a cluster with token authentication; sent as a bearer token.
        verify: check the server's TLS certificate: yes, no, or against the certificates in this file or folder.
        headers: of every request, for a proxy before the dashboard.
        python: the interpreter on the head node, as its shell finds it.
    """

    def __init__(
        self,
        address: str,
        *,
        token: str = "",
        verify: bool | str = True,
        headers: Mapping[str, str] | None = None,
        python: str = "python",
    ) -> None:
        self.address = address
        self._headers = {**(headers or {}), **({"Authorization": f"Bearer {token}"} if token else {})}
        self._verify = verify
        self._python = python
        self._known: JobSubmissionClient | None = None
        self._attempts: dict[str, int] = {}
        self._slotted: tuple[float, float] | None = None

    def start(self, name: str, folder: str, metadata: Mapping[str, str], environment: Mapping[str, str]) -> None:
        """Submit the next attempt."""
        number, latest = self._latest(name)
        if latest is not None and (not latest.phase.over or latest.attempt == metadata[ATTEMPT]):
            raise AlreadySubmitted(Problem(name, "a job that is not there yet", "one that runs"))
        words = [self._python, "-m", "jobs.submission.submitted", folder, metadata[ATTEMPT]]
        # The supervisor that will stop it reads its patience from the environment it shares with the job.
        variables = {"RAY_JOB_STOP_WAIT_TIME_S": str(GRACE_SECONDS), **environment}
        try:
            with self._translated():
                if slots := self._slots():
                    variables[AT_ONCE] = f"{slots:g}"
                self._client().submit_job(
                    entrypoint=f"exec {shlex.join(words)}",
                    submission_id=_job_name(name, number if latest is None else number + 1),
                    metadata=dict(metadata),
                    runtime_env={"env_vars": variables},
                    entrypoint_resources={SLOTS: 1} if slots else None,
                )
        except ServiceError as error:
            if "already exists" in str(error.__cause__):
                raise AlreadySubmitted(Problem(name, "a job that is not there yet", "one that runs")) from None
            raise

    def info(self, name: str) -> JobInfo | None:
        """What the job server knows of the latest attempt."""
        return self._latest(name)[1]

    def infos(self) -> list[JobInfo]:
        """The latest attempts of jobs that carry classwise's metadata, among all jobs of the cluster."""
        with self._translated():
            jobs = self._client().list_jobs()
        latest: dict[str, tuple[int, JobInfo]] = {}
        for job in jobs:
            if "classwise.folder" in (job.metadata or {}):
                info, number = _info(job), _number(str(job.submission_id))
                if number > latest.get(info.id, (0, info))[0]:
                    latest[info.id] = (number, info)
        return [info for _, info in latest.values()]

    def logs(self, name: str) -> str:
        """What the latest attempt printed; "" once its node is gone."""
        with self._translated():
            text: str = self._client().get_job_logs(self._job(name))
        return text

    def stop(self, name: str) -> None:
        """SIGTERM, and SIGKILL when it has not gone after `GRACE_SECONDS`."""
        with self._translated():
            self._client().stop_job(self._job(name))

    def _slots(self) -> float:
        """The most slots for audits that a node has which is alive; 0 without any."""
        if self._slotted is None or time.monotonic() - self._slotted[0] > SLOTS_SECONDS:
            rows = self._client()._do_request("GET", "/api/v0/nodes").json()["data"]["result"]["result"]
            slots = [float(row["resources_total"].get(SLOTS, 0)) for row in rows if row["state"] == "ALIVE"]
            self._slotted = (time.monotonic(), max(slots, default=0.0))
        return self._slotted[1]

    def _job(self, name: str) -> str:
        return _job_name(name, self._latest(name)[0])

    def _latest(self, name: str) -> tuple[int, JobInfo | None]:
        """The number of the latest attempt, and what is known of it: one request while it runs."""
        number = self._attempts.get(name, 1)
        info = self._one(_job_name(name, number))
        if info is None and number > 1:  # the cluster is another one than before
            number, info = 1, self._one(name)
        while info is not None and info.phase.over:
            later = self._one(_job_name(name, number + 1))
            if later is None:
                break
            number, info = number + 1, later
        self._attempts[name] = number
        return number, info

    def _one(self, job: str) -> JobInfo | None:
        try:
            with self._translated():
                return _info(self._client().get_job_info(job))
        except ServiceError as error:
            if "does not exist" in str(error.__cause__):
                return None
            raise

    def check(self) -> None:
        """Ask for the version."""
        with self._translated():
            self._client().get_version()

    def _client(self) -> JobSubmissionClient:
        if self._known is None:
            from ray.job_submission import JobSubmissionClient

            class Client(JobSubmissionClient):  # type: ignore[misc]
                """Ray's client, which waits for an answer without end."""

                def _do_request(self, method: str, endpoint: str, **options: Any) -> Any:
                    wait = READ_SECONDS if method == "GET" else CHANGE_SECONDS
                    return super()._do_request(method, endpoint, timeout=(CONNECT_SECONDS, wait), **options)

            with _without_overrides():
                self._known = Client(self.address, headers=dict(self._headers), verify=self._verify)
        return self._known

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except ServiceError:
            raise
        except ImportError as error:
            remedy = "install classwise[service]"
            raise ServiceError(Problem("ray", "Ray with its job client", str(error), remedy)) from error
        except Exception as error:  # Ray raises RuntimeError, ConnectionError, ValueError, requests' and its own
            raise ServiceError(_problem(self.address, error)) from error


def token_of(environment: Mapping[str, str]) -> str:
    """The cluster's token as Ray itself looks for it: RAY_AUTH_TOKEN, else the file RAY_AUTH_TOKEN_PATH; else "".

    Raises:
        ServiceError: the file cannot be read.
    """
    if token := environment.get("RAY_AUTH_TOKEN", "").strip():
        return token
    path = environment.get("RAY_AUTH_TOKEN_PATH")
    if not path:
        return ""
    try:
        with open(os.path.expanduser(path), encoding="utf-8") as file:  # noqa: PTH111, PTH123
            return file.read().strip()
    except OSError as error:
        raise ServiceError(Problem("RAY_AUTH_TOKEN_PATH", "a file with the cluster's token", str(error))) from None


def _job_name(name: str, number: int) -> str:
    return name if number == 1 else f"{name}.{number}"


def _number(job: str) -> int:
    tail = job.rpartition(".")[2]
    return int(tail) if tail.isdecimal() and re.fullmatch(ID_FORM, job.rpartition(".")[0]) else 1


def _info(job: Any) -> JobInfo:
    return JobInfo(
        id=str((job.metadata or {}).get("classwise.submission") or job.submission_id or ""),
        phase=Phase(str(getattr(job.status, "value", job.status))),
        message=" ".join(str(job.message or "").split())[-1000:],
        metadata={key: value for key, value in (job.metadata or {}).items() if key.startswith("classwise.")},
        started=iso(job.start_time),
        ended=iso(job.end_time),
        job=str(job.submission_id or ""),
    )


def _problem(address: str, error: Exception) -> Problem:
    text = " ".join(str(error).split())
    shown = text[-300:] if "Traceback" in text else text[:300]
    if type(error).__name__ == "AuthenticationError" or "status code 401" in text or "status code 403" in text:
        remedy = "set RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH to the cluster's token"
        return Problem(address, "a job server that accepts the token", shown[:120], remedy)
    if "SSLError" in (cause := f"{type(error.__context__).__name__} {error.__context__}") or "SSLError" in text:
        actual = cause.partition(" ")[2][-300:] or shown
        return Problem(address, "a TLS certificate that can be trusted", actual, "give the authority's with --ca FILE")
    remedy = "check the address of the cluster's dashboard, http://HEAD:8265, and that it runs"
    return Problem(address, "Ray's job server", shown or type(error).__name__, remedy)


@contextmanager
def _without_overrides() -> Iterator[None]:
    """Ray's client prefers two variables to its argument; hide them while it reads its address."""
    with _environment:
        kept = {name: os.environ.pop(name) for name in _OVERRIDES if name in os.environ}
        try:
            yield
        finally:
            os.environ.update(kept)
