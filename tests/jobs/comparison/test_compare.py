"""Real audits of the digits fleet compared: what is worse, what cannot be compared, what else changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobs.audit.audit import Finished
from jobs.comparison.comparable import measured as comparable
from jobs.comparison.comparable import unchanged
from jobs.comparison.compare import Kept, compare
from jobs.comparison.drift import drift
from services.loading.samples.source import open_samples
from services.records import ModelResult, SampleSpec
from tracking.bundle.comparison import Comparison, SeriesChange
from tracking.bundle.scores import read_kept_scores, write_scores

from .conftest import audit, kept, measured


def one(found: Comparison, model: str, series: str) -> SeriesChange:
    mine = next(each for each in found.models if each.name == model)
    return next(each for each in mine.series if each.series == series)


@pytest.fixture
def good(digits_fleet: dict[str, Any]) -> Finished:
    return audit(measured(digits_fleet, "good", "other"))


def test_an_unchanged_fleet_is_not_worse(digits_fleet: dict[str, Any], good: Finished) -> None:
    comparison = compare(kept(good), kept(audit(measured(digits_fleet, "good", "other"))))
    assert (comparison.worse, comparison.better, comparison.not_comparable, comparison.drift) == (0, 0, 0, ())
    assert comparison.comparisons == 2 * 2 * 11 and comparison.left_out == 0
    clean = one(comparison, "good", "clean")
    assert clean.overall is not None and clean.overall.difference.value == 0.0
    assert clean.tests == ("exact McNemar",) and one(comparison, "good", "great-softmax").tests == ("betting",)
    assert all(group.difference.low <= 0.0 <= group.difference.high for group in clean.groups)


def test_a_worse_model_under_an_old_name_is_found_class_by_class(
    digits_fleet: dict[str, Any], good: Finished, swapped: Callable[..., dict[str, Any]]
) -> None:
    now = audit(swapped(measured(digits_fleet, "good", "other"), "good", "weak"))
    comparison = compare(kept(good), kept(now))
    clean = one(comparison, "good", "clean")
    assert clean.overall is not None and clean.overall.flag == "worse" and clean.worse >= 1
    assert {each[0].name for each in comparison.flagged("worse")} == {"good"}
    assert [each.kind for each in comparison.drift] == ["model"] and comparison.drift[0].subject == "good"

    before, after = (read_kept_scores(each.folder, 0, each.result.models[0].spec) for each in (good, now))
    for group in clean.groups:
        mine = before["label"] == group.index
        assert group.n == mine.sum()
        assert group.difference.value == pytest.approx(after["clean"][mine].mean() - before["clean"][mine].mean())
    back = compare(kept(now), kept(good))
    assert (back.worse, back.better) == (comparison.better, comparison.worse)


def test_models_added_gone_and_renamed(digits_fleet: dict[str, Any], good: Finished) -> None:
    data = measured(digits_fleet, "good", "weak", "other")
    data["models"][0]["name"] = "better name"
    data["models"] = data["models"][:2]
    distinct = {(each.kind, each.subject) for each in drift(good.result, audit(data).result)}
    assert distinct == {("renamed", "better name"), ("added", "weak"), ("gone", "other")}


def test_a_series_measured_otherwise_is_not_compared(digits_fleet: dict[str, Any], good: Finished) -> None:
    data = measured(digits_fleet, "good", "other")
    data["measures"] = ["clean", {"name": "great", "activation": "softmax", "temperature": 2.0}]
    comparison = compare(kept(good), kept(audit(data)))
    great = one(comparison, "good", "great-softmax")
    assert great.overall is None and "measured otherwise: GREAT score (softmax, T=1), now" in great.reason
    assert comparison.not_comparable == 2 and comparison.comparisons == 2 * 11
    data["measures"] = ["clean"]
    assert one(compare(kept(good), kept(audit(data))), "good", "great-softmax").reason.startswith("not measured by")


def test_another_version_of_a_measure_is_not_compared_and_told(
    digits_fleet: dict[str, Any], good: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    from services.measures.clean import Clean

    monkeypatch.setattr(Clean, "version", Clean.version + 1)
    comparison = compare(kept(good), kept(audit(measured(digits_fleet, "good", "other"))))
    assert one(comparison, "good", "clean").reason == "another version of the measure"
    assert [(each.kind, each.subject) for each in comparison.drift] == [("measure", "clean")]


def _unversioned(model: ModelResult) -> ModelResult:
    series = (replace(part, series=replace(part.series, version=0)) for part in model.series)
    return replace(model, series=tuple(series))


def test_a_version_that_only_the_other_audit_knows_is_another_one(digits_fleet: dict[str, Any], good: Finished) -> None:
    older = replace(good.result, models=tuple(_unversioned(model) for model in good.result.models))
    now = audit(measured(digits_fleet, "good", "other"))
    assert "version" in one(compare(Kept(older, good.folder), kept(now)), "good", "clean").reason
    neither = compare(Kept(older, good.folder), Kept(older, good.folder))
    assert one(neither, "good", "clean").reason == "" and neither.not_comparable == 0
    assert not unchanged(comparable(older, 0), comparable(older, 0), "clean"), "an unknown version proves nothing"
    assert unchanged(comparable(good.result, 0), comparable(now.result, 0), "clean")


def test_other_parameters_of_a_measure_are_not_compared(digits_fleet: dict[str, Any], good: Finished) -> None:
    data = measured(digits_fleet, "good", "other")
    data["measures"] = ["clean", {"name": "pgd", "steps": 2, "epsilons": [0.1]}]
    before = audit(data)
    data["measures"][1] |= {"step_size": 0.01, "epsilons": [0.1, 0.2]}
    comparison = compare(kept(before), kept(audit(data)))
    assert "other parameters" in one(comparison, "good", "pgd2/linf-0.10000").reason
    assert one(comparison, "good", "clean").reason == ""


def test_samples_with_other_labels_under_their_ids_are_not_compared(
    digits_fleet: dict[str, Any], good: Finished
) -> None:
    spec = good.result.models[0].spec
    scores = read_kept_scores(good.folder, 0, spec)
    write_scores(good.folder, 0, spec, {**scores, "label": (scores["label"] + (scores["id"] == scores["id"][0])) % 10})
    comparison = compare(kept(good), kept(audit(measured(digits_fleet, "good", "other"))))
    assert "label" in one(comparison, "good", "clean").reason and one(comparison, "other", "clean").reason == ""


def test_other_samples_of_the_same_content_have_nothing_in_common(digits_fleet: dict[str, Any], good: Finished) -> None:
    data = {**measured(digits_fleet, "good"), "samples": {"uri": "sklearn:digits?split=train"}}
    comparison = compare(kept(good), kept(audit(data)))
    assert comparison.comparisons == 0 and one(comparison, "good", "clean").reason.startswith("no samples in common")
    kinds = [each.kind for each in comparison.drift]
    assert kinds[0] == "samples" and "class counts" in kinds and kinds[-1] == "gone"


def test_a_file_that_was_replaced_is_told_and_compared_without_pairs(
    digits_fleet: dict[str, Any], tmp_path: Path
) -> None:
    samples, data = open_samples(SampleSpec("sklearn:digits?split=test")), measured(digits_fleet, "good")
    images = np.asarray(samples.images(0, len(samples)))
    data["samples"] = {"uri": f"npz:{tmp_path / 'd.npz'}?scale=1"}
    np.savez(tmp_path / "d.npz", images=images, labels=samples.labels, classes=np.array(samples.classes))
    then = audit(data)
    np.savez(tmp_path / "d.npz", images=images[::-1], labels=samples.labels[::-1], classes=np.array(samples.classes))
    comparison = compare(kept(then), kept(audit(data)))
    assert one(comparison, "good", "clean").tests == ("Fisher's exact test",)
    assert one(comparison, "good", "great-softmax").tests == ("unpaired betting",)
    assert comparison.worse == comparison.better == 0
    assert [each.kind for each in comparison.drift] == ["samples"]


def test_a_smaller_selection_is_compared_on_what_both_have(digits_fleet: dict[str, Any], good: Finished) -> None:
    data = measured(digits_fleet, "good")
    data["samples"]["per_class"] = 20
    comparison = compare(kept(good), kept(audit(data)))
    clean = one(comparison, "good", "clean")
    assert (
        clean.overall is not None and clean.overall.n == 200 and clean.tests == ("exact McNemar", "empirical Bernstein")
    )
    assert [group.n for group in clean.groups] == [20] * 10


def test_lost_scores_cost_one_model_only(digits_fleet: dict[str, Any], good: Finished) -> None:
    next(Path(good.folder).glob("scores/000_*")).unlink()
    comparison = compare(kept(good), kept(audit(measured(digits_fleet, "good", "other"))))
    assert one(comparison, "good", "clean").reason.startswith("its scores cannot be compared")
    assert one(comparison, "other", "clean").reason == "" and comparison.comparisons == 2 * 11


def test_scores_that_are_no_numbers_cost_one_model_only(digits_fleet: dict[str, Any], good: Finished) -> None:
    now = audit(measured(digits_fleet, "good", "other"))
    spec = now.result.models[0].spec
    scores = read_kept_scores(now.folder, 0, spec)
    write_scores(now.folder, 0, spec, {**scores, "clean": np.full(len(scores["id"]), np.nan)})
    comparison = compare(kept(good), kept(now))
    assert (
        "outside or NaN" in one(comparison, "good", "clean").reason and one(comparison, "other", "clean").reason == ""
    )


def test_many_classes_are_counted_and_only_flags_listed(
    digits_fleet: dict[str, Any],
    good: Finished,
    swapped: Callable[..., dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("jobs.comparison.compare.MOST_LISTED", 5)
    now = audit(swapped(measured(digits_fleet, "good", "other"), "good", "weak"))
    comparison = compare(kept(good), kept(now))
    assert {group.flag for model in comparison.models for each in model.series for group in each.groups} == {"worse"}
    assert comparison.left_out == 40 - sum(len(each.groups) for model in comparison.models for each in model.series)
