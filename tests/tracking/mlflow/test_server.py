"""A real MLflow server on a real PostgreSQL: what a team deploys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torture.servers import Mlflow, Postgres, answers, postgres_binaries

from services.records import AuditResult, Estimate
from tracking.bundle import bundle
from tracking.leaderboard.audited_runs import read_models
from tracking.mlflow.audits import log_audit, sync

pytestmark = pytest.mark.filterwarnings("default::DeprecationWarning", "default::FutureWarning")


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URI of an empty database."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    binaries = postgres_binaries()
    if binaries is None:
        pytest.skip("PostgreSQL is not installed, or as root without runuser")
    database = Postgres(binaries, tmp_path_factory.mktemp("postgres") / "log")
    try:
        database.start()
        yield database.uri
    finally:
        database.close()


@pytest.fixture(scope="module")
def server(postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URI of an MLflow server over it."""
    mlflow = Mlflow(postgres, tmp_path_factory.mktemp("server"))
    try:
        mlflow.start()
        yield mlflow.uri
    finally:
        mlflow.kill()


def test_an_audit_with_hostile_names_goes_through_a_real_server(
    server: str, hostile_audit: AuditResult, make_audit: Callable[..., AuditResult], tmp_path: Path
) -> None:
    from mlflow import MlflowClient

    audit = replace(make_audit(1, 4), audit_id="plain", fleet="server fleet")
    folder = str(tmp_path / "plain")
    bundle.write_bundle(audit, folder)
    runs = log_audit(audit, folder, tracking_uri=server, experiment=audit.fleet, registry_models=True)
    assert log_audit(audit, folder, tracking_uri=server, experiment=audit.fleet, registry_models=True) == runs
    assert runs.url.startswith(f"{server}/#/experiments/") and runs.parent_run_id in runs.url
    assert answers(runs.url.partition("#")[0])

    client: Any = MlflowClient(server)
    child = client.get_run(runs.child_run_ids[0])
    assert child.info.status == "FINISHED" and child.data.metrics["great/wcr"] == audit.models[0].series[0].wcr.value
    assert {entry.path for entry in client.list_artifacts(child.info.run_id)} >= {"report.html", "per_class.parquet"}
    page = Path(client.download_artifacts(runs.parent_run_id, "report.html", str(tmp_path))).read_text()
    assert page.startswith("<!DOCTYPE html>") and "server fleet" in page

    hostile = replace(hostile_audit, models=hostile_audit.models[:1])
    where = str(tmp_path / "hostile")
    bundle.write_bundle(hostile, where)
    (late,) = sync(where, server)
    assert client.get_run(late.child_run_ids[0]).data.tags["classwise.outcome"] == hostile.models[0].outcome.value
    everything = client.search_runs([run.experiment_id for run in client.search_experiments()])
    assert len(everything) == 4 and {run.info.status for run in everything} == {"FINISHED"}


def test_a_leaderboard_is_read_from_the_server_and_from_its_database(
    server: str, postgres: str, board_audit: Callable[..., AuditResult], log_board: Callable[..., list[str]]
) -> None:
    tags = {"method": "it's", "dataset": "mnist"}
    models = {name: (tags if name == "a" else {}, {"clean": 0.9, "pgd20/linf-0.03137": 0.4}) for name in "abc"}
    runs = log_board(board_audit("board", models, fleet="board", gaps={"a": {"clean": Estimate(0.1)}}), server)
    for uri in (server, postgres):
        reading = read_models(uri, experiments=["board"], page=2)
        assert {model.run_id for model in reading.models} == set(runs) and reading.runs == 3
        (first,) = read_models(uri, filters={"method": ["it's"], "dataset": ["mnist"]}).models
        assert first.name == "a" and first.numbers["ge/clean"].value == 0.1 and first.count == 150
