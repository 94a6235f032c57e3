"""Writes audits to MLflow: one parent run an audit, one child run a model.

The driver is the only writer. Calls are bounded in time: an unreachable server costs seconds, raises `TrackingError`
and leaves the bundle for `sync`. Logging the same audit again finds its runs by the tag ``classwise.audit_id`` and
writes only what is missing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from services.records import AuditResult, ModelResult
from tracking.bundle import bundle, marker
from tracking.bundle.comparison import read_comparison
from tracking.bundle.summary import leaderboard
from tracking.figures.kept import ANEW, Pictures
from tracking.mlflow import artifacts
from tracking.mlflow.connection import connect
from tracking.mlflow.layout import RunContent, child_content, parent_content, registered, table_rows
from tracking.mlflow.reach import CALL_SECONDS, bounded_calls, run_url, translated
from tracking.mlflow.runs import RunWriter, experiment_of

if TYPE_CHECKING:
    from mlflow import MlflowClient

MODEL_INDEX = "classwise.model_index"
IDENTITY = ("classwise.audit_id", "classwise.role", MODEL_INDEX)
Progress = Callable[[int, int], None]
"""Called with runs written and runs in all."""


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
    pictures: Pictures | None = ANEW,
) -> LoggedRuns:
    """Log an audit whose bundle stands in `folder`; safe to repeat.

    Args:
        registry_models: tag the registry versions of ``mlflow:models:/...`` models with their verdict.
        on_progress: called after each run.
        pictures: what draws the runs' figures; None for none.

    Raises:
        TrackingError: the server is unreachable or refuses. Runs begun are closed as FAILED, the bundle is untouched.
    """
    with translated(tracking_uri), bounded_calls(CALL_SECONDS):
        client = connect(tracking_uri)
        experiment_id = experiment_of(client, tracking_uri, experiment)
        writer = _Writer(client, experiment_id, result, folder, pictures)
        runs = writer.write(on_progress or (lambda done, total: None))
        if registry_models:
            _tag_versions(client, result, runs)
    link = run_url(tracking_uri, experiment_id, runs.parent_run_id)
    runs = LoggedRuns(runs.parent_run_id, runs.child_run_ids, link)
    marker.record(folder, tracking_uri, {"experiment": experiment, "audit_id": result.audit_id, **asdict(runs)})
    return runs


def tag_run(tracking_uri: str, run_id: str, tags: Mapping[str, str]) -> None:
    """Add tags to a run that is logged: what is known of it only afterwards.

    Raises:
        TrackingError: the server is unreachable or refuses.
    """
    with translated(tracking_uri), bounded_calls(CALL_SECONDS):
        client = connect(tracking_uri)
        for key, value in tags.items():
            client.set_tag(run_id, key, value)


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


class _Writer:
    """Writes one audit into one experiment."""

    def __init__(
        self, client: MlflowClient, experiment_id: str, audit: AuditResult, folder: str, pictures: Pictures | None
    ) -> None:
        self._runs = RunWriter(client, experiment_id, source="classwise audit", identity=IDENTITY)
        self._client = client
        self._audit = audit
        self._folder = folder
        self._pictures = pictures
        self._comparison = read_comparison(folder)
        self._moment = int(datetime.fromisoformat(audit.finished).timestamp() * 1000)
        self._known = self._runs.known("classwise.audit_id", audit.audit_id, MODEL_INDEX)

    def write(self, on_progress: Progress) -> LoggedRuns:
        """Children in reverse: MLflow lists the newest first, so they read in the order of the fleet."""
        total = len(self._audit.models) + 1
        content = parent_content(self._audit, self._comparison)
        with self._runs.run(content, self._known.get("")) as (parent, fresh):
            children: list[str] = []
            for index in reversed(range(len(self._audit.models))):
                children.insert(0, self._child(index, parent))
                on_progress(len(children), total)
            if fresh:
                self._fill_parent(parent, content)
        on_progress(total, total)
        return LoggedRuns(parent, tuple(children), "")

    def _child(self, index: int, parent: str) -> str:
        content = child_content(self._audit, index, self._comparison)
        model = self._audit.models[index]
        with self._runs.run(content, self._known.get(str(index)), parent=parent) as (run_id, fresh):
            if fresh:
                self._runs.batch(run_id, content, moment=self._moment)
                self._dataset(run_id)
                self._logged_model(run_id, model)
                with TemporaryDirectory() as folder:
                    artifacts.child_files(self._audit, index, content, Path(folder), self._folder, self._pictures)
                    self._client.log_artifacts(run_id, folder)
                self._runs.table(run_id, table_rows(model), "per_class.json")
        return run_id

    def _logged_model(self, run_id: str, model: ModelResult) -> None:
        """Name the logged model as an input of the run, where the audited one is such a model."""
        from mlflow.entities import LoggedModelInput

        source = str(model.facts.get("source", ""))
        if source.startswith("m-"):
            self._client.log_inputs(run_id, models=[LoggedModelInput(source)])

    def _fill_parent(self, run_id: str, content: RunContent) -> None:
        self._runs.batch(run_id, content, moment=self._moment)
        self._dataset(run_id)
        with TemporaryDirectory() as folder:
            artifacts.parent_files(self._audit, self._folder, content, Path(folder), self._pictures)
            self._client.log_artifacts(run_id, folder)
        self._runs.table(run_id, leaderboard(self._audit), "leaderboard.json")

    def _dataset(self, run_id: str) -> None:
        samples = self._audit.samples
        profile = {"num_rows": samples.count, "classes": len(samples.classes), "shape": samples.shape}
        self._runs.dataset(run_id, samples.uri, samples.digest, profile, "audit")


def _tag_versions(client: MlflowClient, audit: AuditResult, runs: LoggedRuns) -> None:
    """Put the verdict, and the run that has it, on the registry version of each ``mlflow:models:/...`` model."""
    for model, run_id in zip(audit.models, runs.child_run_ids, strict=True):
        target = _version_of(client, model)
        if target is None:
            continue
        tags = {"outcome": model.outcome.value, "audit_id": audit.audit_id, "reasons": "\n".join(model.reasons)[:5_000]}
        for key, value in {**tags, "run_id": run_id}.items():
            client.set_model_version_tag(*target, f"classwise.{key}", value)


def _version_of(client: MlflowClient, model: ModelResult) -> tuple[str, str] | None:
    """Registry name and version; of an alias that no audit resolved the version it has now."""
    named = _ALIAS.match(model.spec.uri)
    known = registered(model)
    if known is not None or named is None:
        return known
    return named[1], str(client.get_model_version_by_alias(*named.groups()).version)


_ALIAS = re.compile(r"mlflow:models:/([^/@?]+)@([^/?]+)")
