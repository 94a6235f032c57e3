"""The sentences that say what a weak class is taken for."""

from __future__ import annotations

from dataclasses import replace

from services.records import (
    AttackResult,
    AuditResult,
    ConfusedPair,
    ConfusionResult,
    Estimate,
    GateResult,
    Outcome,
    Threshold,
)
from tracking.bundle.reasons.why import why_words


def pair(label: int, predicted: int, count: int, clean: float | None = 0.02) -> ConfusedPair:
    share = count / 100
    return ConfusedPair(label, predicted, count, 100, Estimate(share, share - 0.1, share + 0.1), clean)


def confused(series: str, *pairs: ConfusedPair, attack: bool = True) -> ConfusionResult:
    under = "under PGD-20 (Linf 8/255)" if attack else "without an attack"
    return ConfusionResult(series, "PGD-20 accuracy (Linf 8/255)", attack, under, pairs, sum(p.count for p in pairs))


def with_confusions(audit: AuditResult, *confusions: ConfusionResult) -> AuditResult:
    """All models have the same ones, under keys of series that they have."""
    models = tuple(replace(model, confusions=confusions) for model in audit.models)
    names = ("cat", "dog", "eel", *audit.samples.classes[3:])
    return replace(audit, models=models, samples=replace(audit.samples, classes=names))


def test_the_weakest_class_with_its_interval_and_where_the_next_goes(small_audit: AuditResult) -> None:
    audit = with_confusions(small_audit, confused("great", pair(0, 1, 62), pair(2, 1, 40)))
    first, agreed, following = why_words(audit)
    assert (
        "under PGD-20 (Linf 8/255) 62 % (52 to 72 %, 62 of 100) of cat goes to dog; without an attack 2 % does" in first
    )
    assert f"In {len(audit.models)} of {len(audit.models)} models cat goes to dog" in agreed
    assert "next is eel, of which 40 % goes to dog" in following


def test_models_that_take_the_weakest_class_for_different_classes(small_audit: AuditResult) -> None:
    audit = with_confusions(replace(small_audit, models=small_audit.models[:2]), confused("great", pair(0, 1, 62)))
    other = replace(audit.models[1], confusions=(confused("great", pair(0, 2, 50)),))
    lines = why_words(replace(audit, models=(audit.models[0], other)))
    assert "Each of the 2 models takes cat for a different class most often." in lines


def test_an_attack_speaks_before_clean_predictions_and_both_directions_are_said(small_audit: AuditResult) -> None:
    clean = confused("clean", pair(2, 0, 30, None), attack=False)
    one = replace(small_audit, models=small_audit.models[:1])
    audit = with_confusions(one, clean, confused("great", pair(0, 1, 62, 0.2), pair(1, 0, 50)))
    first, back = why_words(audit)
    assert "cat goes to dog" in first and "confused before any attack" in first
    assert "dog goes to cat too (50 %)" in back


def test_the_confusions_of_the_gate_that_decided_come_first_and_only_those_of_one_series_are_counted_together(
    small_audit: AuditResult,
) -> None:
    clean, attacked = confused("clean", pair(2, 0, 30, None), attack=False), confused("great", pair(0, 1, 62))
    audit = with_confusions(small_audit, clean, attacked)
    worst = Threshold("clean", "wcr", "class", ">=", 0.5)
    decided = GateResult("clean wcr >= 0.5", Outcome.FAIL, Estimate(0.1), "", worst)
    first = replace(audit.models[0], outcome=Outcome.FAIL, gates=(decided,))
    lines = why_words(replace(audit, models=(first, *audit.models[1:])))
    assert "without an attack 30 % (20 to 40 %, 30 of 100) of eel goes to cat" in lines[0]
    assert "In 3 of 3 models eel goes to cat" in lines[1]


def test_an_inadequate_attack_speaks_last_and_says_so(small_audit: AuditResult) -> None:
    audit = with_confusions(replace(small_audit, models=small_audit.models[:1]), confused("great", pair(0, 1, 62)))
    weak = AttackResult("pgd20", ("great",), "inadequate")
    audit = replace(audit, models=(replace(audit.models[0], attacks=(weak,)),))
    assert "that attack was inadequate, so it is at least that much" in why_words(audit)[0]
    clean = confused("clean", pair(2, 0, 30, None), attack=False)
    model = replace(audit.models[0], confusions=(*audit.models[0].confusions, clean))
    assert "eel goes to cat" in why_words(replace(audit, models=(model,)))[0]


def test_nothing_is_said_of_audits_without_confusions_and_nonsense_has_no_class(small_audit: AuditResult) -> None:
    assert why_words(small_audit) == []
    assert "no sample went to another class" in why_words(with_confusions(small_audit, confused("great")))[0]
    assert "logits that are not finite" in why_words(with_confusions(small_audit, confused("great", pair(0, -1, 9))))[0]
