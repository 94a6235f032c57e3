"""Groups, temperatures and gates of whole audits, and what a later audit is compared with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobs.audit.audit import run_audit
from jobs.fleetfile.reading import validate_fleet
from jobs.terminal.progress import Quiet
from services.errors import StorageError
from services.records import Outcome, Receipt, ShardTask, TaskFailure
from services.running.runners import LocalRunner
from services.running.workers import Worker
from tests.jobs.audit.finished import audit, npz_fleet, series


def test_groups_besides_the_class(digits_fleet: dict[str, Any], tmp_path: Path) -> None:
    data = {**npz_fleet(digits_fleet, tmp_path), "groups": ["ink"]}
    finished = audit(data)
    by_ink = series(finished, "good", "clean", "ink")
    assert [(row.name, row.n) for row in by_ink.groups] == [("bold", 447), ("thin", 452)]
    by_class = series(finished, "good", "clean")
    assert by_ink.aggregate == by_class.aggregate


def test_a_class_without_samples_is_undefined_and_counted(digits_fleet: dict[str, Any], tmp_path: Path) -> None:
    finished = audit(npz_fleet(digits_fleet, tmp_path, without=3))
    keys = series(finished, "good", "clean")
    assert keys.missing == ("3",)
    assert keys.groups[3].score.value is None
    assert keys.groups[3].score.reason == "no samples"
    assert "1 of 10 groups are undefined" in " ".join(keys.notes)
    assert keys.wcr.value == min(row.score.value for row in keys.groups if row.score.value is not None)


def test_the_calibrated_temperature_reaches_the_scores(digits_fleet: dict[str, Any]) -> None:
    digits_fleet["temperature"] = {"policy": "class-accuracy", "low": 0.2, "high": 4.0, "step": 0.1, "fine_step": 0.05}
    finished = audit(digits_fleet)
    chosen = finished.result.calibration.temperature
    low, high = finished.result.calibration.resampled or (4.0, 0.2)
    assert 0.2 <= low <= high <= 4.0, "where other samples would have chosen"
    assert chosen is not None
    assert finished.result.calibration.plateau is not None
    assert f"T={chosen:g}" in series(finished, "good", "great-softmax").series.title
    again = audit(digits_fleet)
    assert again.result.calibration == finished.result.calibration
    assert [model.forwards for model in again.result.models] == [0, 0, 0]


class Backwards(LocalRunner):
    """Workers that are done in the opposite order."""

    def run(self, tasks: Sequence[ShardTask]) -> Iterator[Receipt | TaskFailure]:
        yield from reversed(list(super().run(tasks)))


def test_the_curves_do_not_depend_on_who_is_done_first(digits_fleet: dict[str, Any]) -> None:
    digits_fleet["temperature"] = {"policy": "class-accuracy", "low": 0.2, "high": 4.0, "step": 0.2, "fine_step": 0.1}
    digits_fleet["samples"]["limit"] = 240
    digits_fleet["resources"]["shard"] = 40
    curves: list[dict[str, bytes]] = []
    for runner in (LocalRunner, Backwards):
        data = {**digits_fleet, "storage": f"{digits_fleet['storage']}-{runner.__name__}"}
        worker = Worker("cpu", 1, ("services.training.*",))
        run_audit(validate_fleet(data), Quiet(), runner=partial(runner, worker))
        curves.append({path.name: path.read_bytes() for path in Path(data["storage"]).glob("cache/curves/*/*")})
    assert len(curves[0]) == 3
    assert curves[0] == curves[1]


def test_a_fleet_too_small_to_calibrate_says_so_and_uses_the_fallback(digits_fleet: dict[str, Any]) -> None:
    digits_fleet["models"] = digits_fleet["models"][:2]
    digits_fleet["temperature"] = {"policy": "fleet-accuracy", "value": 1.5}
    finished = audit(digits_fleet)
    assert finished.result.calibration.temperature == 1.5
    assert "at least 3" in finished.result.calibration.reason
    assert any("No temperature could be chosen" in note for note in finished.result.notes)


def test_gates_decide_each_model_and_the_fleet(digits_fleet: dict[str, Any]) -> None:
    digits_fleet["gates"] = [
        {"measure": "clean", "metric": "aggregate", "at_least": 0.9},
        {"measure": "clean", "metric": "rdi", "at_most": 0.9},
    ]
    finished = audit(digits_fleet)
    outcomes = {model.spec.name: model.outcome for model in finished.result.models}
    assert outcomes["good"] is Outcome.PASS
    assert outcomes["weak"] is Outcome.FAIL
    assert finished.result.outcome is Outcome.FAIL


def test_not_worse_than_the_last_audit_is_tested_on_paired_samples(
    digits_fleet: dict[str, Any], digit_weights: dict[str, str]
) -> None:
    audit(digits_fleet)
    gate = {"measure": "clean", "metric": "aggregate", "not_worse_than": "last", "margin": 0.02}
    same = audit({**digits_fleet, "gates": [gate]})
    assert [model.outcome for model in same.result.models] == [Outcome.PASS] * 3
    assert same.result.compared_with
    worse = deepcopy(digits_fleet)
    worse["models"][0]["uri"] = worse["models"][0]["uri"].replace(digit_weights["good"], digit_weights["weak"])
    judged = audit({**worse, "gates": [gate]}).result.models[0]
    assert judged.outcome is Outcome.FAIL
    assert judged.gates[0].estimate.value is not None
    assert judged.gates[0].estimate.value < -0.02


def test_nothing_is_no_worse_under_an_inadequate_attack_but_what_is_the_same(
    digits_fleet: dict[str, Any], digit_weights: dict[str, str]
) -> None:
    def models(weights: str) -> list[dict[str, Any]]:
        uri = f"factory:benchmarks.defences:defended?file={digit_weights[weights]}&defence=detached"
        return [{"name": "masked", "uri": uri}]

    pgd = {"name": "pgd", "epsilons": [0.1], "steps": 3}
    fleet = {**digits_fleet, "factories": ["benchmarks.*"], "measures": ["clean", pgd], "models": models("good")}
    fleet["samples"] = {**digits_fleet["samples"], "limit": 200}
    first = audit(fleet).result
    assert first.models[0].attacks[0].adequacy == "inadequate"
    gate = {"measure": "pgd3/linf-0.10000", "metric": "aggregate", "not_worse_than": first.audit_id, "margin": 0.9}
    (same,) = audit({**fleet, "gates": [gate]}).result.models[0].gates
    assert same.outcome is Outcome.PASS and same.reason.startswith("unchanged: the same weights")
    (other,) = audit({**fleet, "models": models("weak"), "gates": [gate]}).result.models[0].gates
    assert other.outcome is Outcome.UNDECIDED and "at least half of the input gradients were exactly" in other.objected


def test_a_score_that_was_measured_otherwise_is_not_compared(digits_fleet: dict[str, Any]) -> None:
    audit(digits_fleet)
    gate = {"measure": "great-softmax", "metric": "aggregate", "not_worse_than": "last"}
    hotter = ["clean", {"name": "great", "activation": "softmax", "temperature": 3.0}]
    finished = audit({**digits_fleet, "measures": hotter, "gates": [gate]})
    assert finished.result.outcome is Outcome.ERROR
    assert "measured otherwise: GREAT score (softmax, T=1)" in finished.result.models[0].reasons[0]


def test_samples_that_were_replaced_under_their_ids_are_not_compared(
    digits_fleet: dict[str, Any], tmp_path: Path
) -> None:
    data = npz_fleet(digits_fleet, tmp_path)
    audit(data)
    with np.load(tmp_path / "d.npz") as kept:
        turned = {name: kept[name] if name == "classes" else kept[name][::-1] for name in kept.files}
    np.savez(tmp_path / "d.npz", **turned)
    gate = {"measure": "clean", "metric": "aggregate", "not_worse_than": "last"}
    finished = audit({**data, "gates": [gate]})
    assert finished.result.outcome is Outcome.ERROR
    assert "the samples have changed" in finished.result.models[0].reasons[0]


def test_an_unreadable_last_audit_is_told_before_any_work(digits_fleet: dict[str, Any]) -> None:
    finished = audit(digits_fleet)
    (Path(finished.folder) / "bundle.json").write_text("{")
    gate = {"measure": "clean", "metric": "aggregate", "not_worse_than": "last"}
    other = {**digits_fleet, "gates": [gate], "seed": 1, "resources": {**digits_fleet["resources"], "shard": 7}}
    with pytest.raises(StorageError, match="JSON"):
        run_audit(validate_fleet(other), Quiet(), runner=lambda: pytest.fail("a runner was started"))


def test_a_gate_against_an_audit_that_is_not_there_is_an_error(digits_fleet: dict[str, Any]) -> None:
    gate = {"measure": "clean", "metric": "aggregate", "not_worse_than": "20200101T000000Z-00000000"}
    finished = audit({**digits_fleet, "gates": [gate]})
    assert finished.result.outcome is Outcome.ERROR
    assert "there is no audit" in finished.result.models[0].reasons[0]


def test_samples_that_changed_under_one_name_are_not_paired(digits_fleet: dict[str, Any], tmp_path: Path) -> None:
    data = npz_fleet(digits_fleet, tmp_path)
    audit(data)
    gate = {"measure": "clean", "metric": "aggregate", "not_worse_than": "last"}
    npz_fleet(digits_fleet, tmp_path, without=3)
    result = audit({**data, "gates": [gate]}).result.models[0]
    assert result.outcome is Outcome.ERROR
    assert "the samples have changed" in result.reasons[0]


def test_a_new_grouping_column_runs_no_network_again(digits_fleet: dict[str, Any], tmp_path: Path) -> None:
    data = npz_fleet(digits_fleet, tmp_path)
    audit(data)
    again = audit({**data, "groups": ["ink"]})
    assert [model.forwards for model in again.result.models] == [0, 0, 0]
    assert {result.grouping for result in again.result.models[0].series} == {"class", "ink"}
