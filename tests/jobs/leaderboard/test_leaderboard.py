"""The whole way on a real store: from logged audits to boards, notes, files and exit codes."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from jobs.cli import app
from jobs.leaderboard.leaderboard import Leaderboard, Request, make_leaderboard
from jobs.leaderboard.presets import Choice
from services.errors import ConfigError
from services.records import AuditResult, Estimate

pytestmark = pytest.mark.filterwarnings("default::DeprecationWarning", "default::FutureWarning")

PROBACC = ("probacc/uniform-0.08/certified", "probacc/uniform-0.08/possible")
SERIES = ("clean", "pgd20/linf-0.03137", "pr/uniform-0.08", *PROBACC)
METHODS = {"ERM": (0.95, 0.0, 0.7, 0.6, 0.7), "PGD": (0.85, 0.5, 0.9, 0.8, 0.85), "MART": (0.8, 0.55, 0.9, 0.8, 0.8)}
ERRORS = {"ERM": (0.0, 0.04, 3.0), "PGD": (0.25, 0.1, 30.0), "MART": (0.17, 0.07, 22.0)}
GAPS = ("pgd20/linf-0.03137", "pr/uniform-0.08")
PARTS = (*(f"ge/{key}" for key in GAPS), "train/seconds_per_epoch")


def model(method: str, seed: int, dataset: str = "cifar10", **more: str) -> tuple[dict[str, str], dict[str, float]]:
    tags = {"method": method, "architecture": "resnet18", "dataset": dataset, "seed": str(seed), "sweep": "s", **more}
    values = [round(value + 0.01 * seed, 6) for value in METHODS[method]]
    return tags, dict(zip(SERIES, values, strict=True))


def trained(seed: int) -> dict[str, Any]:
    """What the training service adds to the models of that seed."""
    gaps, seconds = {}, {}
    for method, (*values, epoch) in ERRORS.items():
        name = f"{method.lower()}-{seed}"
        gaps[name] = {key: Estimate(value, value - 0.01, value + 0.01) for key, value in zip(GAPS, values, strict=True)}
        seconds[name] = epoch
    return {"gaps": gaps, "seconds": seconds}


@pytest.fixture(scope="session")
def board_store(
    migrated_store: Callable[[Path], str],
    board_audit: Callable[..., AuditResult],
    log_board: Callable[..., list[str]],
    tmp_path_factory: pytest.TempPathFactory,
) -> str:
    """A sweep of three methods by two seeds on CIFAR-10, and two models on MNIST with no tag but the data set."""
    uri = migrated_store(tmp_path_factory.mktemp("boards"))
    for seed in (0, 1):
        models = {f"{method.lower()}-{seed}": model(method, seed) for method in METHODS}
        log_board(board_audit(f"2026-{seed}", models, fleet="sweep", half=0.02, **trained(seed)), uri)
    plain = {name: ({"dataset": "mnist"}, {"clean": value, SERIES[1]: 0.0}) for name, value in (("a", 0.9), ("b", 0.8))}
    log_board(board_audit("2026-m", plain, fleet="digits", digest="77" * 16), uri)
    return uri


def made(uri: str, **given: Any) -> Leaderboard:
    return make_leaderboard(Request(tracking_uri=uri, **given))


CIFAR = {"dataset": ("cifar10",)}


def test_scores_of_the_seven_metrics_by_hand(board_store: str) -> None:
    (board,) = made(board_store, filters=CIFAR, choice=Choice("prbench")).boards
    assert [metric.name for metric in board.metrics if metric.weight] == [
        "acc",
        "ar",
        "pr",
        "probacc",
        "ge_ar",
        "ge_pr",
        "time",
    ]
    scaled = {
        "MART": [0, 1, 1, 1, 1 - 0.17 / 0.25, 0.5, 8 / 27],
        "PGD": [0.05 / 0.15, 0.5 / 0.55, 1, 1, 0, 0, 0],
        "ERM": [1, 0, 0, 0, 1, 1, 1],
    }
    expected = {name: np.mean(parts) for name, parts in scaled.items()}
    scores = {e.name: s.score.value for e, s in zip(board.entries, board.standings, strict=True)}
    assert scores == {
        name: pytest.approx(expected[name], abs=1e-9) for name in sorted(expected, key=expected.get)[::-1]
    }
    assert [s.place for s in board.standings] == [1, 2, 3] and list(scores) == ["MART", "ERM", "PGD"]


def test_seeds_are_averaged_with_n_and_spread_or_shown_one_by_one(board_store: str) -> None:
    (board,) = made(board_store, filters=CIFAR).boards
    mart = board.entries[0]
    assert (mart.name, mart.count, mart.seeds) == ("MART", 2, ("0", "1"))
    assert mart.numbers["clean/aggregate"].value == pytest.approx(0.805)
    assert mart.spreads["clean/aggregate"] == pytest.approx(0.01 / np.sqrt(2))
    (single,) = made(board_store, filters=CIFAR, by_seed=True).boards
    assert len(single.entries) == 6 and {entry.count for entry in single.entries} == {1}
    assert any(note.startswith("n > 1") for note in board.notes) and not any(
        note.startswith("n > 1") for note in single.notes
    )


def test_the_worst_class_its_name_nrgc_and_intervals_stand_in_the_row(board_store: str) -> None:
    (board,) = made(board_store, filters=CIFAR, by_seed=True).boards
    assert board.lens == "pgd20/linf-0.03137"
    mart = next(entry for entry in board.entries if entry.name == "mart-0")
    assert mart.numbers[f"{board.lens}/wcr"].value == pytest.approx(0.45) and mart.worst[board.lens] == "cat"
    nrgc = mart.numbers[f"{board.lens}/nrgc"]
    assert nrgc.low < nrgc.value < nrgc.high


def test_settings_are_ranked_apart_unless_asked_for_and_then_a_note_says_so(board_store: str) -> None:
    result = made(board_store)
    assert [board.dataset for board in result.boards] == ["cifar10", "mnist"] and result.models == result.runs == 8
    assert [s.place for board in result.boards for s in board.standings] == [1, 2, 3, 1, 2]
    assert result.notes[0].startswith("2 boards: a row is ranked only among those of its data set")
    (first,) = made(board_store, together=True).boards
    assert (first.dataset, first.threat_model) == ("", "Linf 0.0313725") and len(first.entries) == 5
    assert first.notes[0] == "ranked together though they differ in dataset (cifar10; mnist)"


def test_a_row_that_lacks_a_metric_has_no_score_and_says_why(board_store: str) -> None:
    (first,) = made(board_store, together=True, choice=Choice("prbench")).boards
    unranked = {e.name: s.score.reason for e, s in zip(first.entries, first.standings, strict=True) if s.place is None}
    lacking = ", ".join(f"{name} not measured" for name in ("pr", "probacc", "ge_ar", "ge_pr", "time"))
    assert unranked == {"a": lacking, "b": lacking}
    assert any(note.startswith("2 of 5 rows have no score: a (pr not measured") for note in first.notes)
    mnist = made(board_store, choice=Choice("prbench")).boards[1]
    assert "not in the score, for no row has it: pr, probacc, ge_ar, ge_pr, time" in mnist.notes
    assert "not in the score, for all compared rows are equal in it: ar" in mnist.notes


def test_an_undefined_number_keeps_its_reason(board_store: str) -> None:
    (board,) = made(
        board_store, filters={"dataset": ("mnist",)}, choice=Choice(metrics=("acc", f"{SERIES[1]}/nrgc"))
    ).boards
    message = f"{SERIES[1]}/nrgc all scores are 0"
    assert [standing.score.reason for standing in board.standings] == [message, message]
    assert f"no row has a score: {message}" in board.notes


def test_the_front_and_who_is_not_separated(board_store: str) -> None:
    (board,) = made(board_store, filters=CIFAR, by_seed=True, choice=Choice(metrics=("acc",))).boards
    by_name = {e.name: (s.front, s.with_leader) for e, s in zip(board.entries, board.standings, strict=True)}
    assert (
        by_name["erm-1"] == (True, True) and by_name["erm-0"] == (False, True) and by_name["mart-1"] == (False, False)
    )


def test_the_front_is_drawn_over_the_metrics_chosen(board_store: str) -> None:
    def front(choice: Choice) -> set[str]:
        (board,) = made(board_store, filters=CIFAR, choice=choice).boards
        return {e.name for e, s in zip(board.entries, board.standings, strict=True) if s.front}

    assert front(Choice()) == {"ERM", "PGD", "MART"}
    assert front(Choice(metrics=("ar",))) == {"MART"}
    assert front(Choice(metrics=("acc", "time"))) == {"ERM"}  # of time, less is better
    assert front(Choice(metrics=("acc", "ar"), weights={"acc": 0})) == {"MART"}
    (board,) = made(board_store, filters=CIFAR, choice=Choice(preset="classes")).boards
    assert [key.rsplit("/", 1)[-1] for key in board.criteria] == ["aggregate", "aggregate", "wcr", "nrgc"]


def test_weights_change_the_order(board_store: str) -> None:
    (board,) = made(board_store, filters=CIFAR, choice=Choice(weights={"acc": 20.0})).boards
    assert board.entries[0].name == "ERM"
    (board,) = made(board_store, filters=CIFAR, choice=Choice(preset="classes")).boards
    assert [metric.name for metric in board.metrics if metric.weight] == ["acc", "ar", "worst", "nrgc"]


def test_published_rows_stand_among_the_others_marked(board_store: str, tmp_path: Path) -> None:
    metrics = dict(
        zip(("clean", SERIES[1], SERIES[2], "probacc/uniform-0.08", *PARTS), (83, 54, 97, 98, 16, 10, 33), strict=True)
    )
    row = {"dataset": "CIFAR-10", "method": "TRADES", "architecture": "ResNet-18", "metrics": metrics}
    file = {"schema_version": 1, "source": "x", "license": "MIT", "unit": "percent", "rows": [row]}
    (tmp_path / "p.json").write_text(json.dumps(file))
    result = made(board_store, imports=(str(tmp_path / "p.json"),))
    board = result.boards[0]
    entry, standing = next((e, s) for e, s in zip(board.entries, board.standings, strict=True) if e.source)
    assert entry.name == "TRADES ResNet-18" and standing.place is not None and standing.with_leader in (None, True)
    assert "1 published row, marked †, ranked among the audited ones" in board.notes
    assert result.notes[0].startswith("published: 1 row is from x (MIT)")


def test_measures_of_other_parameters_are_noted(
    migrated_store: Callable[[Path], str],
    board_audit: Callable[..., AuditResult],
    log_board: Callable[..., list[str]],
    tmp_path: Path,
) -> None:
    uri = migrated_store(tmp_path)
    series = {"clean": 0.9, "pgd20/linf-0.03137": 0.4}
    steps = (
        ["clean", {"name": "pgd", "step_size": 0.01}],
        ["clean", "pgd", {"name": "unheard of"}],
        [{"name": "clean"}, "pgd"],
    )
    for place, measures in enumerate(steps):
        log_board(board_audit(f"a{place}", {f"m{place}": ({}, series)}, epsilon=None, measures=measures), uri)
    (board,) = made(uri).boards
    assert "pgd20/linf-0.03137 was measured in different ways: step_size null or 0.01" in board.notes
    assert sum("different ways" in note for note in board.notes) == 1
    assert any(note.startswith("no threat model is declared") for note in board.notes)


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ({"method": ("TRADES",)}, "--filter method: expected one of 'ERM', 'MART', 'PGD', found 'TRADES'"),
        ({"nothing": ("x",)}, "--filter nothing: expected a key that runs have, found 'nothing'"),
        ({"method": ("ERM",), "dataset": ("mnist",)}, "none for method=ERM and dataset=mnist"),
    ],
)
def test_filters_that_leave_nothing_say_what_there_is(board_store: str, filters: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        made(board_store, filters=filters)
    assert message in str(caught.value)


def test_a_store_without_audits_says_how_to_get_some(migrated_store: Callable[[Path], str], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="at least one complete audited model, found none; run `classwise audit`"):
        made(migrated_store(tmp_path))


def run(*words: str) -> Any:
    return CliRunner().invoke(app, ["leaderboard", *words])


def test_the_command_prints_boards_and_writes_files(board_store: str, tmp_path: Path) -> None:
    names = {kind: str(tmp_path / f"rows.{kind}") for kind in ("csv", "parquet", "html")}
    options = [word for kind, path in names.items() for word in (f"--{kind}", path)]
    ran = run("--tracking-uri", board_store, *options)
    assert ran.exit_code == 0, ran.output
    assert all(text in ran.stdout for text in ("cifar10, Linf 0.0313725", "MART", "note: 2 boards", *names.values()))
    assert max(map(len, ran.stdout.splitlines()[:9])) <= 80
    rows = list(csv.DictReader(Path(names["csv"]).read_text().splitlines()))
    assert [row["name"] for row in rows] == ["MART", "PGD", "ERM", "a", "b"] and rows[0]["n"] == "2"
    assert pq.read_table(names["parquet"]).num_rows == 5
    assert "<!DOCTYPE html>" in Path(names["html"]).read_text()


def test_the_command_prints_json(board_store: str) -> None:
    ran = run(
        "--tracking-uri",
        board_store,
        "--experiment",
        "sweep",
        "--filter",
        "method=ERM",
        "--filter",
        "method=PGD",
        "--json",
    )
    body = json.loads(ran.stdout)
    assert [row["name"] for row in body["boards"][0]["rows"]] == ["ERM", "PGD"] and body["models"] == 4
    assert body["boards"][0]["rows"][0]["numbers"]["clean/aggregate"]["low"] is not None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--experiment", "swep"], "it has 'Default', 'digits', 'sweep'"),
        (["--metric", "pgd20/linf-0.3137"], "did you mean 'pgd20/linf-0.03137'?"),
        (["--weight", "acc=-1"], "--weight acc: expected a number of at least 0, found -1"),
        (["--weight", "acc=nan"], "found 'nan'"),
        (["--weight", "acc"], "expected NAME=NUMBER, found 'acc'"),
        (["--since", "someday"], "a date or time such as 2026-11-28, found 'someday'"),
        (["--since", "2999-01-01"], "none since then"),
        (["--import", "/none.json"], "no such file"),
        (["--csv", "/proc/none/x.csv"], "storage that can be written"),
    ],
)
def test_a_wrong_option_exits_2_with_one_clear_error(board_store: str, words: list[str], message: str) -> None:
    ran = run("--tracking-uri", board_store, *words)
    assert ran.exit_code == 2 and "1 problem" in ran.stderr and message in ran.stderr and "Traceback" not in ran.stderr


def test_an_unreachable_server_exits_2_in_seconds() -> None:
    begun = time.monotonic()
    ran = run("--tracking-uri", "http://127.0.0.1:9", "--json")
    assert ran.exit_code == 2 and time.monotonic() - begun < 20
    assert json.loads(ran.stdout)["error"] == "TrackingError"


def test_the_store_of_the_environment_is_the_default(board_store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", board_store)
    assert run("--filter", "dataset=mnist").exit_code == 0


@pytest.mark.slow
def test_two_hundred_models_of_two_audits_each(
    migrated_store: Callable[[Path], str],
    board_audit: Callable[..., AuditResult],
    log_board: Callable[..., list[str]],
    tmp_path: Path,
) -> None:
    uri = migrated_store(tmp_path)
    draw = np.random.default_rng(5)
    for place in range(2):
        models = {
            f"m{index:03d}": ({"method": f"k{index % 9}"}, {key: float(draw.uniform(0.1, 0.9)) for key in SERIES})
            for index in range(200)
        }
        log_board(board_audit(f"a{place}", models), uri)
    result = made(uri)
    (board,) = result.boards
    assert (result.runs, result.models, len(board.entries)) == (200, 200, 200)
    assert {entry.audits for entry in board.entries} == {("a1",)}
    assert sorted(standing.place for standing in board.standings) == list(range(1, 201))
