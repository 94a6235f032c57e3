"""Reading audited models from a real SQLite store: which runs count, what their numbers become, and paging."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from services.errors import TrackingError
from services.records import AuditResult
from services.records.estimates import Estimate
from tracking.leaderboard.audited_runs import read_models, read_values
from tracking.leaderboard.known_numbers import of_keys
from tracking.leaderboard.model import explained, numbers_of

pytestmark = pytest.mark.filterwarnings("default::DeprecationWarning", "default::FutureWarning")
SERIES = {"clean": 0.9, "pgd20/linf-0.03137": 0.4}


def trained(method: str, seed: int, **more: str) -> dict[str, str]:
    return {"method": method, "architecture": "cnn4", "dataset": "mnist", "seed": str(seed), **more}


@pytest.fixture(scope="module")
def store(
    migrated_store: Callable[[Path], str],
    board_audit: Callable[..., AuditResult],
    log_board: Callable[..., list[str]],
    tmp_path_factory: pytest.TempPathFactory,
) -> str:
    """Two audits of the same two models, one of them on other samples too, and one of another fleet."""
    uri = migrated_store(tmp_path_factory.mktemp("store"))
    both = {"erm": (trained("ERM", 0), SERIES), "pgd": (trained("PGD", 0, team="o'brien"), SERIES)}
    log_board(board_audit("2026-a", both), uri)
    later = {"erm": (trained("ERM", 0), {**SERIES, "clean": 0.8}), "pgd": (trained("PGD", 0, team="o'brien"), SERIES)}
    training = {"gaps": {"pgd": {"clean": Estimate(0.05, 0.01, 0.09)}}, "seconds": {"pgd": 2.5}}
    log_board(board_audit("2026-b", later, measures=["clean", {"name": "pgd", "restarts": 2}], **training), uri)
    log_board(board_audit("2026-c", {"erm": (trained("ERM", 0), SERIES)}, digest="77" * 16), uri)
    log_board(board_audit("2026-d", {"erm": ({}, SERIES)}, fleet="other", epsilon=None), uri)
    return uri


def test_the_newest_run_of_each_model_in_each_setting_counts(store: str) -> None:
    reading = read_models(store)
    distinct = {(m.experiment, m.name, m.digest[:2], m.audit_id) for m in reading.models}
    assert distinct == {
        ("robust", "erm", "5a", "2026-b"),
        ("robust", "pgd", "5a", "2026-b"),
        ("robust", "erm", "77", "2026-c"),
        ("other", "erm", "5a", "2026-d"),
    }
    assert reading.runs == 4, "the audit that a newer one of the same models replaces is not read"
    assert set(reading.experiments) >= {"robust", "other"}
    assert next(m for m in reading.models if m.audit_id == "2026-b" and m.name == "erm").numbers[
        "clean/aggregate"
    ] == Estimate(0.8, pytest.approx(0.78), pytest.approx(0.82))


def test_what_a_run_tells_of_its_model(store: str) -> None:
    (pgd,) = read_models(store, filters={"method": ["PGD"]}).models
    assert (pgd.threat_model, pgd.samples, pgd.count) == ("Linf 0.0313725", "npz:test.npz", 150)
    assert pgd.tags == trained("PGD", 0, team="o'brien") and pgd.outcome == "pass"
    assert pgd.numbers["ge/clean"] == Estimate(0.05, 0.01, 0.09)
    assert pgd.numbers["train/seconds_per_epoch"] == Estimate(2.5)
    assert pgd.numbers["pgd20/linf-0.03137/wcr"].value == pytest.approx(0.3)
    assert pgd.worst == {"clean": "cat", "pgd20/linf-0.03137": "cat"}
    assert not [key for key in pgd.numbers if key.endswith(("_low", "_high")) or "/class" in key or key == "seconds"]


def test_all_runs_and_since(store: str) -> None:
    assert len(read_models(store, all_runs=True).models) == 6
    assert read_models(store, since=int(time.time() * 1000) + 60_000).runs == 0
    newest_first = [m.started for m in read_models(store, all_runs=True, experiments=["robust"]).models]
    assert newest_first == sorted(newest_first, reverse=True)


@pytest.fixture
def empty(migrated_store: Callable[[Path], str], tmp_path: Path) -> str:
    return migrated_store(tmp_path)


def twice(score: float) -> dict[str, tuple[dict[str, str], dict[str, float]]]:
    return {name: (trained("ERM", 0), {"clean": score}) for name in ("a", "b")}


def clean(store: str, **given: Any) -> dict[str, float | None]:
    return {model.name: model.numbers["clean/aggregate"].value for model in read_models(store, **given).models}


def test_the_newest_is_that_of_the_latest_audit_not_of_the_latest_upload(
    empty: str, board_audit: Callable[..., AuditResult], log_board: Callable[..., list[str]]
) -> None:
    log_board(board_audit("2026-b", twice(0.7)), empty)
    log_board(board_audit("2026-a", twice(0.6)), empty)
    assert clean(empty) == {"a": 0.7, "b": 0.7}


def test_an_older_run_stands_in_for_one_that_was_deleted(
    empty: str, board_audit: Callable[..., AuditResult], log_board: Callable[..., list[str]]
) -> None:
    from mlflow import MlflowClient

    log_board(board_audit("2026-a", twice(0.6)), empty)
    newest = log_board(board_audit("2026-b", twice(0.7)), empty)
    MlflowClient(empty).delete_run(newest[1])
    assert clean(empty) == {"a": 0.7, "b": 0.6} == clean(empty, filters={"model": ["a", "b"]})
    assert clean(empty, filters={"model": ["b"]}) == {"b": 0.6}


def test_no_older_run_stands_in_for_a_newest_one_that_does_not_fit(
    empty: str, board_audit: Callable[..., AuditResult], log_board: Callable[..., list[str]]
) -> None:
    log_board(board_audit("2026-a", {"a": (trained("ERM", 0), {"clean": 0.6})}), empty)
    log_board(board_audit("2026-b", {"a": (trained("PGD", 0), {"clean": 0.7})}), empty)
    assert clean(empty, filters={"method": ["ERM"]}) == {}
    assert clean(empty, filters={"method": ["ERM"]}, all_runs=True) == {"a": 0.6}


def test_audits_of_other_models_of_older_versions_and_unfinished_ones_are_read(
    empty: str, board_audit: Callable[..., AuditResult], log_board: Callable[..., list[str]]
) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(empty)
    log_board(board_audit("2026-a", {"old": ({}, {"clean": 0.1})}), empty)
    log_board(board_audit("2026-b", twice(0.2)), empty)
    log_board(board_audit("2026-c", {"half": ({}, {"clean": 0.3})}), empty)
    log_board(board_audit("2026-d", twice(0.4)), empty)
    for audit, tag in (("2026-b", "classwise.models"), ("2026-c", "classwise.complete")):
        query = f"tags.`classwise.role` = 'audit' and tags.`classwise.audit_id` = '{audit}'"
        (parent,) = client.search_runs([client.get_experiment_by_name("robust").experiment_id], query)
        client.delete_tag(parent.info.run_id, tag)
    assert clean(empty) == {"old": 0.1, "half": 0.3, "a": 0.4, "b": 0.4}


def test_small_pages_find_the_same(store: str) -> None:
    assert read_models(store, page=1) == read_models(store)


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        ({"method": ["ERM"]}, {"erm"}),
        ({"method": ["ERM", "PGD"], "team": ["o'brien"]}, {"pgd"}),
        ({"threat_model": ["not declared"]}, {"erm"}),
        ({"threat_model": ["Linf 0.0313725"], "audit_id": ["2026-b"]}, {"erm", "pgd"}),
        ({"model": ["pgd"]}, {"pgd"}),
        ({"classwise.outcome": ["pass"], "method": ["PGD"]}, {"pgd"}),
        ({"method": ["pgd"]}, set()),
        ({"method": ["' or '1' = '1"]}, set()),
    ],
)
def test_filters(store: str, filters: dict[str, list[str]], names: set[str]) -> None:
    assert {model.name for model in read_models(store, filters=filters).models} == names


def test_the_values_that_a_filter_could_have_asked_for(store: str) -> None:
    result = read_values(store, ["method", "threat_model", "nothing"])
    assert result == {"method": ["ERM", "PGD"], "threat_model": ["Linf 0.0313725", "not declared"], "nothing": []}


def test_runs_that_are_not_complete_or_not_of_models_are_left_out(
    migrated_store: Callable[[Path], str], tmp_path: Path
) -> None:
    from mlflow import MlflowClient

    uri = migrated_store(tmp_path)
    client = MlflowClient(uri)
    experiment = client.create_experiment("half")
    for tags in ({"classwise.role": "model"}, {"classwise.complete": "true"}, {"classwise.role": "audit"}, {}):
        client.create_run(experiment, tags=tags)
    deleted = client.create_run(experiment, tags={"classwise.role": "model", "classwise.complete": "true"})
    client.delete_run(deleted.info.run_id)
    reading = read_models(uri)
    assert (reading.models, reading.runs) == ((), 0)


def test_the_measures_of_each_audit(store: str) -> None:
    result = read_models(store).measures
    assert result["2026-b"] == ["clean", {"name": "pgd", "restarts": 2}]
    assert set(result) == {"2026-b", "2026-c", "2026-d"}


def test_an_unknown_experiment_is_an_error_that_lists_those_that_exist(store: str) -> None:
    with pytest.raises(TrackingError) as caught:
        read_models(store, experiments=["robust", "robst", "none"])
    assert [problem.found for problem in caught.value.problems] == ["'robst'", "'none'"]
    assert all("'other', 'robust'" in problem.remedy for problem in caught.value.problems)


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(TrackingError, match="no such file"):
        read_models(f"sqlite:///{tmp_path}/none.db")
    assert list(tmp_path.iterdir()) == []


def test_an_unreachable_server_costs_seconds_and_hides_the_password() -> None:
    begun = time.monotonic()
    with pytest.raises(TrackingError) as caught:
        read_models("http://user:secret@127.0.0.1:9")
    assert time.monotonic() - begun < 20
    assert caught.value.problems[0].where == "http://user@127.0.0.1:9"
    assert "sync" not in caught.value.problems[0].remedy


def by_keys(metrics: dict[str, float], undefined: dict[str, str] | None = None) -> dict[str, Estimate]:
    """The numbers of a run of 0.1.0, which says nothing of its series but their keys."""
    return numbers_of(of_keys([*metrics, *(undefined or {})]), metrics, undefined or {})


def test_what_is_no_number_has_no_place() -> None:
    metrics = {"a/aggregate": math.nan, "b/aggregate": 1.797e308, "c/aggregate": 0.5, "c/aggregate_low": math.nan}
    assert by_keys(metrics) == {"c/aggregate": Estimate(0.5)}


def test_an_undefined_number_keeps_its_reason_unless_there_is_one_after_all() -> None:
    undefined = {"a/nrgc": "all scores are 0", "a/wcr": "late", "a/class/c001_x": "no samples"}
    numbers = by_keys({"a/wcr": 0.5}, undefined)
    assert numbers == {"a/nrgc": Estimate(None, reason="all scores are 0"), "a/wcr": Estimate(0.5)}


def test_what_is_known_between_two_shares_is_one_number() -> None:
    metrics = {
        "probacc/u/certified/aggregate": 0.7,
        "probacc/u/certified/aggregate_low": 0.65,
        "probacc/u/possible/aggregate": 0.8,
        "ge/probacc/u/certified/aggregate": 0.1,
        "ge/probacc/u/possible/aggregate": 0.1,
    }
    numbers = by_keys(metrics)
    assert numbers["probacc/u/aggregate"] == Estimate(0.7, 0.65, 0.8)
    assert "ge/probacc/u/aggregate" not in numbers
    both = by_keys({**metrics, "probacc/u/possible/aggregate_high": 0.85})
    assert both["probacc/u/aggregate"].high == 0.85


def test_a_series_whose_name_ends_like_a_limit_is_no_limit() -> None:
    numbers = by_keys({"ge/mine_low": 0.1, "ge/other": 0.2, "ge/other_low": 0.1})
    assert numbers == {"ge/mine_low": Estimate(0.1), "ge/other": Estimate(0.2, 0.1)}


def test_the_weakest_class_is_read_from_the_keys() -> None:
    metrics = {"a/class/c003_cat": 0.4, "a/class/c010_red_fox": 0.1, "a/class_low/c003_cat": 0.0, "b/x/class/c007": 0.2}
    assert explained({}, metrics)[2] == {"a": "red_fox", "b/x": "7"}
