"""What a submitted audit runs: ``python -m jobs.submission.submitted FOLDER ATTEMPT``.

It audits the fleet in the folder, once it has checked who signed it and what was granted. It says how it ended in the
folder and by its exit code: 0 pass, 1 fail, 2 error, 3 undecided, 130 stopped. Who watches reads the folder: an exit
code is lost with the cluster, and 1 is also what a crashed interpreter returns.
"""

from __future__ import annotations

import os
import re
import sys

import typer

from jobs.audit import output
from jobs.fleetfile.reading import Fleet
from jobs.submission.backend import AT_ONCE
from jobs.submission.heartbeat import ProgressReporter
from jobs.submission.signing import KEY, signing_key
from jobs.submission.submission import Ending, Submission, link_bundle, read_ending, read_fleet, write_ending
from jobs.terminal import console, log_setting
from jobs.terminal.progress import Logged
from services.devices import machine_memory, take_at_most
from services.errors import (
    ClasswiseError,
    Interrupted,
    NotAllowed,
    Problem,
    StorageError,
    TrackingError,
    one_line,
)
from services.records import Outcome
from services.storage import files
from services.telemetry import logs

PROGRAM = 3 << 29
"""Bytes that torch, Ray and MLflow reserve before anything is read, of which a tenth is ever in memory."""


def main(folder: str, attempt: str) -> int:
    """Audit and return the exit code."""
    try:
        with console.exits(json=False):
            log_setting.start_server_logging()
            _audit(folder, attempt)
    except typer.Exit as ended:
        return ended.exit_code
    return Outcome.ERROR.exit_code


def _audit(folder: str, attempt: str) -> None:
    said = read_ending(folder)
    if said is not None and (said.attempt, said.state) == (attempt, "stopped"):  # cancelled while it waited
        raise Interrupted(Problem(folder, "an audit that may begin", "one that was cancelled", "submit it again"))
    write_ending(folder, Ending(attempt, "running"))
    try:
        submission, fleet = _admitted(folder)
        from jobs.audit.publish import audit_and_publish

        who = {"caller": submission.caller} if submission.caller else {}
        with console.apart(), logs.about(submission=submission.id, **who):
            published = audit_and_publish(fleet, ProgressReporter(Logged(), folder, attempt))
        ending = _ending(attempt, published.result.outcome, published.folder, published.result.audit_id)
        _link(submission, ending, fleet.config.storage, fleet.config.tracking.uri)
    except BaseException as error:
        failure = console.as_user_error(error)
        write_ending(folder, _failed(attempt, failure))
        raise
    write_ending(folder, ending)
    output.finish(published, json=False)


def _admitted(folder: str) -> tuple[Submission, Fleet]:
    """The fleet, when this deployment signed it and the allow-list that admitted it still does.

    What a caller's files make of themselves is not known before they are read, so it may take three quarters of the
    memory here, shared with those that run at the same time: what asks for more ends its own audit, and not the
    cluster's head with all others.
    """
    key = signing_key(os.environ)
    os.environ.pop(KEY, None)  # workers inherit the environment, and run models of others
    submission, fleet, allow = read_fleet(folder, key)
    if key:  # what is read here is uploaded, with rights that workers do not have
        files.keep_within(fleet.config.storage)
    if allow is not None:
        from jobs.submission.allow import AllowConfig, require_allowed

        try:
            granted = AllowConfig.model_validate(allow)
        except ValueError as error:
            raise NotAllowed(
                Problem(folder, "an allow-list of this version", one_line(error), "submit it again")
            ) from None
        require_allowed(fleet, granted)
        if "RAY_ADDRESS" in os.environ:  # of a job on a cluster: its workers are not of this process
            take_at_most(_share(os.environ.get(AT_ONCE, "")))
    return submission, fleet


def _share(audits: str) -> int:
    """Bytes that one of so many audits may take."""
    whole = machine_memory() * 3 // 4 or sys.maxsize
    count = int(audits) if re.fullmatch(r"[1-9]\d{0,3}", audits, re.ASCII) else 1
    return min(whole, PROGRAM + whole // count)


def _ending(attempt: str, outcome: Outcome, bundle: str, audit_id: str) -> Ending:
    from tracking.bundle.marker import uploads

    upload: dict[str, object] = next(reversed(uploads(bundle)), {})
    return Ending(
        attempt,
        "finished",
        outcome,
        bundle,
        audit_id,
        tracking_uri=str(upload.get("tracking_uri", "")),
        run_id=str(upload.get("parent_run_id", "")),
        run_url=str(upload.get("url", "")),
    )


def _failed(attempt: str, failure: ClasswiseError) -> Ending:
    if isinstance(failure, Interrupted):
        return Ending(attempt, "stopped", problems=failure.problems)
    return Ending(attempt, "finished", Outcome.ERROR, problems=failure.problems)


def _link(submission: Submission, ending: Ending, base: str, configured: str | None) -> None:
    """From the bundle and the MLflow run back to the submission. A link that cannot be made costs no audit."""
    try:
        link_bundle(submission, ending.attempt, ending.bundle)
        if ending.run_id:
            from jobs.fleetfile.mlflow_uri import tracking_uri
            from tracking.mlflow.audits import tag_run

            tags = {"classwise.submission": submission.id, "classwise.key": submission.key or "none"}
            tag_run(tracking_uri(base, configured), ending.run_id, tags)
    except (StorageError, TrackingError) as error:
        console.note(f"no link to the submission: {error}")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
