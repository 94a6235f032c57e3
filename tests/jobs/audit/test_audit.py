"""The audit from end to end, on real networks: numbers against direct computation, the cache, faults, resumption."""

from __future__ import annotations

import json
import time
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobs.audit.audit import run_audit, validate_sources
from jobs.fleetfile.reading import validate_fleet
from jobs.terminal import stop
from jobs.terminal.progress import Quiet
from services.errors import ClasswiseError, DeadlinePassed, Interrupted, PreflightError, SourceError
from services.loading.samples.source import open_samples
from services.numerics.great import great_scores
from services.records import AUDIT_VERSION, Outcome, Receipt, SampleSpec
from services.storage.shards import read_shard
from tests.jobs.audit.finished import audit, direct_logits, npz_fleet, series
from tracking.bundle.bundle import read_bundle


def test_the_numbers_are_those_of_a_direct_computation(digits_fleet: dict[str, Any], digit_weights: Any) -> None:
    finished = audit(digits_fleet)
    assert not (Path(finished.folder) / "begun.json").exists()
    for name, weights in digit_weights.items():
        logits, labels = direct_logits(weights)
        scores = great_scores(logits, labels, temperature=1.0, activation="softmax").scores
        means = [float(scores[labels == k].mean()) for k in range(10)]
        keys = series(finished, name, "great-softmax")
        np.testing.assert_allclose([row.score.value for row in keys.groups], means, atol=1e-5)
        assert keys.metric("rdi").value == pytest.approx(max(means) - min(means), abs=1e-5)
        assert keys.worst == tuple(str(k) for k in range(10) if means[k] <= min(means) + 1e-12)
        weighted = sum(row.n * (row.score.value or 0.0) for row in keys.groups) / len(labels)
        assert keys.aggregate.value == pytest.approx(weighted, abs=1e-12)
        accuracy = float((logits.argmax(axis=1) == labels).mean())
        assert series(finished, name, "clean").aggregate.value == pytest.approx(accuracy, abs=1e-12)


def test_intervals_hold_their_estimates_and_the_bundle_holds_the_result(digits_fleet: dict[str, Any]) -> None:
    finished = audit(digits_fleet)
    assert read_bundle(finished.folder) == finished.result
    for model in finished.result.models:
        for result in model.series:
            for estimate in result.metrics.values():
                assert estimate.value is not None
                assert estimate.low is not None and estimate.low <= estimate.value
                assert estimate.high is not None and estimate.value <= estimate.high


def test_a_second_audit_runs_no_forward_pass_and_gives_the_same_tables(digits_fleet: dict[str, Any]) -> None:
    first, second = audit(digits_fleet), audit(digits_fleet)
    assert all(model.forwards > 0 for model in first.result.models)
    assert [model.forwards for model in second.result.models] == [0, 0, 0]
    assert [m.series for m in second.result.models] == [m.series for m in first.result.models]
    assert first.result.audit_id != second.result.audit_id


def test_a_second_audit_starts_no_worker(digits_fleet: dict[str, Any]) -> None:
    fleet = validate_fleet(digits_fleet)
    run_audit(fleet, Quiet())

    def never() -> Any:
        raise AssertionError("a runner was started")

    assert run_audit(fleet, Quiet(), runner=never).result.outcome is Outcome.PASS


def test_weights_under_another_name_are_not_audited_again_and_another_input_is(
    digits_fleet: dict[str, Any], digit_weights: dict[str, str]
) -> None:
    fewer = {**deepcopy(digits_fleet), "models": deepcopy(digits_fleet["models"][1:])}
    first = audit(fewer)
    changed = deepcopy(fewer)
    changed["models"][0]["uri"] = changed["models"][0]["uri"].replace(digit_weights["weak"], digit_weights["other"])
    same = audit(changed)
    assert [model.forwards for model in same.result.models] == [0, 0], "the other model has these weights"
    assert same.result.models[0].series == first.result.models[1].series
    changed["models"][0]["uri"] = changed["models"][0]["uri"].replace(digit_weights["other"], digit_weights["good"])
    assert [model.forwards > 0 for model in audit(changed).result.models] == [True, False]
    changed["models"][0]["input"] = {"range": [0.0, 0.9]}
    assert [model.forwards > 0 for model in audit(changed).result.models] == [True, False]


@pytest.mark.parametrize(("batch", "shard"), [(7, 300), (64, 97), (899, 899)])
def test_batch_and_shard_size_do_not_move_the_numbers(digits_fleet: dict[str, Any], batch: int, shard: int) -> None:
    reference = audit(digits_fleet)
    other = deepcopy(digits_fleet)
    other["storage"] += "-other"
    other["resources"].update(batch=batch, shard=shard)
    for each, two in zip(reference.result.models, audit(other).result.models, strict=True):
        for a, b in zip(each.series, two.series, strict=True):
            assert a.aggregate.value == pytest.approx(b.aggregate.value, abs=1e-6)
            assert a.metric("nrgc").value == pytest.approx(b.metric("nrgc").value, abs=1e-5)


class StopsAfter(Quiet):
    """Presses Ctrl-C after so many shards."""

    def __init__(self, shards: int) -> None:
        self.left = shards

    def done(self, receipt: Receipt) -> None:
        self.left -= receipt.task.kind == "logits"
        if self.left == 0:
            raise KeyboardInterrupt


def test_a_stopped_audit_goes_on_from_its_finished_shards(digits_fleet: dict[str, Any]) -> None:
    fleet = validate_fleet(digits_fleet)
    with pytest.raises(Interrupted, match=r"shards of [a-z0-9]* are kept; run the same command to resume"):
        run_audit(fleet, StopsAfter(4))
    resumed = run_audit(fleet, Quiet())
    assert sum(model.forwards for model in resumed.result.models) == 899 * 3 - (300 + 300 + 299) - 300
    whole = deepcopy(digits_fleet)
    whole["storage"] += "-whole"
    assert [m.series for m in resumed.result.models] == [m.series for m in audit(whole).result.models]


def test_an_audit_past_its_deadline_ends_with_its_shards_kept(digits_fleet: dict[str, Any]) -> None:
    late = deepcopy(digits_fleet)
    late["resources"]["deadline"] = 8

    class Slow(Quiet):
        def done(self, receipt: Receipt) -> None:
            while receipt.task.kind == "logits" and not stop.requested():
                time.sleep(0.05)

    with pytest.raises(DeadlinePassed, match=r"resources\.deadline.*finished shards"):
        run_audit(validate_fleet(late), Slow())
    resumed = run_audit(validate_fleet(digits_fleet), Quiet())
    assert 0 < sum(model.forwards for model in resumed.result.models) < 899 * 3
    assert not stop.requested()


def test_a_deadline_that_does_not_pass_changes_nothing(digits_fleet: dict[str, Any]) -> None:
    digits_fleet["resources"]["deadline"] = 600
    assert audit(digits_fleet).result.outcome


def test_a_shard_without_its_end_is_made_again(digits_fleet: dict[str, Any]) -> None:
    digits_fleet["temperature"] = {"policy": "class-accuracy"}
    before = audit(digits_fleet)
    for kind in ("scores", "logits", "curves"):
        path = next((Path(digits_fleet["storage"]) / "cache" / kind).rglob("*.parquet"))
        path.write_bytes(path.read_bytes()[:50])
    assert [m.series for m in audit(digits_fleet).result.models] == [m.series for m in before.result.models]


def test_a_damaged_shard_is_named_and_made_again_when_deleted(digits_fleet: dict[str, Any]) -> None:
    audit(digits_fleet)
    path = next((Path(digits_fleet["storage"]) / "cache" / "scores").rglob("*.parquet"))
    path.write_bytes(path.read_bytes()[:50] + b"PAR1")
    with pytest.raises(ClasswiseError, match="delete the file; the audit makes it again"):
        audit(digits_fleet)
    path.unlink()
    assert audit(digits_fleet).result.outcome is Outcome.PASS


def test_per_sample_scores_are_in_the_bundle(digits_fleet: dict[str, Any]) -> None:
    finished = audit(digits_fleet)
    table = read_shard(str(next((Path(finished.folder) / "scores").glob("000_*.parquet"))))
    assert len(table["id"]) == 899
    assert {"id", "label", "clean", "great-softmax", "clean:predicted", "great-softmax:saturated"} <= set(table)


# --- faults ------------------------------------------------------------------------------------------------------


def test_all_missing_files_are_told_before_anything_runs(digits_fleet: dict[str, Any]) -> None:
    for model in digits_fleet["models"][:2]:
        model["uri"] += ".none"
    with pytest.raises(SourceError) as caught:
        audit(digits_fleet)
    assert len(caught.value.problems) == 2
    assert not (Path(digits_fleet["storage"]) / "cache" / "logits").exists()


def test_radii_that_no_image_withstands_are_asked_about_before_anything_runs(digits_fleet: dict[str, Any]) -> None:
    digits_fleet["models"][0]["threat_model"] = {"norm": "L2", "epsilon": 128}
    digits_fleet["models"][1]["uri"] = "torchscript:gone.pt"
    digits_fleet["measures"] = ["clean", {"name": "pgd", "norm": "L2", "epsilons": [0.5, 3.9, 4]}]
    fleet = validate_fleet(digits_fleet)
    for look in (validate_sources, lambda inputs: run_audit(inputs, Quiet())):
        with pytest.raises(ClasswiseError) as caught:
            look(fleet)
        assert [problem.where for problem in caught.value.problems][:2] == [
            "models[0].threat_model.epsilon",
            "measures[1].epsilons",
        ]
        message = str(caught.value)
        assert "an L2 epsilon below 4, where every 1x8x8 image reaches uniform grey, found 128; meant" in message
        assert "128/255 = 0.502?" in message
        assert "gone.pt" in message and "found 3.9" not in message


def test_preflight_stops_the_audit_with_the_faults_of_all_models(digits_fleet: dict[str, Any]) -> None:
    digits_fleet["models"][0]["classes"] = [str(k) for k in (1, 0, *range(2, 10))]
    digits_fleet["models"][1]["clean_accuracy"] = 0.2
    with pytest.raises(PreflightError) as caught:
        audit(digits_fleet)
    text = str(caught.value)
    assert "good" in text
    assert "weak" in text
    assert not (Path(digits_fleet["storage"]) / "cache" / "logits").exists()


def test_a_faulty_model_is_left_out_when_the_fleet_says_so(digits_fleet: dict[str, Any]) -> None:
    digits_fleet["models"][0]["clean_accuracy"] = 0.2
    digits_fleet["on_model_fault"] = "skip"
    finished = audit(digits_fleet)
    assert [model.outcome for model in finished.result.models] == [Outcome.ERROR, Outcome.PASS, Outcome.PASS]
    assert "accuracy" in finished.result.models[0].reasons[0]
    assert finished.result.outcome is Outcome.ERROR


def test_an_unknown_group_column_is_told(digits_fleet: dict[str, Any]) -> None:
    digits_fleet["groups"] = ["sex"]
    with pytest.raises(SourceError, match="add a column 'sex'"):
        audit(digits_fleet)


class Replacing(Quiet):
    """Other pixels under the name of the samples, once the audit has looked at them."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def stage(self, name: str, shards: int, models: int) -> None:
        with np.load(self.path) as kept:
            arrays = dict(kept)
        arrays["images"] = arrays["images"][::-1]
        np.savez(self.path, **arrays)


def test_samples_that_are_replaced_while_it_runs_enter_no_cache(digits_fleet: dict[str, Any], tmp_path: Path) -> None:
    """The cache is everybody's: shards of other pixels under the samples' digest would be others' results."""
    fleet = npz_fleet(digits_fleet, tmp_path)
    path = Path(fleet["samples"]["uri"].removeprefix("npz:").partition("?")[0])
    with pytest.raises(ClasswiseError, match="the samples that the audit began with, found others"):
        run_audit(validate_fleet(fleet), Replacing(path))
    assert not list(Path(fleet["storage"]).glob("cache/**/*.parquet"))


def test_a_table_of_logits_is_audited_without_a_network(
    digits_fleet: dict[str, Any], digit_weights: dict[str, str], tmp_path: Path
) -> None:
    logits, _ = direct_logits(digit_weights["good"])
    np.savez(tmp_path / "box.npz", logits=logits, ids=open_samples(SampleSpec("sklearn:digits?split=test")).ids)
    boxed = {**digits_fleet, "models": [{"name": "box", "uri": f"logits:{tmp_path / 'box.npz'}"}]}
    result, wanted = series(audit(boxed), "box", "clean"), series(audit(digits_fleet), "good", "clean")
    assert [row.score.value for row in result.groups] == [row.score.value for row in wanted.groups]


def test_the_bundle_is_plain_json_without_nan(digits_fleet: dict[str, Any]) -> None:
    text = (Path(audit(digits_fleet).folder) / "bundle.json").read_text()

    def refuse(constant: str) -> float:
        raise AssertionError(constant)

    assert json.loads(text, parse_constant=refuse)["schema_version"] == AUDIT_VERSION


def test_measures_a_model_cannot_serve_are_told_before_any_work(
    digits_fleet: dict[str, Any], digit_weights: dict[str, str], tmp_path: Path
) -> None:
    logits, _ = direct_logits(digit_weights["good"])
    np.savez(tmp_path / "box.npz", logits=logits, ids=open_samples(SampleSpec("sklearn:digits?split=test")).ids)
    digits_fleet["models"].append({"name": "box", "uri": f"logits:{tmp_path / 'box.npz'}"})
    digits_fleet["measures"] = ["clean", {"name": "pgd", "epsilons": [0.02]}]
    with pytest.raises(PreflightError, match="box, pgd: expected a network to run, found a table of logits; leave pgd"):
        audit(digits_fleet)
    assert not (Path(digits_fleet["storage"]) / "cache" / "logits").exists()


def test_the_calibration_error_stands_in_facts_and_notes(digits_fleet: dict[str, Any], digit_weights: Any) -> None:
    digits_fleet |= {"measures": ["clean", "brier"], "models": digits_fleet["models"][:2]}
    finished = audit(digits_fleet)
    for model in read_bundle(finished.folder).models:
        logits, labels = direct_logits(digit_weights[model.spec.name])
        shares = np.exp(logits - logits.max(1, keepdims=True))
        shares /= shares.sum(1, keepdims=True)
        confidence, right = shares.max(1), logits.argmax(1) == labels
        place = np.minimum((confidence * 15).astype(int), 14)
        gaps = [abs(right[place == b].mean() - confidence[place == b].mean()) * (place == b).mean() for b in set(place)]
        found = model.facts["calibration_error"]
        assert found["value"] == pytest.approx(sum(gaps), abs=1e-6) and found["low"] <= found["value"] <= found["high"]
        assert any(note.startswith(f"expected calibration error {found['value']:.3f}") for note in model.notes)
