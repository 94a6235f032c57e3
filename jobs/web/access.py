"""Who calls, which fleets they see, and what they may do: the guard finds the caller, routes ask these questions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Annotated

from fastapi import Depends, Request

from jobs.submission.submission import fleet_in
from services.errors import NotAllowed, Problem, UnknownAudit


class Right(StrEnum):
    """What a caller may do with audits of their fleets. `admin` is all of it, for every fleet, and the metrics."""

    READ = "read"
    SUBMIT = "submit"
    CANCEL = "cancel"
    ADMIN = "admin"


USUAL = (Right.READ, Right.SUBMIT, Right.CANCEL)


@dataclass(frozen=True)
class Caller:
    """Who calls.

    Attributes:
        name: as the settings call a token, or as an identity header says.
        fleets: patterns of the names of fleets; `*` for any text.
        may: their rights.
        submissions: audits of theirs that wait or run at the same time, at most; None for a share of the limit.
        priority: of their audits among those that wait; the highest goes first.
        paths: folders of the server's allow-list that their fleets may name; None for all of them.
    """

    name: str
    fleets: tuple[str, ...] = ("*",)
    may: tuple[Right, ...] = USUAL
    submissions: int | None = None
    priority: int = 0
    paths: tuple[str, ...] | None = None

    @property
    def sees_all(self) -> bool:
        return "*" in self.fleets or Right.ADMIN in self.may

    def sees(self, fleet: str) -> bool:
        """Whether a fleet is one of theirs."""
        return self.sees_all or any(fnmatchcase(fleet, pattern) for pattern in self.fleets)

    def require(self, right: Right) -> None:
        """Raise NotAllowed without the right."""
        if right not in self.may and Right.ADMIN not in self.may:
            raise NotAllowed(Problem(self.name, f"a caller who may {right}", ", ".join(self.may) or "none", _ASK))

    def require_fleet(self, fleet: str) -> None:
        """Raise NotAllowed for a fleet of others that they want to submit: its name is theirs to know."""
        if not self.sees(fleet):
            raise NotAllowed(Problem("fleet", f"a fleet among {', '.join(self.fleets)}", repr(fleet)[:120], _ASK))

    def require_audit(self, submission: str, right: Right) -> None:
        """The same for an audit, which is not there for those who may not see its fleet."""
        self.require(right)
        if not self.sees(fleet_in(submission)):
            raise unknown_audit(submission)


def unknown_audit(submission: str) -> UnknownAudit:
    """Of an id that nobody submitted, and of one that is not the caller's: nothing tells the two apart."""
    return UnknownAudit(Problem(submission, "an audit of this server", "none", "GET /v1/audits lists those you see"))


def caller_of(request: Request) -> Caller:
    """Who calls, as the guard found out."""
    caller = request.scope.get("state", {}).get("caller")
    return caller if isinstance(caller, Caller) else Caller("nobody", fleets=(), may=())


async def _caller_of(request: Request) -> Caller:
    """The same, without a thread of the pool, which requests that wait may hold."""
    return caller_of(request)


Who = Annotated[Caller, Depends(_caller_of)]

_ASK = "ask the server's administrator to allow it"
