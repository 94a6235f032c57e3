"""Ray's own Jobs API as a backend: every call goes through `ray.job_submission.JobSubmissionClient`.

What Ray says in tracebacks and status codes comes out as one `ServiceError`, with what to set. Its client takes
RAY_API_SERVER_ADDRESS and RAY_ADDRESS over the address it is given; here the address that was asked for counts.
"""

from __future__ import annotations

import os
import shlex
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from jobs.service.backend import GRACE_SECONDS, AlreadySubmitted, JobInfo, Phase, iso
from services.errors import Problem, ServiceError

if TYPE_CHECKING:
    from ray.job_submission import JobSubmissionClient

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

    def start(self, name: str, folder: str, metadata: Mapping[str, str], environment: Mapping[str, str]) -> None:
        """Submit the job under its own name: Ray refuses a second one."""
        words = [self._python, "-m", "jobs.service.submitted", folder, metadata["classwise.attempt"]]
        # The supervisor that will stop it reads its patience from the environment it shares with the job.
        variables = {"RAY_JOB_STOP_WAIT_TIME_S": str(GRACE_SECONDS), **environment}
        try:
            with self._translated():
                self._client().submit_job(
                    entrypoint=f"exec {shlex.join(words)}",
                    submission_id=name,
                    metadata=dict(metadata),
                    runtime_env={"env_vars": variables},
                )
        except ServiceError as error:
            if "already exists" in str(error.__cause__):
                raise AlreadySubmitted(Problem(name, "a job that is not there yet", "one that runs")) from None
            raise

    def info(self, name: str) -> JobInfo | None:
        """What the job server knows of a job."""
        try:
            with self._translated():
                return _info(self._client().get_job_info(name))
        except ServiceError as error:
            if "does not exist" in str(error.__cause__):
                return None
            raise

    def infos(self) -> list[JobInfo]:
        """Jobs that carry classwise's metadata, among all of the cluster."""
        with self._translated():
            found = self._client().list_jobs()
        return [_info(job) for job in found if "classwise.folder" in (job.metadata or {})]

    def logs(self, name: str) -> str:
        """What the job printed; "" once its node is gone."""
        with self._translated():
            text: str = self._client().get_job_logs(name)
        return text

    def stop(self, name: str) -> None:
        """SIGTERM, and SIGKILL when it has not gone after `GRACE_SECONDS`."""
        with self._translated():
            self._client().stop_job(name)

    def forget(self, name: str) -> None:
        """Delete the record of a job that is over. When another submitter was faster there is nothing to delete."""
        try:
            with self._translated():
                self._client().delete_job(name)
        except ServiceError as error:
            text = str(error.__cause__)
            if "does not exist" not in text and "non-terminal" not in text:
                raise

    def check(self) -> None:
        """Ask for the version."""
        with self._translated():
            self._client().get_version()

    def _client(self) -> JobSubmissionClient:
        if self._known is None:
            from ray.job_submission import JobSubmissionClient

            with _without_overrides():
                self._known = JobSubmissionClient(self.address, headers=dict(self._headers), verify=self._verify)
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


def _info(job: Any) -> JobInfo:
    return JobInfo(
        id=str(job.submission_id or ""),
        phase=Phase(str(getattr(job.status, "value", job.status))),
        message=" ".join(str(job.message or "").split())[-1000:],
        metadata={key: value for key, value in (job.metadata or {}).items() if key.startswith("classwise.")},
        started=iso(job.start_time),
        ended=iso(job.end_time),
    )


def _problem(address: str, error: Exception) -> Problem:
    text = " ".join(str(error).split())
    shown = text[-300:] if "Traceback" in text else text[:300]
    if type(error).__name__ == "AuthenticationError" or "status code 401" in text or "status code 403" in text:
        remedy = "set RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH to the cluster's token"
        return Problem(address, "a job server that accepts the token", shown[:120], remedy)
    if "CERTIFICATE_VERIFY_FAILED" in text or "SSLError" in text:
        return Problem(address, "a TLS certificate that can be trusted", shown, "give the authority's with --ca FILE")
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
