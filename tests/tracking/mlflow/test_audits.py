"""MLflow on a real SQLite store: one audit is logged once and looked at from all sides."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from services.errors import Interrupted, TrackingError
from services.records import AuditResult
from tests.tracking.conftest import log
from tracking.bundle import bundle, marker
from tracking.mlflow import artifacts, audits
from tracking.mlflow.audits import LoggedRuns, sync
from tracking.mlflow.connection import search
from tracking.mlflow.layout import model_run_name, parent_content

pytestmark = pytest.mark.filterwarnings("default::DeprecationWarning", "default::FutureWarning")


@pytest.fixture(scope="module")
def folder(audit: AuditResult, tmp_path_factory: pytest.TempPathFactory) -> str:
    where = str(tmp_path_factory.mktemp("bundle"))
    bundle.write_bundle(audit, where)
    return where


@pytest.fixture(scope="module")
def logged(audit: AuditResult, folder: str, store: str) -> LoggedRuns:
    return log(audit, folder, store)


def test_parent_and_children_are_finished_and_linked(logged: LoggedRuns, client: Any, audit: AuditResult) -> None:
    parent = client.get_run(logged.parent_run_id)
    assert parent.info.status == "FINISHED" and parent.data.tags["classwise.outcome"] == audit.outcome.value
    assert parent.data.metrics["models/all"] == 2
    for run_id, model in zip(logged.child_run_ids, audit.models, strict=True):
        run = client.get_run(run_id)
        assert run.info.status == "FINISHED" and run.info.run_name == model_run_name(audit, model)
        assert run.data.tags["mlflow.parentRunId"] == logged.parent_run_id
        assert run.data.tags["classwise.model_digest"] == model.digest
        assert run.data.tags["classwise.reasons"] == model.reasons[0]
        assert run.data.tags["classwise.threat_model"] == "L2 0.5"
        assert run.data.metrics["great/nrgc"] == model.series[0].metric("nrgc").value
        assert run.data.params["uri"] == model.spec.uri


def test_the_samples_are_a_dataset_with_their_digest(logged: LoggedRuns, client: Any, audit: AuditResult) -> None:
    for run_id in (logged.parent_run_id, *logged.child_run_ids):
        (result,) = client.get_run(run_id).inputs.dataset_inputs
        assert (result.dataset.name, result.dataset.digest) == (audit.samples.uri, audit.samples.digest)
        assert json.loads(result.dataset.profile)["num_rows"] == audit.samples.count


def paths(client: Any, run_id: str, folder: str = "") -> set[str]:
    distinct: set[str] = set()
    for entry in client.list_artifacts(run_id, folder or None):
        distinct |= paths(client, run_id, entry.path) if entry.is_dir else {entry.path}
    return distinct


def test_children_have_the_same_artifact_paths(logged: LoggedRuns, client: Any) -> None:
    first, second = (paths(client, run_id) for run_id in logged.child_run_ids)
    assert first == second
    assert first == {"figures/profile.png", "per_class.json", "per_class.parquet", "report.html", "verdict.json"}
    parent = paths(client, logged.parent_run_id)
    assert {"leaderboard.json", "report.html", "figures/calibration.png", "figures/great/heatmap.png"} <= parent


def test_figures_of_the_bundle_are_not_drawn_again(audit: AuditResult, tmp_path: Path) -> None:
    drawn = tmp_path / "bundle" / "figures" / "great" / "heatmap.png"
    drawn.parent.mkdir(parents=True)
    drawn.write_bytes(b"the picture in the bundle")
    artifacts.parent_files(audit, str(tmp_path / "bundle"), parent_content(audit), tmp_path)
    assert (tmp_path / "figures" / "great" / "heatmap.png").read_bytes() == b"the picture in the bundle"
    assert (tmp_path / "figures" / "great" / "radar.png").read_bytes().startswith(b"\x89PNG")


def test_tables_read_back(
    logged: LoggedRuns, client: Any, audit: AuditResult, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # `load_table` searches in the process-wide store, which other tests may have set.
    monkeypatch.setattr("mlflow.tracking._tracking_service.utils._tracking_uri", store)
    experiment = client.get_run(logged.parent_run_id).info.experiment_id
    table = client.load_table(experiment, "leaderboard.json", [logged.parent_run_id])
    assert list(table["model"]) == [model.spec.name for model in audit.models]
    assert table["great/aggregate"][0] == pytest.approx(audit.models[0].series[0].aggregate.value)
    whole = pq.read_table(client.download_artifacts(logged.child_run_ids[0], "per_class.parquet", str(tmp_path)))
    short = client.load_table(experiment, "per_class.json", [logged.child_run_ids[0]])
    assert whole["score"].to_pylist() == pytest.approx(list(short["score"]))


def test_artifacts_of_a_sqlite_store_lie_beside_it(logged: LoggedRuns, client: Any, store: str) -> None:
    uri = client.get_run(logged.parent_run_id).info.artifact_uri
    assert uri.startswith(Path(store.removeprefix("sqlite:///")).parent.as_uri() + "/mlartifacts/")
    assert not Path("mlruns").exists() and logged.url == ""


def snapshot(client: Any, runs: LoggedRuns) -> list[Any]:
    ids = (runs.parent_run_id, *runs.child_run_ids)
    return [(client.get_run(i).to_dictionary(), client.get_metric_history(i, "great/rdi")) for i in ids]


def test_logging_again_changes_nothing(
    logged: LoggedRuns, client: Any, audit: AuditResult, folder: str, store: str
) -> None:
    before = snapshot(client, logged)
    assert log(audit, folder, store) == logged
    assert str(snapshot(client, logged)) == str(before)
    assert marker.uploaded_to(folder, store)["parent_run_id"] == logged.parent_run_id  # type: ignore[index]
    assert sync(folder, store) == []


def test_a_run_that_was_marked_and_not_ended_is_ended(
    logged: LoggedRuns, client: Any, audit: AuditResult, folder: str, store: str
) -> None:
    for run_id, status in zip(logged.child_run_ids, ("RUNNING", "KILLED"), strict=True):
        client.update_run(run_id, status=status)
    assert log(audit, folder, store) == logged
    assert {client.get_run(run_id).info.status for run_id in logged.child_run_ids} == {"FINISHED"}


def test_a_run_that_is_filled_again_has_each_number_once(
    logged: LoggedRuns, client: Any, audit: AuditResult, folder: str, store: str
) -> None:
    for run_id in (logged.parent_run_id, *logged.child_run_ids):
        client.delete_tag(run_id, "classwise.complete")
    assert log(audit, folder, store) == logged
    assert len(client.get_metric_history(logged.child_run_ids[0], "great/rdi")) == 1
    assert len(client.get_metric_history(logged.parent_run_id, "models/all")) == 1


def runs_of(client: Any, audit: AuditResult) -> list[Any]:
    ids = [client.get_experiment_by_name(audit.fleet).experiment_id]
    return list(client.search_runs(ids, f"tags.`classwise.audit_id` = '{audit.audit_id}'"))


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        (RuntimeError("boom"), "FAILED"),
        (KeyboardInterrupt(), "KILLED"),
        (Interrupted(()), "KILLED"),
        (SystemExit(143), "KILLED"),
    ],
)
@pytest.mark.usefixtures("no_artifacts")
def test_no_run_stays_running_and_a_repeat_completes_it(
    fault: BaseException,
    status: str,
    audit: AuditResult,
    client: Any,
    store: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken = replace(audit, audit_id=f"fault-{type(fault).__name__}", fleet="faults")

    def fail(*arguments: Any) -> None:
        raise fault

    with monkeypatch.context() as patch:
        patch.setattr(artifacts, "child_files", fail)
        with pytest.raises(type(fault)):
            log(broken, str(tmp_path), store)
    result = runs_of(client, broken)
    assert [run.info.status for run in result] == [status, status]
    done = log(broken, str(tmp_path), store)
    after = runs_of(client, broken)
    assert len(after) == 3 and {run.info.status for run in after} == {"FINISHED"}
    assert {run.info.run_id for run in result} <= {done.parent_run_id, *done.child_run_ids}


@pytest.mark.usefixtures("no_artifacts")
def test_hostile_names_are_logged(hostile_audit: AuditResult, client: Any, store: str, tmp_path: Path) -> None:
    runs = log(hostile_audit, str(tmp_path), store, experiment=hostile_audit.fleet)
    data = client.get_run(runs.child_run_ids[0]).data
    assert "great/wcr" in data.metrics and "<script>alert(1" in data.tags["classwise.worst.great"]


@pytest.mark.usefixtures("no_artifacts")
def test_an_inherited_run_id_plays_no_part(
    audit: AuditResult, client: Any, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged: LoggedRuns
) -> None:
    monkeypatch.setenv("MLFLOW_RUN_ID", logged.parent_run_id)
    runs = log(replace(audit, audit_id="inherited"), str(tmp_path), store)
    assert logged.parent_run_id not in (runs.parent_run_id, *runs.child_run_ids)


@pytest.mark.usefixtures("no_artifacts")
def test_registry_versions_get_the_verdict(audit: AuditResult, client: Any, store: str, tmp_path: Path) -> None:
    client.create_registered_model("cats")
    versions = [client.create_model_version("cats", f"file:///weights/{index}").version for index in range(3)]
    client.set_registered_model_alias("cats", "champion", versions[1])
    uris = ("mlflow:models:/cats@champion", "mlflow:models:/cats/1")
    models = tuple(
        replace(model, spec=replace(model.spec, uri=uri)) for model, uri in zip(audit.models, uris, strict=True)
    )
    log(replace(audit, audit_id="registry", models=models), str(tmp_path), store)
    tags = [client.get_model_version("cats", version).tags for version in versions]
    assert tags[0]["classwise.outcome"] == models[1].outcome.value
    assert tags[1]["classwise.outcome"] == models[0].outcome.value and tags[1]["classwise.audit_id"] == "registry"
    assert client.get_run(tags[0]["classwise.run_id"]).data.tags["classwise.registered_model"] == "cats/1"
    assert tags[2] == {}
    moved = replace(models[0], facts={"registry_version": "3"})
    log(replace(audit, audit_id="registry-2", models=(moved,)), str(tmp_path), store)
    assert client.get_model_version("cats", "3").tags["classwise.audit_id"] == "registry-2"


@pytest.mark.usefixtures("no_artifacts")
def test_searches_go_on_after_the_first_page(audit: AuditResult, client: Any, store: str, tmp_path: Path) -> None:
    experiment = client.create_experiment("crowded")
    for index in range(12):
        client.create_run(experiment, tags={"classwise.audit_id": "many", "classwise.model_index": str(index)})
    items = list(search(client, [experiment], "tags.`classwise.audit_id` = 'many'", page=5))
    assert len({run.info.run_id for run in items}) == 12


@pytest.mark.usefixtures("no_artifacts")
def test_a_deleted_experiment_is_an_error_with_the_remedy(
    audit: AuditResult, client: Any, store: str, tmp_path: Path
) -> None:
    client.delete_experiment(client.create_experiment("gone"))
    with pytest.raises(TrackingError, match="mlflow experiments restore"):
        log(audit, str(tmp_path), store, experiment="gone")


@pytest.mark.usefixtures("no_artifacts")
def test_progress_counts_every_run(audit: AuditResult, store: str, tmp_path: Path) -> None:
    observed: list[tuple[int, int]] = []
    log(replace(audit, audit_id="progress"), str(tmp_path), store, on_progress=lambda *step: observed.append(step))
    assert observed == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.usefixtures("no_artifacts")
def test_sync_uploads_what_is_missing(audit: AuditResult, client: Any, store: str, tmp_path: Path) -> None:
    base = str(tmp_path)
    for name in ("late-1", "late-2"):
        late = replace(audit, audit_id=name, fleet="late")
        bundle.write_bundle(late, bundle.folder_of(base, "late", name))
    first = sync(bundle.folder_of(base, "late", "late-1"), store)
    assert len(first) == 1
    (second,) = sync(base, store, fleet="late")
    assert client.get_run(second.parent_run_id).data.tags["classwise.audit_id"] == "late-2"
    assert sync(base, store, fleet="late") == []


def test_few_files_import_mlflow() -> None:
    package = Path(audits.__file__).parents[1]
    importing = {
        str(path.relative_to(package).with_suffix(""))
        for path in package.rglob("*.py")
        if re.search(r"^\s*(from|import) mlflow", path.read_text(), re.M)
    }
    writers = {f"mlflow/{name}" for name in ("audits", "connection", "graphs", "promotion", "runs", "training")}
    assert importing == {"leaderboard/model", "leaderboard/audited_runs", *writers}
