"""Moves an alias of MLflow's registry, unless it was moved meanwhile, and keeps ``promotion.json``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from services.errors import TrackingError
from tracking.bundle.record_file import RecordFile
from tracking.mlflow.connection import connect
from tracking.mlflow.reach import CALL_SECONDS, bounded_calls, translated

if TYPE_CHECKING:
    from mlflow import MlflowClient

PROMOTION = "promotion.json"
SCHEMA_VERSION = 1
TAG = "classwise.promoted"
ENDED = "replaced on"
EXPECTED = "an MLflow registry that moves an alias"
REMEDY = "run classwise promote once it answers"
STOPPED = "it was stopped before that"


@dataclass(frozen=True, slots=True)
class Promotion:
    """An alias that was to be moved.

    Attributes:
        model: in the fleet.
        registered, alias: NAME@ALIAS of the registry.
        version: the audited one.
        before: where the alias pointed when the audit began; "" when it was not there.
        moved: it points to `version` because of this audit.
        reason: why it was not moved; "" when it was.
        at: when, UTC.
        untagged: why the version does not say who moved it, although the alias was moved; "" when it does.
    """

    model: str
    registered: str
    alias: str
    version: str
    before: str
    moved: bool = False
    reason: str = ""
    at: str = ""
    untagged: str = ""

    def left(self, reason: str) -> Promotion:
        """The alias stays where it is."""
        return replace(self, reason=reason, at=_now())

    def done(self, untagged: str = "") -> Promotion:
        """The alias was moved."""
        return replace(self, moved=True, at=_now(), untagged=untagged)

    def __str__(self) -> str:
        name = f"{self.registered}@{self.alias}"
        if self.moved:
            came = f" from version {self.before}" if self.before else ""
            lacks = f"; the version was not tagged with that: {self.untagged}" if self.untagged else ""
            return f"{name} moved{came} to version {self.version}{lacks}"
        return f"{name} not moved to version {self.version or '?'}: {self.reason}"


@dataclass(frozen=True, slots=True)
class _File:
    promotions: tuple[Promotion, ...]
    schema_version: int = SCHEMA_VERSION


_FILE = RecordFile(PROMOTION, TypeAdapter(_File), "a record of promotions", "delete the file", SCHEMA_VERSION)


def alias_version(tracking_uri: str, registered: str, alias: str) -> str:
    """The version that an alias points to; "" when there is no such alias.

    Raises:
        TrackingError: the registry cannot be reached, or has no such model.
    """
    with translated(tracking_uri, EXPECTED, REMEDY), bounded_calls(CALL_SECONDS):
        return _points_to(connect(tracking_uri), registered, alias)


def move_alias(tracking_uri: str, plan: Promotion, recorded: tuple[Promotion, ...]) -> Promotion:
    """Move the alias to the planned version, which is not tagged yet.

    An alias that points elsewhere than when the audit began was moved by another process, and stays. MLflow has no
    exchange under a condition: who moves it in the moment between look and move is overruled. One that the same audit
    moved before, as its `recorded` promotions show, without tagging the version, counts as moved again.

    Raises:
        TrackingError: the registry cannot be reached, or refuses to move the alias.
    """
    with translated(tracking_uri, EXPECTED, REMEDY), bounded_calls(CALL_SECONDS):
        client = connect(tracking_uri)
        now = _points_to(client, plan.registered, plan.alias)
        if now == plan.version:
            return plan.done(STOPPED) if _lacks_tag(plan, recorded) else plan.left("it points there already")
        if now != plan.before:
            came = f"version {plan.before}" if plan.before else "nowhere"
            return plan.left(f"it was moved during the audit, from {came} to {now or 'nowhere'}")
        client.set_registered_model_alias(plan.registered, plan.alias, plan.version)
    return plan.done(STOPPED)


def tag_version(tracking_uri: str, moved: Promotion, audit_id: str) -> Promotion:
    """Tag the version with who moved the alias, and the one before with its end; a refusal leaves the alias moved."""
    try:
        with translated(tracking_uri, EXPECTED), bounded_calls(CALL_SECONDS):
            client, mark = connect(tracking_uri), f"{moved.alias} by {audit_id}"
            client.set_model_version_tag(moved.registered, moved.version, TAG, mark)
            _end(client, moved, audit_id)
    except TrackingError as error:
        return replace(moved, untagged=error.problems[0].found)
    return replace(moved, untagged="")


def _end(client: MlflowClient, moved: Promotion, audit_id: str) -> None:
    """Say on the version that the alias left that its promotion is over, where it has one."""
    if not moved.before:
        return
    known = client.get_model_version(moved.registered, moved.before).tags.get(TAG, "")
    if known.startswith(f"{moved.alias} ") and ENDED not in known:
        ended = f"{known}, {ENDED} {moved.at[:10]} by version {moved.version} ({audit_id})"
        client.set_model_version_tag(moved.registered, moved.before, TAG, ended)


def write_promotions(promotions: tuple[Promotion, ...], folder: str) -> None:
    """Write ``promotion.json`` into a bundle's folder."""
    _FILE.write(_File(promotions), folder)


def read_promotions(folder: str) -> tuple[Promotion, ...]:
    """What was promoted by the audit whose bundle lies in `folder`, and what was not; raises as `RecordFile.read`."""
    record = _FILE.read(folder)
    return record.promotions if record is not None else ()


def _lacks_tag(plan: Promotion, recorded: tuple[Promotion, ...]) -> bool:
    """Whether the audit moved that alias there, and the version does not say so."""
    same = (plan.registered, plan.alias, plan.version)
    moved = [each for each in recorded if each.moved and (each.registered, each.alias, each.version) == same]
    return bool(moved and moved[-1].untagged)


def _points_to(client: MlflowClient, registered: str, alias: str) -> str:
    return str(client.get_registered_model(registered).aliases.get(alias, ""))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
