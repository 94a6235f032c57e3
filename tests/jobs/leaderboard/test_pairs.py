"""Rows separated by pairs of samples: from real audits, and from bundles whose numbers are known."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobs.audit.audit import run_audit
from jobs.fleetfile.reading import validate_fleet
from jobs.leaderboard.leaderboard import Request, make_leaderboard
from jobs.leaderboard.presets import Choice
from jobs.terminal.progress import Quiet
from services.records import AuditResult, Estimate, SeriesResult
from tracking.bundle.bundle import folder_of, write_bundle
from tracking.bundle.scores import write_scores
from tracking.leaderboard.rows import Board

pytestmark = pytest.mark.filterwarnings("default::DeprecationWarning", "default::FutureWarning")

N = 600
LABELS = np.arange(N) % 3


def rights(seed: int, rate: float, *, of: np.ndarray | None = None, more: float = 0.0) -> np.ndarray:
    """Which samples are right: at random, or those of another network and a share more."""
    draws = np.random.default_rng(seed).random(N)
    return draws < rate if of is None else of | (draws < more)


def networks() -> dict[str, np.ndarray]:
    """Two methods by two seeds, the better one right wherever the other is; and a third, about as good as the first."""
    base = [rights(seed, 0.7) for seed in (0, 1)]
    better = [rights(seed + 10, 0, of=base[seed], more=0.1) for seed in (0, 1)]
    other = [rights(seed + 20, 0.68) for seed in (0, 1)]
    named = {"base": base, "better": better, "other": other}
    return {f"{name}-{seed}": right for name, pair in named.items() for seed, right in enumerate(pair)}


@pytest.fixture(scope="module")
def audited(
    tmp_path_factory: pytest.TempPathFactory,
    migrated_store: Callable[[Path], str],
    log_board: Callable[..., list[str]],
) -> tuple[str, str]:
    """A store and a storage of a real audit of tables of logits."""
    folder = tmp_path_factory.mktemp("pairs")
    uri = migrated_store(folder)
    images = np.random.default_rng(9).integers(0, 256, (N, 4, 4, 1), dtype=np.uint8)
    np.savez(folder / "s.npz", images=images, labels=LABELS, classes=np.array(["ant", "bee", "cat"]))
    entries = []
    for name, right in networks().items():
        logits = np.where(right[:, None], np.eye(3)[LABELS], np.eye(3)[(LABELS + 1) % 3]) * 4.0 - 2.0
        np.savez(folder / f"{name}.npz", logits=logits)
        method, seed = name.split("-")
        tags = {"method": method, "architecture": "cnn", "dataset": "toy", "seed": seed}
        entries.append({"name": name, "uri": f"logits:{folder / name}.npz", "tags": tags})
    fleet = {
        "fleet": "toy",
        "samples": {"uri": f"npz:{folder / 's.npz'}"},
        "models": entries,
        "measures": ["clean"],
        "storage": str(folder / "runs"),
        "tracking": {"enabled": False, "figures": False},
        "resources": {"runner": "local", "workers": 1, "shard": N},
        "gallery": "none",
    }
    log_board(run_audit(validate_fleet(fleet), Quiet()).result, uri)
    return uri, str(folder / "runs")


def board(uri: str, storage: str | None, **choice: Any) -> Board:
    (made,) = make_leaderboard(Request(tracking_uri=uri, choice=Choice(**choice), storage=storage)).boards
    return made


def standings(made: Board) -> dict[str, tuple[bool | None, tuple[int, int] | None]]:
    pairs = zip(made.entries, made.standings, strict=True)
    return {entry.name: (standing.with_leader, standing.between) for entry, standing in pairs}


def test_rows_trained_twice_are_separated_by_the_samples_they_share(audited: tuple[str, str]) -> None:
    uri, storage = audited
    ranges, pairs = (standings(board(uri, each, metrics=("acc",))) for each in (None, storage))
    assert {mark for mark, _ in ranges.values()} == {True} and {place for _, place in ranges.values()} == {(1, 3)}
    assert pairs["better"] in ((True, (1, 1)), (True, (1, 2))) and pairs["base"] == (False, (2, 3))
    assert standings(board(uri, storage, preset="classes"))["base"][1] == (2, 3)
    notes = board(uri, storage, preset="classes").notes
    assert any("places and = are by pairs of the shared samples" in note and "of 3 pairs" in note for note in notes)


def test_a_storage_without_the_audits_says_so_and_leaves_the_ranges(audited: tuple[str, str], tmp_path: Path) -> None:
    uri, _ = audited
    made = board(uri, str(tmp_path), preset="classes")
    assert standings(made) == standings(board(uri, None, preset="classes"))
    assert any(note.startswith("rows are not separated by pairs: audit 20") for note in made.notes)


def test_a_bundle_that_cannot_be_read_costs_the_pairs_and_not_the_board(
    audited: tuple[str, str], tmp_path: Path
) -> None:
    uri, storage = audited
    shutil.copytree(storage, tmp_path / "damaged")
    for file in (tmp_path / "damaged" / "audits").rglob("bundle.json"):
        file.write_text('{"schema_version": 99}')
    made = board(uri, str(tmp_path / "damaged"), preset="classes")
    assert standings(made) == standings(board(uri, None, preset="classes"))
    assert any("by pairs: audit 20" in note and "cannot be read" in note for note in made.notes), made.notes


def written(result: AuditResult, storage: str, scores: dict[str, dict[str, np.ndarray]]) -> None:
    folder = folder_of(storage, result.fleet, result.audit_id)
    for index, model in enumerate(result.models):
        own = scores[model.spec.name]
        write_scores(folder, index, model.spec, {"id": np.arange(N), "label": LABELS, **own})
    write_bundle(result, folder)


def conditional(result: AuditResult, key: str) -> AuditResult:
    """The audit with that series over what is classified correctly, as `pr` is."""

    def changed(part: SeriesResult) -> SeriesResult:
        return replace(part, series=replace(part.series, conditional=True)) if part.series.key == key else part

    models = (replace(model, series=tuple(map(changed, model.series))) for model in result.models)
    return replace(result, models=tuple(models))


@pytest.mark.slow
def test_conditional_series_and_generalisation_errors_are_resampled_too(
    board_audit: Callable[..., AuditResult],
    log_board: Callable[..., list[str]],
    migrated_store: Callable[[Path], str],
    tmp_path: Path,
) -> None:
    uri, storage, key = migrated_store(tmp_path), str(tmp_path / "runs"), "pr/uniform-0.08"
    rng, models, gaps, kept = np.random.default_rng(5), {}, {}, {}
    for name, right in networks().items():
        shares, train = 0.8 + 0.2 * rng.random(N), 0.85 + 0.15 * rng.random(N)
        values = {"clean": float(right.mean()), key: float(shares[right].mean())}
        method, seed = name.split("-")
        models[name] = ({"method": method, "architecture": "cnn", "dataset": "toy", "seed": seed}, values)
        gaps[name] = {key: Estimate(float(train.mean() - values[key]))}
        kept[name] = (
            {"clean": right * 1.0, key: shares, f"{key}:correct": right * 1.0},
            {
                key: train,
                f"{key}:correct": np.ones(N),
            },
        )
    test = board_audit("2026-a", models, fleet="toy", gaps=gaps, seconds=dict.fromkeys(models, 2.0))
    tagged = {name: ({**tags, "split": "train"}, {key: 0.9}) for name, (tags, _) in models.items()}
    train = board_audit("2026-b", tagged, fleet="toy-train", digest="77" * 16)
    for result, place in ((conditional(test, key), 0), (conditional(train, key), 1)):
        log_board(result, uri)
        written(result, storage, {name: parts[place] for name, parts in kept.items()})
    boards = make_leaderboard(Request(tracking_uri=uri, choice=Choice("prbench"), storage=storage)).boards
    made = next(board for board in boards if not board.split)
    assert [metric.name for metric in made.metrics if metric.weight] == ["acc", "pr", "ge_pr", "time"]
    assert any("places and = are by pairs" in note for note in made.notes), made.notes
    assert None not in {standing.between for standing in made.standings}
    write_scores(
        folder_of(storage, "toy", "2026-a"),
        0,
        test.models[0].spec,
        {"id": np.arange(N), "label": LABELS, "clean": np.ones(N)},
    )
    boards = make_leaderboard(Request(tracking_uri=uri, choice=Choice(metrics=("acc",)), storage=storage)).boards
    assert any("acc of the bundle is not that of the run" in note for note in boards[0].notes)
