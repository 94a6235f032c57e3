"""What an audit says of its fleet: rankings that may be compared, and models attacked in another norm than theirs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jobs.audit.judging.fleet_checks import fleet_checks, fleet_notes, references
from services.records import (
    AttackResult,
    CalibrationResult,
    Estimate,
    ModelResult,
    ModelSpec,
    Outcome,
    RefutedResult,
    SeriesResult,
    ThreatModel,
)
from tests.typed import series_of

L2, LINF = ThreatModel("L2", 0.5), ThreatModel("Linf", 8 / 255)
FIXED = CalibrationResult("fixed", 1.0)


def model(name: str, robust: float | None, threat: ThreatModel | None, **values: float) -> ModelResult:
    none = Estimate(None)
    series = tuple(
        SeriesResult(
            series_of(key, key, 1.0),
            "class",
            {"aggregate": Estimate(value), **dict.fromkeys(("rdi", "nrgc", "wcr", "fp"), none)},
            *((), (), (), ()),
            method="betting",
            delta=0.05,
            extras={"correct": values["clean"]},
        )
        for key, value in values.items()
    )
    spec = ModelSpec(name, "x:y", robust_accuracy=robust, threat_model=threat)
    return ModelResult(spec, "", Outcome.PASS, series=series)


def fleet(last: ThreatModel | None = L2) -> list[ModelResult]:
    return [
        model("a", 0.5, L2, great=0.1, clean=0.8),
        model("b", 0.6, L2, great=0.2, clean=0.7),
        model("c", 0.7, L2, great=0.3, clean=0.9),
        model("d", 0.1, last, great=0.4, clean=0.6),
    ]


def test_only_robust_accuracies_of_one_threat_model_make_a_ranking() -> None:
    mixed, same = fleet(LINF), fleet()
    assert references([each.spec for each in mixed]) == [0.5, 0.6, 0.7, None]
    assert fleet_checks(mixed)["reference"]["great"] == pytest.approx(1.0)
    assert fleet_checks(same)["reference"]["great"] == pytest.approx(-0.2)
    message = " ".join(fleet_notes(mixed, FIXED))
    assert "The models declare different threat models (L2 0.5, Linf 0.03137): rankings across them compare" in message
    assert "1 declared robust accuracies are of other threat models than most, and in no reference ranking." in message
    assert "different threat models" not in " ".join(fleet_notes(same, FIXED))


def test_two_references_are_no_ranking() -> None:
    assert fleet_checks(fleet()[:2])["reference"] == {}


def test_the_reference_stands_beside_clean_accuracy_alone() -> None:
    wanted = "Spearman of great with the declared robust accuracies: -0.200; clean accuracy alone 0.800."
    assert wanted in fleet_notes(fleet(), FIXED)
    assert wanted not in fleet_notes(fleet(), replace(FIXED, reference=-0.2))


def test_no_model_is_the_best_by_a_refuted_claim_or_an_inadequate_attack() -> None:
    def chosen(each: ModelResult) -> ModelResult:
        values = [(result, result.metrics["aggregate"].value or 0.0) for result in each.series]
        joint = [{"aggregate": Estimate(value, value - 0.02, value + 0.02)} for _, value in values]
        return replace(each, series=tuple(replace(r, joint=j) for (r, _), j in zip(values, joint, strict=True)))

    keys = {"pgd20/linf-0.10000": 0.4}
    models = [chosen(model(name, None, None, great=at, clean=at, **keys)) for name, at in (("a", 0.5), ("b", 0.7))]
    sound = [note for note in fleet_notes(models, FIXED) if "best mean" in note]
    assert len(sound) == 3
    assert sound[1].startswith(
        "By clean b has the best mean, and no other model may truly be better; chosen of 2 models"
    )
    refuted = RefutedResult(
        "great", "class", Estimate(0.9, 0.8, 1.0), (), refuted=9, counted=10, untested=0, delta=0.05
    )
    masked = AttackResult("pgd", (*keys,), "inadequate")
    models[1] = replace(models[1], refuted=(refuted,), attacks=(masked,))
    assert [note for note in fleet_notes(models, FIXED) if "best mean" in note] == [sound[1]]


def test_a_model_attacked_in_another_norm_than_it_was_made_for_is_named() -> None:
    attacked = {"great": 0.1, "clean": 0.8, "pgd20/linf-0.03137": 0.2}
    models = [model("a", None, L2, **attacked), model("b", None, LINF, **attacked), model("c", None, None, **attacked)]
    (output,) = [note for note in fleet_notes(models, FIXED) if "another norm" in note]
    assert output.startswith("Attacked in another norm only than they were made for: a (L2 0.5). What does not survive")
    both = model("a", None, L2, **attacked, **{"pgd20/l2-0.50000": 0.3})
    assert not any("another norm" in note for note in fleet_notes([both], FIXED))


def test_what_does_not_pass_and_has_no_declared_accuracy_is_named() -> None:
    failed = [replace(each, outcome=Outcome.FAIL) for each in fleet()]
    (note,) = [note for note in fleet_notes(failed, FIXED) if "clean_accuracy" in note]
    assert "a, b, c and 1 more" in note
    declared = [replace(each, spec=replace(each.spec, clean_accuracy=0.8)) for each in failed]
    assert not any("clean_accuracy" in note for note in fleet_notes([*declared, *fleet()], FIXED))
    assert any("clean_accuracy" in note for note in fleet_notes([replace(failed[0], outcome=Outcome.UNDECIDED)], FIXED))
