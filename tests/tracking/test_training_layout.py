"""Sweeps in MLflow as plain values, and on disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from services.errors import StorageError
from services.records import ThreatModel
from services.trials import DataFacts, EpochPoint, Shares, SweepResult, TrialResult
from tracking import training_bundle as bundle
from tracking.training_layout import CLASS_CURVES, curves, parent_content, sweep_content, sweep_rows, trial_content


def point(epoch: int, classes: int, *, held: bool = True) -> EpochPoint:
    per_class = tuple(None if k == 1 else k / classes for k in range(classes))
    judged = Shares(0.9, 0.5, 0.0, per_class)
    return EpochPoint(epoch, 1.0 / (epoch + 1), 0.1, 2.0, Shares(robust=0.6), judged if held else None)


def trial(classes: int = 4, **changes: object) -> TrialResult:
    names = tuple(f"kind {k}" for k in range(classes))
    data = DataFacts("cats", "mnist", "d" * 32, (5,) * classes, (1,) * classes, (1, 28, 28), names)
    result = TrialResult(
        name="pgd-cnn4-cats-s0",
        key="k" * 32,
        sweep="zoo",
        state="finished",
        reason="",
        method={"name": "pgd", "budget": {"epsilon": 0.3}},
        recipe={"epochs": 2, "seed": 0, "mean": None},
        architecture="cnn4",
        options={"width": 0.5},
        data=data,
        seed=0,
        epochs=2,
        selected=1,
        chosen=point(1, classes),
        seconds=4.0,
        weights="w",
        uri="factory:x:y?weights=w",
        threat_model=ThreatModel("Linf", 0.3),
        tags={"method": "pgd", "seed": "0"},
    )
    return replace(result, **changes)  # type: ignore[arg-type]


def sweep(*trials: TrialResult) -> SweepResult:
    return SweepResult("zoo", "a", "b", trials or (trial(),), {"sweep": "zoo"})


def test_a_trial_is_told_by_flat_parameters_tags_and_what_its_chosen_epoch_showed() -> None:
    content = trial_content(trial())
    assert content.params["method.budget.epsilon"] == "0.3" and content.params["architecture.width"] == "0.5"
    assert content.params["dataset.digest"] == "d" * 32 and content.params["seed"] == "0"
    assert "recipe.seed" not in content.params and "recipe.mean" not in content.params
    assert content.tags["classwise.role"] == "trial" and content.tags["classwise.tag.method"] == "pgd"
    assert content.tags["classwise.threat_model"] == "Linf 0.3"
    assert content.metrics["chosen/clean"] == 0.9 and content.metrics["chosen/epoch"] == 1.0


def test_every_epoch_has_its_step_and_undefined_values_are_left_out() -> None:
    values = list(curves(trial(), [point(0, 4), point(1, 4)]))
    steps = {key: [step for other, _, step in values if other == key] for key, _, _ in values}
    assert set(steps) == {
        *("train/loss", "train/robust", "rate", "seconds"),
        *("validation/clean", "validation/robust", "validation/worst_class"),
        *(f"validation/class/c00{k}_kind_{k}" for k in (0, 2, 3)),
    }
    assert all(found == [0, 1] for found in steps.values())
    alone = {key for key, _, _ in curves(trial(), [point(0, 4, held=False)])}
    assert not any(key.startswith("validation/") for key in alone)


def test_of_many_classes_the_worst_of_the_chosen_epoch_have_curves() -> None:
    many = CLASS_CURVES + 80
    keys = {key for key, _, _ in curves(trial(many), [point(0, many), point(1, many)]) if "/class/" in key}
    assert keys == {f"validation/class/c00{k}_kind_{k}" for k in (0, 2, 3, 4, 5)}


def test_the_parent_is_told_once_for_the_same_trials() -> None:
    one = sweep_content(sweep())
    assert one.metrics["trials/finished"] == 1.0 and one.params == {}
    assert one.tags["classwise.content"] == sweep_content(replace(sweep(), finished="later")).tags["classwise.content"]
    failed = sweep(trial(state="failed", chosen=None, selected=None, uri=""))
    assert sweep_content(failed).tags["classwise.content"] != one.tags["classwise.content"]
    assert parent_content("zoo").tags == {"classwise.sweep": "zoo", "classwise.role": "sweep"}
    assert sweep_rows(failed)[0] == {
        "trial": "pgd-cnn4-cats-s0",
        "state": "failed",
        "epochs": 2,
        "seconds": 4.0,
        "uri": "",
    }


@pytest.mark.parametrize(
    ("states", "outcome", "code"),
    [
        (("finished", "early-stop"), "finished", 0),
        (("finished", "diverged"), "diverged", 1),
        (("failed", "diverged"), "failed", 2),
    ],
)
def test_the_worst_trial_is_the_outcome(states: tuple[str, str], outcome: str, code: int) -> None:
    result = sweep(*(trial(state=state) for state in states))
    assert (result.outcome, result.exit_code) == (outcome, code)


def test_a_trial_and_a_sweep_come_back_from_disk_as_they_were(tmp_path: Path) -> None:
    folder, points = str(tmp_path / "t"), [point(0, 4), point(1, 4, held=False)]
    assert bundle.read_trial(folder) is None
    bundle.write_trial(trial(), points, folder)
    assert bundle.read_trial(folder) == trial() and list(bundle.read_curves(folder)) == points
    bundle.write_sweep(sweep(), str(tmp_path))
    assert bundle.is_sweep(str(tmp_path)) and bundle.read_sweep(str(tmp_path)) == sweep()
    bundle.write_trial(trial(), [], folder)
    assert bundle.read_curves(folder) == ()


def test_damaged_files_are_named_or_count_as_not_there(tmp_path: Path) -> None:
    (tmp_path / "trial.json").write_text("{")
    assert bundle.read_trial(str(tmp_path)) is None
    (tmp_path / "sweep.json").write_text('{"schema_version": 1}')
    with pytest.raises(StorageError, match=r"expected a result of classwise train, found \d+ validation errors"):
        bundle.read_sweep(str(tmp_path))
    (tmp_path / "sweep.json").write_text('{"schema_version": 99}')
    with pytest.raises(StorageError, match="schema_version up to 1, found 99; update classwise"):
        bundle.read_sweep(str(tmp_path))
    (tmp_path / "curves.parquet").write_bytes(b"PAR1")
    with pytest.raises(StorageError, match="the curves of a trial"):
        bundle.read_curves(str(tmp_path))
