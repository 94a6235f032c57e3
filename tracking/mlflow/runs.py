"""Fills MLflow runs so that nothing is left half said: each is found or made, filled, marked complete and closed.

Every call names its run id; the thread-local active run and ``MLFLOW_RUN_ID`` play no part. What was logged before is
found again by the tags that identify it, and only what is missing is written. What every writer shares stands here;
`tracking.mlflow.audits` writes audits with it, `tracking.mlflow.training` trials.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from services.errors import Interrupted, Problem, TrackingError
from tracking.mlflow.connection import connect, quoted, search
from tracking.mlflow.layout import RunContent
from tracking.mlflow.process import Driver, this_driver
from tracking.mlflow.reach import CALL_SECONDS, PROBE_SECONDS, artifact_location, bounded_calls, translated
from tracking.names import shorten

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Run

COMPLETE = "classwise.complete"
DRIVER = "classwise.driver"
PARENT = "mlflow.parentRunId"
EXPERIMENT_TAGS = {"mlflow.experimentKind": "custom_model_development"}
"""Opens the experiment in the UI's training view; otherwise runs hide behind its GenAI view."""

_BATCH, _SMALL_BATCH = 1_000, 100
"""Metrics, and parameters or tags, that MLflow takes in one call."""


class RunWriter:
    """Writes the runs of one experiment.

    Args:
        source: the command that writes, for the UI.
        identity: tags by which a run is found again; they are set when it is made.
    """

    def __init__(self, client: MlflowClient, experiment_id: str, *, source: str, identity: Sequence[str]) -> None:
        self.client, self.experiment = client, experiment_id
        self._source, self._identity = source, identity
        self._driver = this_driver().to_tag()

    def known(self, tag: str, value: str, key: str) -> dict[str, Run]:
        """Runs whose `tag` has that value, by their tag `key`; a complete one before an incomplete one."""
        by_name: dict[str, Run] = {}
        for run in search(self.client, [self.experiment], f"tags.`{tag}` = '{quoted(value)}'"):
            name = run.data.tags.get(key, "")
            if name not in by_name or run.data.tags.get(COMPLETE):
                by_name[name] = run
        return by_name

    @contextmanager
    def run(
        self,
        content: RunContent,
        known: Run | None,
        *,
        parent: str | None = None,
        started: int | None = None,
        again: bool = False,
        ending: str = "FINISHED",
        lasting: bool = True,
    ) -> Iterator[tuple[str, bool]]:
        """Yield the run's id and whether it still has to be filled; closes it however the block ends.

        Args:
            known: the run where it was begun before.
            started: when what it records began, in milliseconds since 1970.
            again: fill a complete run as well.
            ending: the status in which it is closed when the block ends well.
            lasting: mark it complete; else it is filled anew when the same is logged again.
        """
        if known is not None and known.data.tags.get(COMPLETE) and not again:
            if known.info.status != ending:  # the driver was killed between the mark and the end
                self.client.set_terminated(known.info.run_id, ending)
            yield known.info.run_id, False
            return
        run_id = known.info.run_id if known else self._create(content, parent, started)
        try:
            if known:
                self.client.update_run(run_id, status="RUNNING")
                self.client.set_tag(run_id, DRIVER, self._driver)
            yield run_id, True
            if lasting:
                self.client.set_tag(run_id, COMPLETE, "true")
            self.client.set_terminated(run_id, ending)
        except BaseException as error:
            _close(self.client, run_id, error)
            raise

    def _create(self, content: RunContent, parent: str | None, started: int | None) -> str:
        tags = {key: content.tags[key] for key in self._identity if key in content.tags}
        tags |= {DRIVER: self._driver, "mlflow.source.name": self._source, "mlflow.source.type": "JOB"}
        if parent is not None:
            tags[PARENT] = parent
        name = content.name[:250] or "(unnamed)"
        run = self.client.create_run(self.experiment, start_time=started, tags=tags, run_name=name)
        return str(run.info.run_id)

    def batch(
        self, run_id: str, content: RunContent, curves: Sequence[Metric] = (), *, moment: int | None = None
    ) -> None:
        """Log parameters, metrics and tags, in as many calls as MLflow asks for.

        Args:
            moment: of the metrics, in milliseconds since 1970, default now. MLflow keeps a value that is logged twice
                for one moment once.
        """
        from mlflow.entities import Metric, Param, RunTag

        now = int(time.time() * 1000) if moment is None else moment
        params = [Param(key, value) for key, value in content.params.items()]
        metrics = [*(Metric(key, value, now, 0) for key, value in content.metrics.items()), *curves]
        tags = [RunTag(key, value) for key, value in content.tags.items()]
        for start in range(0, max(len(params), len(tags)), _SMALL_BATCH):
            chunk = slice(start, start + _SMALL_BATCH)
            self.client.log_batch(run_id, params=params[chunk], tags=tags[chunk])
        for start in range(0, len(metrics), _BATCH):
            self.client.log_batch(run_id, metrics=metrics[start : start + _BATCH])

    def dataset(self, run_id: str, name: str, digest: str, profile: Mapping[str, Any], context: str) -> None:
        """Log a data set that the run used."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        source = json.dumps({"uri": name})
        dataset = Dataset(shorten(name, 200), digest[:36], "classwise", source, profile=json.dumps(profile))
        entry = DatasetInput(dataset, [InputTag("mlflow.data.context", context)])
        _insist(lambda: self.client.log_inputs(run_id, [entry]))

    def table(self, run_id: str, rows: Sequence[dict[str, Any]], path: str) -> None:
        """An MLflow table (`mlflow.load_table`); None stays null, where a data frame would make it NaN."""
        if not rows:
            return
        columns = list(dict.fromkeys(key for row in rows for key in row))
        body = {"columns": columns, "data": [[row.get(column) for column in columns] for row in rows]}
        self.client.log_dict(run_id, body, path)
        self.client.set_tag(run_id, "mlflow.loggedArtifacts", json.dumps([{"path": path, "type": "table"}]))


def experiment_of(client: MlflowClient, tracking_uri: str, name: str) -> str:
    """Id of the experiment, created when absent; beside a SQLite file its artifacts lie next to the file."""
    from mlflow.exceptions import MlflowException

    wanted = experiment_name(name)
    experiment = client.get_experiment_by_name(wanted)
    if experiment is None:
        try:
            place = artifact_location(tracking_uri, wanted)
            return str(client.create_experiment(wanted, artifact_location=place, tags=EXPERIMENT_TAGS))
        except MlflowException:
            experiment = client.get_experiment_by_name(wanted)
            if experiment is None:
                raise
    if experiment.lifecycle_stage == "deleted":
        remedy = f"restore it: `mlflow experiments restore --experiment-id {experiment.experiment_id}`"
        raise TrackingError(Problem(f"experiment {wanted!r}", "an active experiment", "a deleted one", remedy))
    return str(experiment.experiment_id)


def experiment_name(name: str) -> str:
    """The name as MLflow takes it."""
    return name.replace("\x00", "")[:250] or "classwise"


def close_stale_runs(
    tracking_uri: str, experiment: str, *, audit_id: str = "", older_than_hours: float = 24.0
) -> list[str]:
    """Close as KILLED the RUNNING runs whose driver is gone; returns their ids.

    A driver on this host is looked up by pid, boot and birth. One on another host cannot be, so its runs are closed
    only when they are older than `older_than_hours`.
    """
    with translated(tracking_uri), bounded_calls(CALL_SECONDS):
        client = connect(tracking_uri)
        existing = client.get_experiment_by_name(experiment_name(experiment))
        if existing is None:
            return []
        query = "attributes.status = 'RUNNING'"
        if audit_id:
            query += f" and tags.`classwise.audit_id` = '{quoted(audit_id)}'"
        stale = [run for run in search(client, [existing.experiment_id], query) if _is_stale(run, older_than_hours)]
        for run in stale:
            client.set_terminated(run.info.run_id, "KILLED")
        return [run.info.run_id for run in stale]


def _is_stale(run: Run, older_than_hours: float) -> bool:
    driver = Driver.from_tag(run.data.tags.get(DRIVER, ""))
    gone = driver.is_gone() if driver else None
    if gone is not None:
        return gone
    hours = (time.time() * 1000 - run.info.start_time) / 3_600_000
    return DRIVER in run.data.tags and hours > older_than_hours


def _insist(call: Callable[[], None], tries: int = 4) -> None:
    """Repeat a call that may lose a race: two drivers that log the same data set first break its unique index."""
    for left in reversed(range(tries)):
        try:
            call()
            return
        except Exception as error:
            if left == 0 or "unique" not in str(error).lower():
                raise
            time.sleep(0.2)


def _close(client: MlflowClient, run_id: str, error: BaseException) -> None:
    """Close a run after a fault, quickly and without hiding the fault."""
    stopped = isinstance(error, KeyboardInterrupt | SystemExit | Interrupted)
    try:
        with bounded_calls(PROBE_SECONDS, retries=0):
            client.set_terminated(run_id, "KILLED" if stopped else "FAILED")
    except Exception:
        return
