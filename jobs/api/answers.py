"""What the API answers, as OpenAPI describes it."""

from __future__ import annotations

from dataclasses import asdict

from pydantic import BaseModel, Field

from jobs.submission.status import AuditStatus, State
from jobs.web.problems import ProblemBody
from services.records import Outcome


class AuditBody(BaseModel):
    """A submitted audit. `outcome` is null unless `state` is finished; crashed is not an outcome."""

    id: str
    state: State
    outcome: Outcome | None = Field(description="The verdict of the gates.")
    exit_code: int = Field(description="0 pass, 1 fail, 2 error, 3 undecided, 4 crashed, 130 stopped; 0 while it runs.")
    fleet: str
    key: str = Field(description="The Idempotency-Key that it was submitted with.")
    caller: str = Field(description="Who submitted it, while the job server or the queue knows it.")
    audit_id: str
    bundle: str = Field(description="Where its results are, on the server's storage.")
    run_id: str = Field(description="Its MLflow run.")
    run_url: str
    started: str
    ended: str
    attempt: str
    job: str = Field(description="The Ray job of that attempt.")
    message: str = Field(description="The job server's words on a crash.")
    problems: list[ProblemBody] = Field(description="Why the outcome is error, when there are no results.")
    links: dict[str, str]


class AuditList(BaseModel):
    """Submitted audits, the latest first."""

    audits: list[AuditBody]


class HealthBody(BaseModel):
    """Whether the server is alive, or ready."""

    status: str
    version: str = ""


def audit_body(status: AuditStatus, root: str = "") -> AuditBody:
    """A status as the API returns it."""
    here = f"{root}/v1/audits/{status.id}"
    return AuditBody(
        id=status.id,
        state=status.state,
        outcome=status.outcome,
        exit_code=status.exit_code,
        fleet=status.fleet,
        key=status.key,
        caller=status.caller,
        audit_id=status.audit_id,
        bundle=status.bundle,
        run_id=status.run_id,
        run_url=status.run_url,
        started=status.started,
        ended=status.ended,
        attempt=status.attempt,
        job=status.job,
        message=status.message,
        problems=[ProblemBody(**asdict(problem)) for problem in status.problems],
        links={"self": here, **{name: f"{here}/{name}" for name in ("result", "report", "bundle", "logs", "cancel")}},
    )
