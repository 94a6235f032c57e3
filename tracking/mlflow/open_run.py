"""Logs an evaluation into a run that the caller opened: what a child run of an audit gets, and leaves it open."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from services.records import AuditResult
from tracking.figures.kept import ANEW
from tracking.mlflow import artifacts
from tracking.mlflow.connection import connect
from tracking.mlflow.layout import RunContent, child_content, table_rows
from tracking.mlflow.reach import CALL_SECONDS, bounded_calls, translated
from tracking.mlflow.runs import RunWriter

ROLE = "evaluation"
"""Value of the tag ``classwise.role``: such a run has no audit above it, and the leaderboard leaves it out."""


def log_evaluation(result: AuditResult, bundle: str, run_id: str, tracking_uri: str) -> tuple[dict[str, float], str]:
    """Log the audit of one model into the run; returns its metrics and where the run's artifacts lie.

    Parameters and tags that the run has already stay as they are: parameters of MLflow cannot be changed.

    Args:
        bundle: folder of the audit's bundle.

    Raises:
        TrackingError: the server is unreachable or refuses.
    """
    again = "start the evaluation again once the server answers"
    with translated(tracking_uri, remedy=again), bounded_calls(CALL_SECONDS):
        client = connect(tracking_uri)
        run = client.get_run(run_id)
        content = _beside(child_content(result, 0), run.data.params, run.data.tags)
        writer = RunWriter(client, run.info.experiment_id, source="mlflow.models.evaluate", identity=())
        writer.batch(run_id, content)
        with TemporaryDirectory() as folder:
            artifacts.child_files(result, 0, content, Path(folder), bundle, ANEW)
            client.log_artifacts(run_id, folder)
        writer.table(run_id, table_rows(result.models[0]), "per_class.json")
        return content.metrics, str(run.info.artifact_uri)


def _beside(content: RunContent, params: dict[str, str], tags: dict[str, str]) -> RunContent:
    """The content without what the run has already."""
    left = {key: value for key, value in content.params.items() if key not in params}
    added = {key: value for key, value in content.tags.items() if key not in tags or key.startswith("classwise.")}
    return replace(content, params=left, tags={**added, "classwise.role": ROLE})
