"""Aliases of a real MLflow registry on SQLite, moved by audits of the models in it."""

from __future__ import annotations

import os
import sqlite3
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pytest
import torch
from mlflow import MlflowClient
from typer.testing import CliRunner

from jobs.audit.audit import run_audit, validate_sources
from jobs.audit.publish import audit_and_publish, publish
from jobs.cli import app
from jobs.comparison.promote import ALIASES, promote
from jobs.fleetfile.mlflow_uri import mlflow_sources
from jobs.fleetfile.reading import validate_fleet
from jobs.terminal.progress import Quiet
from services.errors import ConfigError, Interrupted, Problem, SourceError, TrackingError
from services.training.architectures import small_cnn
from services.training.epochs.checkpoints import load_weights
from tracking.mlflow.promotion import read_promotions

from .conftest import Notes

pytestmark = pytest.mark.filterwarnings("ignore")
PROMOTED = "classwise.promoted"
GATES = [{"measure": "clean", "metric": "aggregate", "at_least": 0.8}]


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory, digit_weights: dict[str, str]) -> Iterator[str]:
    """A registry whose model `digits` has version 1, briefly trained, and version 2, well trained."""
    folder = tmp_path_factory.mktemp("mlflow")
    uri = f"sqlite:///{folder / 'mlflow.db'}"
    mlflow.set_tracking_uri(uri)
    experiment = mlflow.create_experiment("e", artifact_location=(folder / "artifacts").as_uri())
    example = np.zeros((1, 1, 8, 8), dtype=np.float32)
    with warnings.catch_warnings(), mlflow.start_run(experiment_id=experiment):
        warnings.simplefilter("ignore")
        for name in ("weak", "good"):
            network = small_cnn(width=8)
            network.load_state_dict(load_weights(digit_weights[name]))
            mlflow.pytorch.log_model(
                network.eval(),
                name=name,
                input_example=example,
                registered_model_name="digits",
                pip_requirements=["torch"],
                serialization_format="pickle",
            )
    yield uri
    mlflow.set_tracking_uri(None)  # the default as a value would stay in the environment


@pytest.fixture
def client(registry: str) -> MlflowClient:
    result = MlflowClient(registry)
    result.set_registered_model_alias("digits", "candidate", "2")
    result.set_registered_model_alias("digits", "champion", "1")
    return result


@pytest.fixture
def fleet(registry: str, tmp_path: Path) -> dict[str, Any]:
    return {
        "fleet": "registered",
        "samples": {"uri": "sklearn:digits?split=test"},
        "models": [{"name": "new", "uri": "mlflow:models:/digits@candidate", "allow_unpickling": True}],
        "measures": ["clean"],
        "gates": GATES,
        "promote": {"alias": "champion"},
        "storage": str(tmp_path / "runs"),
        "tracking": {"uri": registry, "figures": False},
        "resources": {"runner": "local", "workers": 1, "shard": 900, "batch": 300},
    }


def champion(client: MlflowClient) -> str:
    return str(client.get_model_version_by_alias("digits", "champion").version)


def promoted_by(client: MlflowClient) -> str:
    return str(client.get_model_version("digits", "2").tags.get(PROMOTED, ""))


def test_a_version_that_passes_becomes_champion_on_record(fleet: dict[str, Any], client: MlflowClient) -> None:
    published = audit_and_publish(validate_fleet(fleet), Notes())
    assert champion(client) == "2"
    assert "alias    digits@champion moved from version 1 to version 2" in published.where_to_look
    (kept,) = read_promotions(published.folder)
    assert (kept.moved, kept.before, kept.version, kept.reason) == (True, "1", "2", "")
    tags = client.get_model_version("digits", "2").tags
    assert tags["classwise.promoted"] == f"champion by {published.result.audit_id}"
    experiment = client.get_experiment_by_name("registered")
    runs = client.search_runs([experiment.experiment_id], "tags.`classwise.role` = 'audit'")
    assert runs[0].data.tags["classwise.promoted"] == "digits@champion moved from version 1 to version 2"
    logged = client.search_runs([experiment.experiment_id], "tags.`classwise.role` = 'model'")[0]
    (model,) = client.get_run(logged.info.run_id).inputs.model_inputs
    version = client.get_model_version("digits", "2")
    assert model.model_id in version.source and version.tags["classwise.run_id"] == logged.info.run_id
    client.set_registered_model_alias("digits", "champion", "1")
    client.set_model_version_tag("digits", "1", PROMOTED, "champion by an earlier audit")
    later = audit_and_publish(validate_fleet(fleet), Notes()).result
    ended = client.get_model_version("digits", "1").tags[PROMOTED]
    client.delete_model_version_tag("digits", "1", PROMOTED)
    day = later.finished[:10]
    assert ended == f"champion by an earlier audit, replaced on {day} by version 2 ({later.audit_id})"
    again = audit_and_publish(validate_fleet(fleet), Notes())
    assert [each.reason for each in read_promotions(again.folder)] == ["it points there already"]


@pytest.fixture
def nothing_named(registry: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the environment nor MLflow itself names a store; its default would lie in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setattr("mlflow.tracking._tracking_service.utils._tracking_uri", None)


@pytest.mark.usefixtures("nothing_named")
def test_without_a_tracking_uri_models_come_from_the_store_of_the_storage_and_are_tagged_there(
    fleet: dict[str, Any], registry: str, client: MlflowClient
) -> None:
    storage = str(Path(registry.removeprefix("sqlite:///")).parent)
    published = audit_and_publish(validate_fleet({**fleet, "tracking": {}, "storage": storage}), Notes())
    assert client.get_model_version("digits", "2").tags["classwise.audit_id"] == published.result.audit_id
    assert champion(client) == "2"
    assert "MLFLOW_TRACKING_URI" not in os.environ and not Path("mlflow.db").exists()


@pytest.mark.usefixtures("nothing_named")
def test_a_store_that_was_never_made_holds_no_models_and_is_not_made(fleet: dict[str, Any]) -> None:
    loaded = validate_fleet({**fleet, "tracking": {}, "promote": None})
    for look in (validate_sources, lambda inputs: run_audit(inputs, Quiet())):
        with pytest.raises(SourceError, match=r"tracking.uri: expected the MLflow store .* set tracking.uri or MLFLOW"):
            look(loaded)
    assert not list(Path.cwd().rglob("mlflow.db"))


@pytest.mark.usefixtures("client")
def test_an_audit_reads_the_store_that_its_fleet_names_whatever_the_process_set(
    fleet: dict[str, Any], registry: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mlflow.tracking._tracking_service.utils._tracking_uri", f"sqlite:///{tmp_path / 'other.db'}")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'other.db'}")
    loaded = validate_fleet({**fleet, "tracking": {"uri": registry, "figures": False}, "promote": None})
    assert run_audit(loaded, Quiet()).result.models[0].outcome.value == "pass"
    assert os.environ["MLFLOW_TRACKING_URI"] == f"sqlite:///{tmp_path / 'other.db'}"


@pytest.mark.usefixtures("nothing_named")
def test_of_two_audits_at_once_the_first_to_end_leaves_the_store_to_the_other(
    fleet: dict[str, Any], registry: str
) -> None:
    config = validate_fleet({**fleet, "tracking": {"uri": registry, "figures": False}}).config
    first, second = ExitStack(), ExitStack()
    first.enter_context(mlflow_sources(config))
    second.enter_context(mlflow_sources(config))
    first.close()
    assert os.environ["MLFLOW_TRACKING_URI"] == registry
    second.close()
    assert "MLFLOW_TRACKING_URI" not in os.environ


def test_a_version_that_fails_moves_nothing(fleet: dict[str, Any], client: MlflowClient) -> None:
    published = audit_and_publish(validate_fleet({**fleet, "gates": [{**GATES[0], "at_least": 0.9999}]}), Notes())
    assert champion(client) == "1" and [each.reason for each in read_promotions(published.folder)] == [
        "its outcome is fail"
    ]


def test_an_old_champion_that_fails_holds_back_nobody(fleet: dict[str, Any], client: MlflowClient) -> None:
    old = {"name": "old", "uri": "mlflow:models:/digits/1", "allow_unpickling": True}
    new = {**fleet["models"][0], "promote": {"alias": "champion"}}
    gates = [{**GATES[0], "at_least": 0.93}]
    published = audit_and_publish(
        validate_fleet({**fleet, "models": [old, new], "promote": None, "gates": gates}), Notes()
    )
    assert [model.outcome.value for model in published.result.models] == ["fail", "pass"]
    assert champion(client) == "2"


def test_an_alias_that_somebody_moved_meanwhile_stays(fleet: dict[str, Any], client: MlflowClient) -> None:
    loaded = validate_fleet({**fleet, "promote": {"alias": "canary"}})
    finished = run_audit(loaded, Quiet())
    client.set_registered_model_alias("digits", "canary", "1")
    published = publish(loaded, finished, Notes())
    assert str(client.get_model_version_by_alias("digits", "canary").version) == "1"
    (kept,) = read_promotions(published.folder)
    assert kept.reason == "it was moved during the audit, from nowhere to 1" and not kept.moved


def test_without_mlflow_nothing_moves_and_the_command_does_it_later(
    fleet: dict[str, Any], registry: str, client: MlflowClient
) -> None:
    published = audit_and_publish(
        validate_fleet({**fleet, "tracking": {"uri": registry, "enabled": False, "figures": False}}), Notes()
    )
    assert champion(client) == "1" and read_promotions(published.folder) == ()
    ran = CliRunner().invoke(app, ["promote", published.folder])
    assert ran.exit_code == 0 and ran.stdout.strip() == "digits@champion moved from version 1 to version 2", ran.output
    assert champion(client) == "2" and read_promotions(published.folder)[0].moved


def test_what_was_moved_before_the_registry_failed_is_on_record(
    fleet: dict[str, Any], registry: str, client: MlflowClient
) -> None:
    finished = run_audit(validate_fleet(fleet), Quiet())
    first = finished.result.models[0]
    lost = replace(first, spec=replace(first.spec, name="lost", uri="mlflow:models:/lost/1"))
    checks = {**finished.result.checks, ALIASES: {"digits@champion": "1", "lost@champion": ""}}
    result = replace(finished.result, models=(first, lost), checks=checks)
    both = validate_fleet({**fleet, "models": [*fleet["models"], {"name": "lost", "uri": lost.spec.uri}]})
    with pytest.raises(TrackingError):
        promote(both.config, result, finished.folder, registry)
    assert champion(client) == "2"
    (kept,) = read_promotions(finished.folder)
    assert kept.moved and kept.registered == "digits"


@contextmanager
def tags_refused(registry: str) -> Iterator[None]:
    """The registry takes no tag of a version during the block."""
    with closing(sqlite3.connect(registry.removeprefix("sqlite:///"))) as database, database:
        for change in ("INSERT", "UPDATE"):
            database.execute(
                f"CREATE TRIGGER no_{change} BEFORE {change} ON model_version_tags BEGIN SELECT RAISE(ABORT, 'no'); END"
            )
    try:
        yield
    finally:
        with closing(sqlite3.connect(registry.removeprefix("sqlite:///"))) as database, database:
            database.execute("DROP TRIGGER no_INSERT")
            database.execute("DROP TRIGGER no_UPDATE")


def test_an_alias_that_was_moved_is_told_so_when_its_tag_was_refused_and_the_tag_is_set_later(
    fleet: dict[str, Any], registry: str, client: MlflowClient
) -> None:
    config = validate_fleet(fleet).config
    finished = run_audit(validate_fleet(fleet), Quiet())
    with tags_refused(registry):
        (output,) = promote(config, finished.result, finished.folder, registry)
        assert champion(client) == "2" and output.moved
        assert str(output).startswith("digits@champion moved from version 1 to version 2; the version was not tagged")
        assert read_promotions(finished.folder) == (output,)
        (still,) = promote(config, finished.result, finished.folder, registry)
        assert still.moved and still.untagged == output.untagged
    (tagged,) = promote(config, finished.result, finished.folder, registry)
    assert str(tagged) == "digits@champion moved from version 1 to version 2"
    assert promoted_by(client) == f"champion by {finished.result.audit_id}"
    (again,) = promote(config, finished.result, finished.folder, registry)
    assert again.reason == "it points there already"
    assert read_promotions(finished.folder) == (output, still, tagged, again)


def test_a_version_that_somebody_else_made_champion_is_not_tagged(
    fleet: dict[str, Any], registry: str, client: MlflowClient
) -> None:
    finished = run_audit(validate_fleet(fleet), Quiet())
    client.set_registered_model_alias("digits", "champion", "2")
    client.set_model_version_tag("digits", "2", PROMOTED, "")
    (left,) = promote(validate_fleet(fleet).config, finished.result, finished.folder, registry)
    assert (left.moved, left.reason, promoted_by(client)) == (False, "it points there already", "")


def test_an_alias_whose_audit_was_stopped_at_its_tag_is_on_record_and_tagged_later(
    fleet: dict[str, Any], registry: str, client: MlflowClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*args: Any) -> None:
        raise Interrupted(Problem("audit", "to end", "a request to stop"))

    config = validate_fleet(fleet).config
    finished = run_audit(validate_fleet(fleet), Quiet())
    with monkeypatch.context() as patched:
        patched.setattr(MlflowClient, "set_model_version_tag", stopped)
        with pytest.raises(Interrupted):
            promote(config, finished.result, finished.folder, registry)
    assert champion(client) == "2"
    (kept,) = read_promotions(finished.folder)
    assert kept.moved and kept.untagged == "it was stopped before that"
    (tagged,) = promote(config, finished.result, finished.folder, registry)
    assert tagged.moved and not tagged.untagged
    assert promoted_by(client) == f"champion by {finished.result.audit_id}"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gates": []}, "gates that decide what is promoted"),
        ({"promote": {"alias": "v3"}}, "another alias than latest"),
        ({"promote": {"alias": "a/b"}}, "text of the form"),
        ({"models": [{"name": "m", "uri": "logits:/x.npz"}]}, "a model mlflow:models:/NAME@ALIAS in the fleet"),
        (
            {"models": [{"name": "m", "uri": "mlflow:runs:/r/p", "promote": {"alias": "x"}}], "promote": None},
            "a model mlflow:models:/NAME@ALIAS or",
        ),
        (
            {"models": [{"name": n, "uri": f"mlflow:models:/digits/{n}"} for n in ("1", "2")]},
            "one model that moves digits@champion, found 1, 2",
        ),
    ],
)
def test_mistakes(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    data = {
        "fleet": "f",
        "samples": {"uri": "npz:x"},
        "models": [{"name": "m", "uri": "mlflow:models:/digits@candidate"}],
        "measures": ["clean"],
        "gates": GATES,
        "promote": {"alias": "champion"},
    }
    with pytest.raises(ConfigError, match=message):
        validate_fleet({**data, **change})


def test_the_digits_network_is_the_one_that_was_logged(registry: str, digit_weights: dict[str, str]) -> None:
    loaded = mlflow.pytorch.load_model("models:/digits/2")
    kept = load_weights(digit_weights["good"])
    assert all(torch.equal(value, kept[name]) for name, value in loaded.state_dict().items())
