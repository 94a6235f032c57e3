"""Sweeps in MLflow as plain values, and on disk."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from services.errors import StorageError
from services.records import Estimate, ThreatModel
from services.records.trials import DataFacts, EpochPoint, FactorGap, MapperFacts, Shares, SweepResult, TrialResult
from tracking.bundle import training_bundle as bundle
from tracking.mlflow.training_layout import (
    CLASS_CURVES,
    curves,
    parent_content,
    sweep_content,
    sweep_rows,
    trial_content,
)


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
    assert all(each == [0, 1] for each in steps.values())
    alone = {key for key, _, _ in curves(trial(), [point(0, 4, held=False)])}
    assert not any(key.startswith("validation/") for key in alone)


def test_of_many_classes_the_worst_of_the_chosen_epoch_have_curves() -> None:
    many = CLASS_CURVES + 80
    keys = {key for key, _, _ in curves(trial(many), [point(0, many), point(1, many)]) if "/class/" in key}
    assert keys == {f"validation/class/c00{k}_kind_{k}" for k in (0, 2, 3, 4, 5)}


def mapper_trial(**changes: object) -> TrialResult:
    gaps = {"slant": FactorGap(Estimate(0.4), 9), "width": FactorGap(Estimate(None, reason="does not vary"), None)}
    facts = MapperFacts(
        0.02, 17.0, 0.4, 50, 10, 8, Estimate(0.4), gaps, {9: "slant"}, {"slant": (5.0, 12.0)}, "generator:x:y?n=10"
    )
    method = {"name": "conditional_gan", "conditions": ["slant"], "factors": ["slant", "width"]}
    last = EpochPoint(1, 0.5, 0.01, 2.0, Shares(), explained=0.4, parts={"critic": 1.25})
    other = {"kind": "mapper", "mapper": facts, "method": method, "chosen": last, "threat_model": None}
    return trial(**{**other, "architecture": "conditional_gan", "reason": "does not reconstruct", **changes})  # type: ignore[arg-type]


def test_a_mapper_is_told_by_its_reconstruction_its_latents_and_its_gaps() -> None:
    result = mapper_trial()
    content = trial_content(result)
    assert content.params["mapper.name"] == "conditional_gan" and content.params["mapper.width"] == "0.5"
    assert not any(key.startswith(("method.", "architecture.")) for key in content.params)
    assert content.tags["classwise.kind"] == "mapper" and content.tags["classwise.faithful"] == "false"
    assert content.tags["classwise.names"] == '{"9": "slant"}'
    assert content.tags["classwise.generator"] in content.tags["mlflow.note.content"]
    wanted = {"reconstruction/mse": 0.02, "reconstruction/psnr": 17.0, "reconstruction/explained": 0.4}
    wanted |= {"latents/all": 10.0, "latents/active": 8.0, "mig/mean": 0.4, "mig/slant": 0.4}
    assert {key: content.metrics.get(key) for key in wanted} == wanted and "mig/width" not in content.metrics
    assert result.chosen is not None
    assert {key: value for key, value, step in curves(result, [result.chosen]) if step == 1} == {
        "train/loss": 0.5,
        "train/critic": 1.25,
        "validation/explained": 0.4,
        "rate": 0.01,
        "seconds": 2.0,
    }
    row = sweep_rows(sweep(result))[0]
    assert (row["explained"], row["reason"]) == (0.4, "does not reconstruct") and "clean" not in row
    assert trial_content(trial()).tags["classwise.kind"] == "network"
    assert "classwise.faithful" not in trial_content(trial()).tags


def test_a_mapper_comes_back_from_disk_and_files_of_before_there_were_any_are_read(tmp_path: Path) -> None:
    folder, result = str(tmp_path / "m"), mapper_trial()
    assert result.chosen is not None
    bundle.write_trial(result, [result.chosen], folder)
    assert bundle.read_trial(folder) == result and bundle.read_curves(folder) == (result.chosen,)
    bundle.write_trial(trial(), [point(0, 4)], folder)
    path = tmp_path / "m" / "trial.json"
    raw = json.loads(path.read_text())
    del raw["kind"], raw["mapper"], raw["chosen"]["explained"], raw["chosen"]["parts"]
    path.write_text(json.dumps(raw))
    table = tmp_path / "m" / "curves.parquet"
    pq.write_table(pq.read_table(table).drop_columns(["explained", "parts"]), table)
    assert bundle.read_trial(folder) == trial() and bundle.read_curves(folder) == (point(0, 4),)


def test_the_parent_is_told_once_for_the_same_trials() -> None:
    first = sweep_content(sweep())
    assert first.metrics["trials/finished"] == 1.0 and first.params == {}
    assert (
        first.tags["classwise.content"] == sweep_content(replace(sweep(), finished="later")).tags["classwise.content"]
    )
    failed = sweep(trial(state="failed", chosen=None, selected=None, uri=""))
    assert sweep_content(failed).tags["classwise.content"] != first.tags["classwise.content"]
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
