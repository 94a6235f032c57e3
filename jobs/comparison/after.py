"""What a fleet file asks to follow an audit: aliases moved, the audit accepted, webhooks notified.

The bundle stands before any of it, and nothing that fails here fails the audit: it is a note, and a record in the
bundle.
"""

from __future__ import annotations

from jobs.comparison.accepted import accept
from jobs.comparison.promote import promote
from jobs.fleetfile.tree import FleetConfig
from jobs.notify.notify import Delivery, notify
from jobs.terminal.progress import Reporter
from services.errors import ClasswiseError, StorageError, TrackingError
from services.records import AuditResult, Outcome
from tracking.mlflow.audits import tag_run

PASSED = "accept: passed"
MAX_TAG = 5_000


def promoted(
    config: FleetConfig, result: AuditResult, folder: str, uri: str, run_id: str, reporter: Reporter
) -> list[str]:
    """Move the aliases that follow the audit, once MLflow has it; a line for each, moved or not."""
    try:
        done = promote(config, result, folder, uri)
        if done and run_id:
            tag_run(uri, run_id, {"classwise.promoted": "\n".join(map(str, done))[:MAX_TAG]})
    except (TrackingError, StorageError) as error:
        reporter.note(f"aliases may not have been moved: {error}")
        return [f"later    classwise promote {folder}"]
    return [f"alias    {delivery}" for delivery in done]


def follow_up(config: FleetConfig, result: AuditResult, folder: str, reporter: Reporter) -> list[str]:
    """Accept the audit if it passed and the file says so, and notify the webhooks; returns lines for a person."""
    lines = []
    if config.accept == "passed" and result.outcome is Outcome.PASS:
        try:
            accept(folder, by=PASSED)
            lines.append(f"accepted {result.audit_id}, by {PASSED}")
        except ClasswiseError as error:
            reporter.note(f"not accepted: {error}")
    try:
        done = notify(config.notify, result, folder)
    except StorageError as error:
        reporter.note(f"the record of the notifications was not kept: {error}")
        return lines
    for delivery in done:
        if not delivery.delivered:
            reporter.note(delivery_line(delivery))
    if any(not delivery.delivered for delivery in done):
        lines.append(f"later    classwise notify {folder}")
    return lines


def delivery_line(delivery: Delivery) -> str:
    """How a delivery went, in a line."""
    why = ", ".join(delivery.because)
    return (
        f"notified {delivery.hook} ({why})"
        if delivery.delivered
        else f"{delivery.hook} was not notified ({why}): {delivery.error}"
    )
