"""After an audit: figures, report, JUnit, MLflow. The bundle stands before any of it: no number can be lost here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from jobs.audit import unfinished
from jobs.audit.audit import Finished
from jobs.audit.metrics_file import write_metrics
from jobs.audit.other_samples.confirmation import confirm
from jobs.audit.other_samples.generated import audit_both
from jobs.audit.session import RunnerFactory
from jobs.comparison.after import follow_up, promoted
from jobs.fleetfile.mlflow_uri import tracking_uri
from jobs.fleetfile.reading import KIND, Fleet
from jobs.fleetfile.yamlfile import read_yaml
from jobs.terminal.progress import Reporter
from services.errors import StorageError, TrackingError
from services.records import AuditResult
from services.storage import files
from tracking.bundle.bundle import list_bundles, read_bundle
from tracking.bundle.comparison import Comparison, plain, read_comparison
from tracking.bundle.confirmation import read_confirmation
from tracking.bundle.marker import without_secret
from tracking.report.junit import write_junit
from tracking.report.sarif import SarifTarget, write_sarif

HISTORY = 20
"""Earlier audits of the fleet that the report's trends show."""


@dataclass(frozen=True)
class Published:
    """A finished audit, where its bundle is, where a person should look, and what changed since the accepted one."""

    result: AuditResult
    folder: str
    where_to_look: tuple[str, ...] = ()
    comparison: Comparison | None = None


def audit_and_publish(
    fleet: Fleet,
    reporter: Reporter,
    *,
    junit: Path | None = None,
    sarif: SarifTarget | None = None,
    runner: RunnerFactory | None = None,
) -> Published:
    """Audit, then write figures and report, then upload to MLflow.

    An MLflow server that cannot be reached is a note and not a failure: `classwise sync` uploads the bundle later.
    """
    try:
        finished, generated = audit_both(fleet, reporter, runner=runner)
        if generated is not None:
            publish(*generated, reporter)
        if (confirmed := confirm(fleet, finished, reporter, runner=runner)) is not None:
            publish(*confirmed, reporter)
        return publish(fleet, finished, reporter, junit=junit, sarif=sarif)
    finally:
        write_metrics()


def publish(
    fleet: Fleet,
    finished: Finished,
    reporter: Reporter,
    *,
    junit: Path | None = None,
    sarif: SarifTarget | None = None,
) -> Published:
    """Write figures and report of a finished audit, upload to MLflow, then do what the fleet file asks to follow."""
    result, folder = finished.result, finished.folder
    comparison = read_comparison(folder)
    if junit is not None:
        write_junit(result, str(junit))
    if sarif is not None:
        write_sarif(result, comparison, sarif)
    _write_pages(fleet, result, folder, reporter)
    look = [f"report   {files.join(folder, 'report.html')}", f"bundle   {folder}"]
    if fleet.config.tracking.enabled:
        look += _track(fleet, result, folder, reporter)
    look += _reserve_words(folder)
    look += follow_up(fleet.config, result, folder, reporter)
    unfinished.end(folder)
    return Published(result, folder, tuple(look), comparison)


def _reserve_words(folder: str) -> list[str]:
    """What the reserved images said."""
    if (said := read_confirmation(folder)) is None:
        return []
    outcomes = ", ".join(f"{name} {outcome}" for name, outcome in said.outcomes.items())
    lines = [f"reserve  {outcomes} (use {said.use} since the acceptance, level {said.level:.2g})"]
    if said.worse is not None:
        named = "; ".join(" ".join(each) for each in said.worse) or "none"
        lines.append(f"reserve  worse there as well: {named}")
    return lines


def sarif_target(path: Path, fleet_file: Path) -> SarifTarget:
    """A SARIF file that points at the lines of a fleet file."""
    _, where = read_yaml(fleet_file, KIND)
    return SarifTarget(str(path), str(fleet_file), where.lines)


def read_published(folder: str) -> Published:
    """A finished audit from its bundle."""
    result = read_bundle(folder)
    look = (f"report   {files.join(folder, 'report.html')}",)
    return Published(result, folder, look, read_comparison(folder))


def as_json(published: Published) -> dict[str, Any]:
    """The bundle's JSON with its folder and where to look, or what to run when Upload to MLflow failed."""
    body: dict[str, Any] = TypeAdapter(AuditResult).dump_python(published.result, mode="json")
    for model in body["models"]:
        model["name"] = model["spec"]["name"]
    compared = plain(published.comparison) if published.comparison is not None else None
    return {"folder": published.folder, "look": list(published.where_to_look), "comparison": compared, **body}


def result_schema() -> dict[str, Any]:
    """JSON Schema of `as_json`."""
    schema = TypeAdapter(AuditResult).json_schema(mode="serialization")
    model = schema["$defs"]["ModelResult"]
    model["properties"] = {"name": {"type": "string"}, **model["properties"]}
    own = {"folder": {"type": "string"}, "look": {"type": "array", "items": {"type": "string"}}, "comparison": {}}
    return {**schema, "title": "classwise audit --json", "properties": {**own, **schema["properties"]}}


def _write_pages(fleet: Fleet, result: AuditResult, folder: str, reporter: Reporter) -> None:
    """The report, with the fleet's earlier audits for its trends, and the fleet's figures."""
    from tracking.figures.kept import Pictures
    from tracking.figures.save import write_figures
    from tracking.report.report import write_report

    earlier = [path for path in list_bundles(fleet.config.storage, fleet.config.fleet) if path != folder]
    history = list(_readable(earlier[-HISTORY:], reporter))
    pictures = Pictures(fleet.config.storage) if fleet.config.tracking.figures else None
    write_report(result, folder, history, pictures)
    if pictures is not None:
        write_figures(result, folder, pictures)


def _readable(folders: Sequence[str], reporter: Reporter) -> Iterator[AuditResult]:
    """Earlier audits; one that cannot be read is missing from the trends, and costs this audit nothing else."""
    for folder in folders:
        try:
            yield read_bundle(folder)
        except StorageError as error:
            reporter.note(f"left out of the trends: {error}")


def _track(fleet: Fleet, result: AuditResult, folder: str, reporter: Reporter) -> list[str]:
    from tracking.figures.kept import Pictures
    from tracking.mlflow.audits import log_audit
    from tracking.mlflow.runs import close_stale_runs

    tracking = fleet.config.tracking
    try:
        uri = tracking_uri(fleet.config.storage, tracking.uri)
        experiment = tracking.experiment or fleet.config.fleet
        close_stale_runs(uri, experiment)
        runs = log_audit(
            result,
            folder,
            tracking_uri=uri,
            experiment=experiment,
            registry_models=tracking.tag_registry,
            pictures=Pictures(fleet.config.storage) if tracking.figures else None,
        )
    except TrackingError as error:
        reporter.note(f"Upload to MLflow failed: {error}")
        return [f"later    classwise sync {folder}"]
    where = f"mlflow ui --backend-store-uri {uri}" if uri.startswith("sqlite") else without_secret(uri)
    return [f"MLflow   {where}", *promoted(fleet.config, result, folder, uri, runs.parent_run_id, reporter)]
