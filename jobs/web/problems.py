"""Refusals and failures as the API and the dashboard answer them, and how OpenAPI describes them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from pydantic import BaseModel, Field

from services.errors import ClasswiseError


class ProblemBody(BaseModel):
    """One fault."""

    where: str = Field(description="The thing at fault, as the caller wrote it.")
    expected: str
    found: str
    remedy: str = Field("", description="What to do next.")


class ErrorBody(BaseModel):
    """Every refusal and every failure of the API."""

    error: str = Field(description="Its kind: ConfigError, NotAllowed, UnknownAudit ...")
    problems: list[ProblemBody]


def error_body(error: ClasswiseError) -> ErrorBody:
    """An error as the API returns it."""
    return ErrorBody(error=type(error).__name__, problems=[ProblemBody(**asdict(each)) for each in error.problems])


_DESCRIPTIONS = {
    401: "No token, or one that is not known.",
    403: "The server's settings do not grant it to the caller, or not what the fleet names.",
    404: "No such audit, or one of a fleet that is not the caller's.",
    409: "The audit has no result: it waits, runs, was stopped, failed or crashed.",
    410: "Its result was removed by retention.",
    413: "The body is too large.",
    415: "Neither JSON nor YAML.",
    422: "The request is not valid; every problem is reported.",
    429: "Too many requests, audits or streams.",
    503: "The job server or the storage is down.",
}


def refused(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """How OpenAPI describes refusals with these statuses."""
    return {status: {"model": ErrorBody, "description": _DESCRIPTIONS[status]} for status in statuses}
