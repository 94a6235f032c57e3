"""The only file that writes to MLflow: one parent run an audit, one child run a model, and nothing left half said.

Every call names its run id; the thread-local active run and ``MLFLOW_RUN_ID`` play no part. The driver is the only
writer. Calls are bounded in time: an unreachable server costs seconds, raises `TrackingError` and leaves the bundle for
`sync`. Logging the same audit again finds its runs by the tag ``classwise.audit_id`` and writes only what is missing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from services.errors import Interrupted, Problem, TrackingError
from services.records import AuditResult, ModelResult
from tracking import artifacts, bundle, marker
from tracking.layout import RunContent, child_content, parent_content, table_rows
from tracking.mlflow_client import connect, quoted, search
from tracking.names import shorten
from tracking.process import Driver, this_driver
from tracking.reach import (
    CALL_SECONDS,
    PROBE_SECONDS,
    artifact_location,
    bounded_calls,
    run_url,
    translated,
)
from tracking.summary import leaderboard

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

COMPLETE = "classwise.complete"
DRIVER = "classwise.driver"
EXPERIMENT_TAGS = {"mlflow.experimentKind": "custom_model_development"}
"""Opens the experiment in the UI's training view; otherwise runs hide behind its GenAI view."""

MODEL_INDEX = "classwise.model_index"
PARENT = "mlflow.parentRunId"
Progress = Callable[[int, int], None]
"""Called with runs written and runs in all."""

_BATCH, _SMALL_BATCH = 1_000, 100
"""Metrics, and parameters or tags, that MLflow takes in one call."""


@dataclass(frozen=True, slots=True)
class LoggedRuns:
    """Where an audit stands in MLflow: `child_run_ids` in the order of the models, `url` "" for a local database."""

    parent_run_id: str
    child_run_ids: tuple[str, ...]
    url: str


def log_audit(
    result: AuditResult,
    folder: str,
    *,
    tracking_uri: str,
    experiment: str,
    registry_models: bool,
    on_progress: Progress | None = None,
) -> LoggedRuns:
    """Log an audit whose bundle stands in `folder`; safe to repeat.

    Args:
        registry_models: tag the registry versions of ``mlflow:models:/...`` models with their verdict.
        on_progress: called after each run.

    Raises:
        TrackingError: the server is unreachable or refuses. Runs begun are closed as FAILED, the bundle is untouched.
    """
    with translated(tracking_uri), bounded_calls(CALL_SECONDS):
        client = connect(tracking_uri)
        experiment_id = _experiment(client, tracking_uri, experiment)
        writer = _Writer(client, experiment_id, result, folder)
        runs = writer.write(on_progress or (lambda done, total: None))
        if registry_models:
            _tag_versions(client, result)
    link = run_url(tracking_uri, experiment_id, runs.parent_run_id)
    runs = LoggedRuns(runs.parent_run_id, runs.child_run_ids, link)
    marker.record(folder, tracking_uri, {"experiment": experiment, "audit_id": result.audit_id, **asdict(runs)})
    return runs


def sync(
    storage_url: str,
    tracking_uri: str,
    *,
    fleet: str = "",
    experiment: str = "",
    registry_models: bool = True,
    on_progress: Progress | None = None,
) -> list[LoggedRuns]:
    """Upload the bundle in `storage_url`, or all bundles of `fleet` in that storage, that this server has not yet.

    Raises:
        TrackingError: as `log_audit`; bundles before the fault are uploaded and marked.
        StorageError: no bundle there, or one that cannot be read.
    """
    folders = bundle.list_bundles(storage_url, fleet) if fleet else [storage_url]
    done = []
    for folder in folders:
        if marker.uploaded_to(folder, tracking_uri):
            continue
        result = bundle.read_bundle(folder)
        name = experiment or result.fleet
        runs = log_audit(
            result,
            folder,
            tracking_uri=tracking_uri,
            experiment=name,
            registry_models=registry_models,
            on_progress=on_progress,
        )
        done.append(runs)
    return done


def close_stale_runs(
    tracking_uri: str, experiment: str, *, audit_id: str = "", older_than_hours: float = 24.0
) -> list[str]:
    """Close as KILLED the RUNNING runs whose driver is gone; returns their ids.

    A driver on this host is looked up by pid, boot and birth. One on another host cannot be, so its runs are closed
    only when they are older than `older_than_hours`.
    """
    with translated(tracking_uri), bounded_calls(CALL_SECONDS):
        client = connect(tracking_uri)
        found = client.get_experiment_by_name(_experiment_name(experiment))
        if found is None:
            return []
        query = "attributes.status = 'RUNNING'"
        if audit_id:
            query += f" and tags.`classwise.audit_id` = '{quoted(audit_id)}'"
        stale = [run for run in search(client, [found.experiment_id], query) if _is_stale(run, older_than_hours)]
        for run in stale:
            client.set_terminated(run.info.run_id, "KILLED")
        return [run.info.run_id for run in stale]


class _Writer:
    """Writes one audit into one experiment."""

    def __init__(self, client: MlflowClient, experiment_id: str, audit: AuditResult, folder: str) -> None:
        self._client = client
        self._experiment = experiment_id
        self._audit = audit
        self._folder = folder
        self._driver = this_driver().to_tag()
        self._known = self._find_known()

    def _find_known(self) -> dict[str, Run]:
        """Runs of this audit by model index, the parent under ""; a complete one before an incomplete one."""
        query = f"tags.`classwise.audit_id` = '{quoted(self._audit.audit_id)}'"
        known: dict[str, Run] = {}
        for run in search(self._client, [self._experiment], query):
            key = run.data.tags.get(MODEL_INDEX, "")
            if key not in known or run.data.tags.get(COMPLETE):
                known[key] = run
        return known

    def write(self, on_progress: Progress) -> LoggedRuns:
        """Children in reverse: MLflow lists the newest first, so they read in the order of the fleet."""
        total = len(self._audit.models) + 1
        content = parent_content(self._audit)
        with self._run(content, None) as (parent, fresh):
            children: list[str] = []
            for index in reversed(range(len(self._audit.models))):
                children.insert(0, self._child(index, parent))
                on_progress(len(children), total)
            if fresh:
                self._fill_parent(parent, content)
        on_progress(total, total)
        return LoggedRuns(parent, tuple(children), "")

    def _child(self, index: int, parent: str) -> str:
        content = child_content(self._audit, index)
        model = self._audit.models[index]
        with self._run(content, parent) as (run_id, fresh):
            if fresh:
                self._batch(run_id, content)
                self._dataset(run_id)
                with TemporaryDirectory() as folder:
                    artifacts.child_files(self._audit, index, content, Path(folder))
                    self._client.log_artifacts(run_id, folder)
                self._table(run_id, table_rows(model), "per_class.json")
        return run_id

    def _fill_parent(self, run_id: str, content: RunContent) -> None:
        self._batch(run_id, content)
        self._dataset(run_id)
        with TemporaryDirectory() as folder:
            artifacts.parent_files(self._audit, self._folder, content, Path(folder))
            self._client.log_artifacts(run_id, folder)
        self._table(run_id, leaderboard(self._audit), "leaderboard.json")

    @contextmanager
    def _run(self, content: RunContent, parent: str | None) -> Iterator[tuple[str, bool]]:
        """Yield the run's id and whether it still has to be filled; closes it however the block ends."""
        known = self._known.get(content.tags.get(MODEL_INDEX, ""))
        if known is not None and known.data.tags.get(COMPLETE):
            yield known.info.run_id, False
            return
        run_id = known.info.run_id if known else self._create(content, parent)
        try:
            if known:
                self._client.update_run(run_id, status="RUNNING")
                self._client.set_tag(run_id, DRIVER, self._driver)
            yield run_id, True
            self._client.set_tag(run_id, COMPLETE, "true")
            self._client.set_terminated(run_id, "FINISHED")
        except BaseException as error:
            _close(self._client, run_id, error)
            raise

    def _create(self, content: RunContent, parent: str | None) -> str:
        keys = ("classwise.audit_id", "classwise.role", MODEL_INDEX)
        tags = {key: content.tags[key] for key in keys if key in content.tags}
        tags |= {DRIVER: self._driver, "mlflow.source.name": "classwise audit", "mlflow.source.type": "JOB"}
        if parent is not None:
            tags[PARENT] = parent
        run = self._client.create_run(self._experiment, tags=tags, run_name=content.name[:250] or "(unnamed)")
        return str(run.info.run_id)

    def _batch(self, run_id: str, content: RunContent) -> None:
        from mlflow.entities import Metric, Param, RunTag

        now = int(time.time() * 1000)
        params = [Param(key, value) for key, value in content.params.items()]
        metrics = [Metric(key, value, now, 0) for key, value in content.metrics.items()]
        tags = [RunTag(key, value) for key, value in content.tags.items()]
        for start in range(0, max(len(params), len(tags)), _SMALL_BATCH):
            chunk = slice(start, start + _SMALL_BATCH)
            self._client.log_batch(run_id, params=params[chunk], tags=tags[chunk])
        for start in range(0, len(metrics), _BATCH):
            self._client.log_batch(run_id, metrics=metrics[start : start + _BATCH])

    def _dataset(self, run_id: str) -> None:
        from mlflow.entities import Dataset, DatasetInput, InputTag

        samples = self._audit.samples
        profile = json.dumps({"num_rows": samples.count, "classes": len(samples.classes), "shape": samples.shape})
        source = json.dumps({"uri": samples.uri})
        dataset = Dataset(shorten(samples.uri, 200), samples.digest[:36], "classwise", source, profile=profile)
        entry = DatasetInput(dataset, [InputTag("mlflow.data.context", "audit")])
        _insist(lambda: self._client.log_inputs(run_id, [entry]))

    def _table(self, run_id: str, rows: Sequence[dict[str, Any]], path: str) -> None:
        """An MLflow table (`mlflow.load_table`); None stays null, where a data frame would make it NaN."""
        if not rows:
            return
        columns = list(dict.fromkeys(key for row in rows for key in row))
        body = {"columns": columns, "data": [[row.get(column) for column in columns] for row in rows]}
        self._client.log_dict(run_id, body, path)
        self._client.set_tag(run_id, "mlflow.loggedArtifacts", json.dumps([{"path": path, "type": "table"}]))


# --- experiments, runs, registry ---------------------------------------------------------------------------------


def _experiment_name(name: str) -> str:
    return name.replace("\x00", "")[:250] or "classwise"


def _experiment(client: MlflowClient, tracking_uri: str, name: str) -> str:
    """Id of the experiment, created when absent; beside a SQLite file its artifacts lie next to the file."""
    from mlflow.exceptions import MlflowException

    wanted = _experiment_name(name)
    found = client.get_experiment_by_name(wanted)
    if found is None:
        try:
            place = artifact_location(tracking_uri, wanted)
            return str(client.create_experiment(wanted, artifact_location=place, tags=EXPERIMENT_TAGS))
        except MlflowException:
            found = client.get_experiment_by_name(wanted)
            if found is None:
                raise
    if found.lifecycle_stage == "deleted":
        remedy = f"restore it: `mlflow experiments restore --experiment-id {found.experiment_id}`"
        raise TrackingError(Problem(f"experiment {wanted!r}", "an active experiment", "a deleted one", remedy))
    return str(found.experiment_id)


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


def _tag_versions(client: MlflowClient, audit: AuditResult) -> None:
    """Put the verdict on the registry version of each ``mlflow:models:/...`` model."""
    for model in audit.models:
        target = _version_of(client, model)
        if target is None:
            continue
        tags = {"outcome": model.outcome.value, "audit_id": audit.audit_id, "reasons": "\n".join(model.reasons)[:5_000]}
        for key, value in tags.items():
            client.set_model_version_tag(*target, f"classwise.{key}", value)


def _version_of(client: MlflowClient, model: ModelResult) -> tuple[str, str] | None:
    """Registry name and version; the version that the audit resolved counts, for an alias may have moved since."""
    prefix = "mlflow:models:/"
    if not model.spec.uri.startswith(prefix):
        return None
    name, _, tail = model.spec.uri.removeprefix(prefix).partition("?")[0].partition("/")
    name, _, alias = name.partition("@")
    version = model.facts.get("registry_version") or tail
    if not version and alias:
        version = client.get_model_version_by_alias(name, alias).version
    return (name, str(version)) if version else None
