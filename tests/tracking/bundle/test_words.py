from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from services.records import AuditResult, CalibrationResult, Estimate, GateResult, Outcome, Threshold
from tracking.bundle.words import (
    calibration_words,
    fleet_words,
    gate_words,
    interval,
    model_words,
    series_words,
    share_words,
    verdict_words,
)


def test_the_published_fleet_in_words(gf_audit: AuditResult) -> None:
    text = " ".join(fleet_words(gf_audit))
    assert verdict_words(gf_audit) == "14 of 17 models fail, 2 are undecided, 1 passes."
    assert "the weakest class is cat in 13 of 17 models" in text
    assert "Temperature 2.7 was chosen by class-accuracy." in text
    assert text.count("edge of the grid") == text.count("Spearman") == 1


def test_a_weakest_class_of_one_model_is_not_told_as_shared(gf_audit: AuditResult) -> None:
    first = gf_audit.models[0]
    (other,) = [model for model in gf_audit.models if "cat" not in model.series[0].worst][:1]
    assert "no two models share their weakest class" in " ".join(fleet_words(replace(gf_audit, models=(first, other))))


def test_classes_that_tie_are_not_told_as_one(gf_audit: AuditResult) -> None:
    """Nine classes at 0 in two models were told as "the weakest class is airplane in 2 of 2 models"."""
    first, second = gf_audit.models[:2]
    nine = tuple(group.name for group in first.series[0].groups[:9])

    def words(*worst: tuple[str, ...]) -> str:
        models = [
            replace(model, series=tuple(replace(result, worst=names) for result in model.series))
            for model, names in zip((first, second), worst, strict=True)
        ]
        return fleet_words(replace(gf_audit, models=tuple(models)))[0]

    assert f" {nine[0]} and 8 more are among the weakest in 2 of 2 models, each as often." in words(nine, nine)
    assert f" the weakest class is {nine[1]} in 2 of 2 models." in words(nine, nine[1:2])
    assert " class 4 and 1 more are among the weakest" in words(("4", "5"), ("5", "4"))


def test_a_limit_is_told_without_a_table_that_may_not_be_there(gf_audit: AuditResult) -> None:
    """The terminal spoke of the limit "in the table", where another one stands."""
    result = gf_audit.models[0].series[0]
    place = next(place for place, group in enumerate(result.groups) if group.name == result.worst[0])
    groups = [*result.groups]
    groups[place] = replace(groups[place], score=Estimate(0.2, 0.05, 0.4))
    own = replace(result, groups=tuple(groups), metrics={**result.metrics, "wcr": Estimate(0.2, 0.1, 0.4)})
    text = " ".join(series_words(own))
    assert "at least 0.100 at 95 % confidence (at least 0.0500 where the limits of all classes hold together)" in text
    assert "table" not in text


def test_names_of_several_words_are_quoted(gf_audit: AuditResult) -> None:
    result = replace(gf_audit.models[0].series[0], worst=("below 2.31",), not_separated=("from 2.31", "undefined"))
    assert 'do not separate "below 2.31" from "from 2.31", undefined: any' in " ".join(series_words(result))


def test_few_models_prove_no_correlation(gf_audit: AuditResult) -> None:
    for count, message in ((4, False), (5, True)):
        few = replace(gf_audit, models=gf_audit.models[:count])
        assert ("Spearman" in " ".join(fleet_words(few))) is message
        assert "edge of the grid" in " ".join(fleet_words(few))


def test_verdicts_in_words(gf_audit: AuditResult) -> None:
    (passing,) = (model for model in gf_audit.models if model.outcome is Outcome.PASS)
    assert verdict_words(replace(gf_audit, models=(passing,))) == "The model passes."
    broken = replace(passing, outcome=Outcome.ERROR)
    assert verdict_words(replace(gf_audit, models=(passing, broken))) == "1 of 2 models could not be judged, 1 passes."
    assert verdict_words(replace(gf_audit, models=())) == "No model was audited."


def test_what_has_no_gates_is_not_said_to_pass(gf_audit: AuditResult) -> None:
    (passing,) = (model for model in gf_audit.models if model.outcome is Outcome.PASS)
    free = replace(passing, gates=())
    broken = replace(free, outcome=Outcome.ERROR)
    for models in ((free,), (free, free)):
        assert verdict_words(replace(gf_audit, models=models)) == "Not judged: no gates."
    mixed = verdict_words(replace(gf_audit, models=(free, broken)))
    assert "pass" not in mixed and "1 of 2 models could not be judged" in mixed and "no gates" in mixed


def test_a_class_that_is_never_right_is_not_said_to_have_no_samples(gf_audit: AuditResult) -> None:
    result = gf_audit.models[0].series[0]
    empty = Estimate(None, reason="no samples")
    groups = (replace(result.groups[0], n=0, score=empty), replace(result.groups[1], n=0, n_all=0, score=empty))
    names = tuple(group.name for group in groups)
    series, groups = replace(result.series, conditional=True), (*groups, *result.groups[2:])
    items = list(series_words(replace(result, series=series, groups=groups, missing=names)))
    (without,) = [sentence for sentence in items if "No samples of" in sentence]
    (wrong,) = [sentence for sentence in items if "correctly" in sentence]
    assert names[1] in without and names[0] not in without and names[0] in wrong


@pytest.mark.parametrize(
    ("threshold", "words"),
    [
        (("great", "wcr", "class", ">=", 0.3), "GREAT score (sigmoid, T=1), worst class: at least 0.3"),
        (("clean", "rdi", "sex", "<=", 0.1), "clean accuracy, gap between best and worst group of sex: at most 0.1"),
        (
            ("great", "refuted", "class", "<=", 0.1),
            "GREAT score (sigmoid, T=1), share of claims that attacks refute: at most 0.1",
        ),
        (None, ""),
        (("great", "unknown", "class", ">=", 1.0), ""),
    ],
)
def test_gates_spelled_out(threshold: Any, words: str, gf_audit: AuditResult) -> None:
    requested = Threshold(*threshold) if threshold else None
    assert gate_words(gf_audit, GateResult("", Outcome.PASS, Estimate(1.0), "", requested)) == words


def test_shares_in_words() -> None:
    assert share_words(Estimate(0.123, 0.1, 0.15)) == "12.3 % (10.0 to 15.0 %)"
    assert share_words(Estimate(None, reason="nothing attacked")) == "undefined (nothing attacked)"


def test_one_series_in_words(gf_audit: AuditResult) -> None:
    great = gf_audit.models[0].series[0]
    first = next(iter(series_words(great)))
    assert first.startswith("GREAT score (sigmoid, T=1): the worst class is cat at 0.335, at least 0.322")
    tied = replace(great, worst=("cat", "dog"))
    assert "cat and 1 more tie for the worst class" in next(iter(series_words(tied)))
    close = " ".join(series_words(replace(great, not_separated=("dog",))))
    assert "do not separate cat from dog" in close
    assert "No samples of frog" in " ".join(series_words(replace(great, missing=("frog",))))
    none = {**great.metrics, "wcr": Estimate(None, reason="no samples")}
    empty = replace(great, worst=(), metrics=none)
    assert list(series_words(empty)) == ["GREAT score (sigmoid, T=1): no worst class, because no samples."]
    note = "98 % of margins saturate."
    noted = replace(gf_audit.models[0], series=(replace(great, notes=(note,)),), notes=(note, "A note of its own."))
    assert " ".join(model_words(noted)).count(note) == 1 and model_words(noted)[-1] == "A note of its own."


@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        (Estimate(0.5, 0.4, 0.6), "0.500 (0.400 to 0.600)"),
        (Estimate(0.5, 0.4), "0.500 (at least 0.400)"),
        (Estimate(0.5, None, 0.6), "0.500 (at most 0.600)"),
        (Estimate(0.01234), "0.0123"),
        (Estimate(4e-7, 0.0, 0.01), "<0.0001 (0.000 to 0.0100)"),
        (Estimate(-4e-7), ">-0.0001"),
        (Estimate(None, reason="all scores are 0"), "undefined (all scores are 0)"),
    ],
)
def test_intervals_in_words(estimate: Estimate, text: str) -> None:
    assert interval(estimate) == text


def test_an_undefined_temperature_has_its_reason() -> None:
    calibration = CalibrationResult("fleet-accuracy", None, reason="two models only")
    assert list(calibration_words(calibration)) == ["No temperature was chosen (fleet-accuracy): two models only."]
    assert not list(calibration_words(CalibrationResult("fixed", None, reason="no GREAT score is measured")))
