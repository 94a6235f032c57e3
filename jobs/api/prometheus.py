"""Metrics of the API in Prometheus's text format: requests by route and status, their latency, audits by state.

Needs a token like any route about audits. Each replica counts its own requests; the states are the job
server's, asked for at most every `STATES_SECONDS`, and the same from every replica.
"""

from __future__ import annotations

from collections import Counter as Count
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from anyio import CapacityLimiter, to_thread
from fastapi import FastAPI
from fastapi.responses import Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from jobs.api.backlog import Backlog
from jobs.dashboard.stores import is_made
from jobs.schedules.schedule import FiringState
from jobs.submission.client import AuditClient
from jobs.submission.status import State
from jobs.terminal.remembered import Remembered
from jobs.web.access import Who
from jobs.web.guard import App as Application
from jobs.web.guard import Scope
from jobs.web.timed import Timed
from services.errors import ClasswiseError, NotAllowed, Problem

PATH = "/metrics"
STATES_SECONDS = 15.0
UPLOADS_SECONDS = 60.0
BUCKETS = (0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0)


class ApiMetrics:
    """What one replica counts."""

    def __init__(self, client: AuditClient, schedules: str = "", backlog: Backlog | None = None) -> None:
        self.registry = CollectorRegistry()
        self._client = client
        self._statuses = Remembered(client.list, STATES_SECONDS)
        self._backlog = backlog
        labels = ("method", "route", "status")
        self._requests = Counter("classwise_api_requests", "Requests.", labels, registry=self.registry)
        description = "Time until the last byte of an answer; a followed log lasts as long as its audit."
        self._seconds = Histogram(
            "classwise_api_request_seconds", description, ("route",), buckets=BUCKETS, registry=self.registry
        )
        self._submitted = Counter("classwise_api_submissions", "Accepted submissions.", registry=self.registry)
        self._states = Gauge("classwise_audits_submitted", "Audits by state.", ("state",), registry=self.registry)
        self._schedules = Remembered(lambda: _schedules_of(schedules), STATES_SECONDS)
        description = "When the scheduler of a host was at work last, in seconds since 1970."
        name = "classwise_scheduler_heartbeat_timestamp_seconds"
        self._beats = Gauge(name, description, ("host",), registry=self.registry)
        description = "Schedules that do not fire, whose fault classwise schedule list shows."
        self._faulty = Gauge("classwise_schedules_faulty", description, registry=self.registry)
        self._lost = self._gauge("classwise_firings_lost_a_day", "Firings due in the last day whose audit was lost.")
        self._queued = self._gauge("classwise_queue_audits", "Accepted audits that have not begun.")
        self._oldest = self._gauge("classwise_queue_oldest_seconds", "How long the oldest of them has waited.")
        self._overdue = self._gauge("classwise_audits_overdue", "Audits that run past their deadline.")
        self._waiting = self._gauge("classwise_uploads_waiting", "Finished audits that are not in MLflow.")
        self._uploads = Remembered(backlog.uploads, UPLOADS_SECONDS) if backlog else None
        self._storage = self._gauge("classwise_storage_up", "1 when the storage answered.")
        self._answers = Remembered(client.check_storage, STATES_SECONDS)
        self._up = Gauge("classwise_job_server_up", "1 when the job server answered.", registry=self.registry)

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests.labels(method=method, route=route, status=str(status)).inc()
        self._seconds.labels(route=route).observe(seconds)
        if (method, route) == ("POST", "/v1/audits") and status in (200, 202):
            self._submitted.inc()

    def text(self) -> bytes:
        """All of it."""
        now = datetime.now(UTC)
        try:
            statuses = self._statuses.get()
        except ClasswiseError:
            self._up.set(0)
        else:
            self._up.set(self._client.job_server_answers())
            counts = Count(status.state for status in statuses)
            for state in State:
                self._states.labels(state=state.value).set(counts[state])
            if self._backlog is not None:
                self._overdue.set(self._backlog.overdue(statuses, now))
        with suppress(ClasswiseError):  # the last heartbeat stays, and grows old
            beats, faulty, lost = self._schedules.get()
            self._faulty.set(faulty)
            self._lost.set(lost)
            for host, at in beats.items():
                self._beats.labels(host=host).set(at)
        self._of_storage(now)
        return generate_latest(self.registry)

    def _of_storage(self, now: datetime) -> None:
        """What the storage says; what it said last stays while it does not answer."""
        try:
            self._answers.get()
            if self._backlog is not None and self._uploads is not None:
                waiting, oldest = self._backlog.queue(now)
                self._queued.set(waiting)
                self._oldest.set(oldest)
                self._waiting.set(self._uploads.get())
        except ClasswiseError:
            self._storage.set(0)
        else:
            self._storage.set(1)

    def _gauge(self, name: str, description: str) -> Gauge:
        return Gauge(name, description, registry=self.registry)


def _schedules_of(uri: str) -> tuple[dict[str, float], int, int]:
    """Heartbeats by host, how many schedules have a fault, and how many firings of the last day were lost."""
    if not is_made(uri):
        return {}, 0, 0
    from jobs.schedules.store import Store

    store = Store(uri)
    try:
        faulty = sum(bool(schedule.fault) for schedule in store.schedules())
        since = datetime.now(UTC) - timedelta(days=1)
        lost = sum(firing.due_at > since for firing in store.firings(FiringState.LOST, limit=1000))
        return {host: at.timestamp() for host, at in store.beats().items()}, faulty, lost
    finally:
        store.close()


class Measured(Timed):
    """ASGI middleware that times requests. Routes are labelled by their template, so no id becomes a label.

    Args:
        app: what is measured, refusals included.
        metrics: counts.
    """

    def __init__(self, app: Application, *, metrics: ApiMetrics) -> None:
        super().__init__(app)
        self._metrics = metrics

    def answered(self, scope: Scope, status: int, seconds: float) -> None:
        """Count it."""
        route = getattr(scope.get("route"), "path", "none")
        method = scope["method"] if scope["method"] in METHODS else "other"
        self._metrics.observe(method, route, status, seconds)


METHODS = frozenset({"GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH"})


def add_metrics(app: FastAPI, client: AuditClient, schedules: str, backlog: Backlog) -> ApiMetrics:
    """The route and its metrics; the middleware that counts is put on by the caller, outermost."""
    metrics = ApiMetrics(client, schedules, backlog)

    own = CapacityLimiter(1)  # what is asked for may hang

    @app.get(PATH, summary="Metrics of this replica, for Prometheus", include_in_schema=False)
    async def scraped(caller: Who) -> Response:
        if not caller.sees_all:
            raise NotAllowed(Problem(caller.name, "a caller who sees all fleets", ", ".join(caller.fleets)))
        text = await to_thread.run_sync(metrics.text, limiter=own)
        return Response(text, media_type=CONTENT_TYPE_LATEST)

    return metrics
