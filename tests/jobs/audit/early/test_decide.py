"""An audit that decides early, end to end on real networks: verdicts, samples, resumption, evidence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobs.audit.audit import Finished, run_audit
from jobs.comparison.comparable import incomparable
from jobs.comparison.comparable import measured as measured_by
from jobs.fleetfile.reading import validate_fleet
from jobs.terminal.progress import Quiet
from services.records import AuditResult, ModelResult, Outcome
from tracking.bundle.bundle import read_bundle
from tracking.bundle.scores import read_kept_scores
from tracking.bundle.words import early_words
from tracking.mlflow.layout import child_content

KEY = "pgd5/linf-0.02000"
PGD = {"name": "pgd", "steps": 5, "epsilons": [0.02]}
CLEAN = {"measure": "clean", "metric": "aggregate", "at_least": 0.7}
ATTACK = {"measure": KEY, "metric": "aggregate", "at_least": 0.6}


def audit(fleet: dict[str, Any], **changes: Any) -> Finished:
    return run_audit(
        validate_fleet({**fleet, "measures": ["clean", PGD], "gates": [CLEAN, ATTACK], **changes}), Quiet()
    )


def by_name(result: AuditResult) -> dict[str, ModelResult]:
    return {model.spec.name: model for model in result.models}


def measured(model: ModelResult, key: str = KEY) -> int | None:
    return next(each.measured for each in model.series if each.series.key == key)


@pytest.fixture
def early(digits_fleet: dict[str, Any]) -> Finished:
    return audit(digits_fleet, decide="early")


def test_a_verdict_from_part_of_the_samples_is_that_of_all_of_them(
    early: Finished, digits_fleet: dict[str, Any], tmp_path: Path
) -> None:
    whole = audit({**digits_fleet, "storage": str(tmp_path / "whole")})
    for name, full in by_name(whole.result).items():
        model = by_name(early.result)[name]
        assert model.outcome is full.outcome
        assert model.forwards < 0.7 * full.forwards
    good = by_name(early.result)["good"]
    part = measured(good)
    assert part is not None and 100 <= part < early.result.samples.count / 2
    series = next(each for each in good.series if each.series.key == KEY)
    assert sum(group.n for group in series.groups) == part and series.method == "anytime"
    assert any(f"{part} of {early.result.samples.count}" in note for note in good.notes)
    assert early.result == read_bundle(early.folder)


def test_a_model_that_fails_a_cheap_gate_is_not_attacked(early: Finished) -> None:
    weak = by_name(early.result)["weak"]
    assert weak.outcome is Outcome.FAIL and [gate.outcome for gate in weak.gates] == [Outcome.FAIL, Outcome.UNDECIDED]
    assert [each.series.key for each in weak.series] == ["clean"]
    assert "not measured" in weak.gates[1].reason


def test_complete_decides_the_other_gates_of_a_model_that_failed(digits_fleet: dict[str, Any]) -> None:
    finished = audit({**digits_fleet, "models": digits_fleet["models"][1:2]}, decide="early", early={"complete": True})
    (weak,) = finished.result.models
    assert [gate.outcome for gate in weak.gates] == [Outcome.FAIL, Outcome.FAIL]


def test_the_same_audit_again_runs_nothing_and_a_full_one_goes_on_from_it(
    early: Finished, digits_fleet: dict[str, Any], tmp_path: Path
) -> None:
    again = audit(digits_fleet, decide="early")
    assert [model.forwards for model in again.result.models] == [0, 0, 0]
    assert [model.gates for model in again.result.models] == [model.gates for model in early.result.models]
    on, fresh = audit(digits_fleet), audit({**digits_fleet, "storage": str(tmp_path / "fresh")})
    for index, model in enumerate(on.result.models):
        spec, other = model.spec, fresh.result.models[index]
        assert model.forwards < other.forwards
        assert [each.metrics for each in model.series] == [each.metrics for each in other.series]
        kept, alone = read_kept_scores(on.folder, index, spec), read_kept_scores(fresh.folder, index, spec)
        assert kept.keys() == alone.keys()
        for name, values in alone.items():
            np.testing.assert_allclose(kept[name], values, atol=1e-5, err_msg=name)
    last = audit(digits_fleet, decide="early")
    assert sum(model.forwards for model in last.result.models) == 0


def test_scores_that_were_not_measured_are_in_no_comparison(early: Finished) -> None:
    model = early.result.models[0]
    whole = read_kept_scores(early.folder, 0, model.spec)
    part = read_kept_scores(early.folder, 0, model.spec, ["id", "label", KEY])
    assert len(whole["id"]) == early.result.samples.count and len(part["id"]) == measured(model)
    assert np.isnan(whole[KEY]).sum() == len(whole["id"]) - len(part["id"]) and not np.isnan(part[KEY]).any()


def test_measures_that_no_gate_needs_come_last_or_not_at_all(digits_fleet: dict[str, Any]) -> None:
    fleet = {**digits_fleet, "models": digits_fleet["models"][:1]}
    changes: dict[str, Any] = {"measures": ["clean", {**PGD, "steps": 2}, PGD], "decide": "early"}
    (model,) = audit(fleet, **changes, early={"only": "gates"}).result.models
    assert {each.series.key for each in model.series} == {"clean", KEY}
    (model,) = audit(fleet, **changes).result.models
    assert measured(model, "pgd2/linf-0.02000") is None and model.outcome is Outcome.PASS


def test_a_worst_class_is_cleared_class_by_class(digits_fleet: dict[str, Any]) -> None:
    fleet = {**digits_fleet, "models": digits_fleet["models"][:1]}
    gate = {"measure": KEY, "metric": "wcr", "at_least": 0.6}
    (model,) = audit(fleet, gates=[gate], decide="early").result.models
    series = next(each for each in model.series if each.series.key == KEY)
    assert model.outcome is Outcome.PASS and len({group.n for group in series.groups}) > 1


def test_an_attack_that_cannot_move_passes_no_gate(digits_fleet: dict[str, Any], digit_weights: dict[str, str]) -> None:
    uri = f"factory:benchmarks.defences:defended?file={digit_weights['good']}&defence=permuted"
    fleet = {**digits_fleet, "models": [{"name": "masked", "uri": uri}], "factories": ["benchmarks.*"]}
    (model,) = audit(fleet, decide="early").result.models
    assert [gate.outcome for gate in model.gates] == [Outcome.PASS, Outcome.UNDECIDED]
    assert model.attacks[0].adequacy == "inadequate" and measured(model) is not None


def test_a_class_without_samples_is_never_a_pass(digits_fleet: dict[str, Any], tmp_path: Path) -> None:
    from services.loading.samples.source import open_samples
    from services.records import SampleSpec

    samples = open_samples(SampleSpec("sklearn:digits?split=test"))
    kept = samples.labels != 7
    images = (samples.images(0, len(samples))[kept, 0] * 255).round().astype(np.uint8)
    names = np.array([str(k) for k in range(10)])
    np.savez(tmp_path / "nine.npz", images=images, labels=samples.labels[kept], classes=names)
    fleet = {**digits_fleet, "models": digits_fleet["models"][:1], "samples": {"uri": f"npz:{tmp_path / 'nine.npz'}"}}
    gate = {"measure": KEY, "metric": "wcr", "at_least": 0.1}
    (model,) = audit(fleet, gates=[gate], decide="early").result.models
    assert model.outcome is Outcome.UNDECIDED and "7" in model.gates[0].reason


def test_gates_by_an_attribute_and_comparisons_wait_for_all_samples(digits_fleet: dict[str, Any]) -> None:
    fleet = {**digits_fleet, "models": digits_fleet["models"][:1]}
    gate = {"measure": KEY, "metric": "aggregate", "not_worse_than": "accepted"}
    (model,) = audit(fleet, gates=[gate], decide="early").result.models
    assert measured(model) is None and model.outcome is Outcome.UNDECIDED


def test_a_probe_that_breaks_what_the_attack_left_costs_samples_and_not_the_verdict(
    digits_fleet: dict[str, Any],
) -> None:
    """Small steps leave what a probe breaks: the limit has to clear the threshold by that, as in a full audit."""
    weak = {"name": "pgd", "steps": 5, "step_size": 0.015, "epsilons": [0.1]}
    gate = {"measure": "pgd5/linf-0.10000", "metric": "aggregate", "at_least": 0.5}
    fleet = {**digits_fleet, "models": digits_fleet["models"][:1]}
    full, early = (audit(fleet, measures=["clean", weak], gates=[gate], decide=how) for how in ("full", "early"))
    outcomes = [finished.result.models[0].outcome for finished in (full, early)]
    assert outcomes == [Outcome.PASS, Outcome.PASS]
    low = early.result.models[0].gates[0].estimate.low
    assert low is not None and low > 0.55


def test_what_was_decided_early_is_said_and_is_not_compared(early: Finished, digits_fleet: dict[str, Any]) -> None:
    full = audit(digits_fleet)
    assert "decided early" in incomparable(measured_by(early.result, 0), measured_by(full.result, 0), KEY)
    assert not incomparable(measured_by(early.result, 0), measured_by(full.result, 0), "clean")
    good = by_name(early.result)["good"]
    assert child_content(early.result, 0).metrics[f"{KEY}/measured"] == measured(good)
    assert any(f"good on {measured(good)}" in sentence for sentence in early_words(early.result))
    assert list(early_words(full.result)) == []
