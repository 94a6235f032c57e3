"""Tells the webhooks of a fleet file of a finished audit, and keeps ``notifications.json`` in its bundle.

The secret and, if the file says so, the URL come from the environment of the process that audits. A delivery that
fails is a note and a record; it costs no audit.
"""

from __future__ import annotations

import json
import os
import threading
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pydantic import TypeAdapter

from jobs.fleetfile.followups import NotifyConfig, shown_url, url_fault
from jobs.notify.body import applies, body_of
from jobs.notify.delivery import TOTAL_SECONDS, Attempt, deliver
from services.records import AuditResult, digest_of
from tracking.bundle.comparison import read_comparison
from tracking.bundle.record_file import RecordFile

NOTIFICATIONS = "notifications.json"
SCHEMA_VERSION = 1
GRACE = 5.0
"""Seconds that a delivery may take beyond its bound before it is left alone."""


@dataclass(frozen=True)
class Tried:
    """One try of a delivery, as it is kept."""

    at: str
    seconds: float
    status: int | None
    error: str


@dataclass(frozen=True)
class Delivery:
    """One notification of one webhook, delivered or not.

    Attributes:
        id: of the delivery, the same in all its tries.
        hook: the URL without its query, or the variable that holds it.
        because: the conditions that held.
        error: why it failed; "" when it arrived.
    """

    id: str
    hook: str
    because: tuple[str, ...]
    delivered: bool
    error: str = ""
    tries: tuple[Tried, ...] = ()


@dataclass(frozen=True)
class _File:
    deliveries: tuple[Delivery, ...] = ()
    schema_version: int = field(default=SCHEMA_VERSION)


_FILE = RecordFile(NOTIFICATIONS, TypeAdapter(_File), "a record of deliveries", "delete the file", SCHEMA_VERSION)


def notify(
    hooks: Sequence[NotifyConfig],
    result: AuditResult,
    folder: str,
    *,
    environment: Mapping[str, str] = os.environ,
    only_failed: bool = False,
) -> tuple[Delivery, ...]:
    """Notify the hooks whose conditions hold, in parallel, and record it in the bundle.

    Args:
        only_failed: leave out those that were notified according to the bundle.

    Raises:
        StorageError: the record cannot be read or written.
    """
    comparison, earlier = read_comparison(folder), read_deliveries(folder)
    delivered = {delivery.hook for delivery in earlier if delivery.delivered} if only_failed else set()
    chosen = [(hook, applies(hook.when, result, comparison)) for hook in hooks if name_of(hook) not in delivered]
    jobs = [
        _Job(hook, tuple(because), json.dumps(body_of(result, comparison, folder, because), allow_nan=False).encode())
        for hook, because in chosen
        if because
    ]
    done = _together(jobs, environment)
    if done:
        _FILE.write(_File((*earlier, *done)), folder)
    return done


def read_deliveries(folder: str) -> tuple[Delivery, ...]:
    """What the bundle in `folder` says of its deliveries, the earliest first; raises as `RecordFile.read`."""
    record = _FILE.read(folder)
    return record.deliveries if record is not None else ()


def name_of(hook: NotifyConfig) -> str:
    """What a hook is called where all may read it; a digest distinguishes two that differ in what is not shown."""
    if hook.url is None:
        return f"${hook.url_env}"
    shown = shown_url(hook.url)
    return shown if shown == hook.url else f"{shown} ({digest_of(hook.url)[:8]})"


@dataclass(frozen=True)
class _Job:
    hook: NotifyConfig
    because: tuple[str, ...]
    body: bytes


def _together(jobs: Sequence[_Job], environment: Mapping[str, str]) -> tuple[Delivery, ...]:
    """All deliveries side by side, in threads that are not waited for at the end: an answer may come byte by byte."""
    done: list[Delivery | None] = [None] * len(jobs)

    def run(place: int) -> None:
        done[place] = _deliver(jobs[place], environment)

    threads = [threading.Thread(target=run, args=(place,), daemon=True) for place in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TOTAL_SECONDS + GRACE)
    late = f"no answer within {TOTAL_SECONDS:g} s"
    return tuple(
        delivery or Delivery("", name_of(job.hook), job.because, False, late)
        for job, delivery in zip(jobs, done, strict=True)
    )


def _deliver(job: _Job, environment: Mapping[str, str]) -> Delivery:
    hook, name, delivery = job.hook, name_of(job.hook), str(uuid.uuid4())
    url = hook.url or environment.get(hook.url_env or "", "")
    secret = environment.get(hook.secret_env, "") if hook.secret_env else ""
    fault = _fault(hook, url, secret)
    if fault:
        return Delivery(delivery, name, job.because, False, fault)
    tries = deliver(url, job.body, delivery, secret)
    last = tries[-1]
    error = "" if last.delivered else f"{last.error or f'HTTP {last.status}'}, after {len(tries)} tries"
    return Delivery(delivery, name, job.because, last.delivered, error, tuple(map(_tried, tries)))


def _fault(hook: NotifyConfig, url: str, secret: str) -> str:
    """What keeps a delivery from being made at all; "" when nothing does."""
    if hook.url_env and not url:
        return f"the variable {hook.url_env} is not set where the audit ran"
    if fault := url_fault(url, hook.insecure):
        return f"expected {fault}"
    if url.endswith("?..."):
        return "the bundle does not keep the URL's query; name the fleet file with --fleet-file"
    if hook.secret_env and not secret:
        return f"the variable {hook.secret_env} is not set where the audit ran"
    return ""


def _tried(attempt: Attempt) -> Tried:
    at = datetime.fromtimestamp(attempt.at, UTC).isoformat(timespec="milliseconds")
    return Tried(at, round(attempt.seconds, 3), attempt.status, attempt.error)
