"""Which series heads everything: the one that decided, else the strongest sound evidence; never a refuted claim."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from services.records import (
    AttackResult,
    AuditResult,
    Estimate,
    Evidence,
    GateResult,
    Outcome,
    Series,
    SignResult,
    Threshold,
)
from tests.typed import series_of
from tracking.bundle.headline import Entry, is_refuted, reading_order
from tracking.bundle.overview import overview_of
from tracking.bundle.summary import leaderboard, lenses, refuted, tied
from tracking.bundle.words import advice_words, fleet_words, model_words
from tracking.figures.save import figure_files
from tracking.mlflow.layout import child_content
from tracking.report.data import headline

GREAT = series_of("great", "GREAT score", 1.25, unit="L2 distance")
CLEAN = series_of("clean", "clean accuracy", 1.0, binary=True)
PGD = series_of("pgd20/linf-0.10000", "PGD-20 (Linf 0.1)", 1.0, binary=True)
RADIUS = series_of("radius/gaussian-0.25", "certified radius", 1.0, unit="L2 distance")
SERIES = (GREAT, CLEAN, PGD)


def entry(lens: str, evidence: Evidence, *, family: str = "", sound: bool = True, grouping: str = "class") -> Entry:
    return Entry(lens, grouping, evidence, family or lens, binary=True, sound=sound)


def gate(key: str, outcome: Outcome, value: float = 0.1) -> GateResult:
    return GateResult(f"{key} wcr", outcome, Estimate(value), "because", Threshold(key, "wcr", "class", ">=", 0.3))


def gated(audit: AuditResult, *gates: GateResult) -> AuditResult:
    outcome = next(o for o in (Outcome.FAIL, Outcome.UNDECIDED, Outcome.PASS) if o in {g.outcome for g in gates})
    return replace(audit, models=tuple(replace(m, gates=gates, outcome=outcome) for m in audit.models))


EVERY = (
    entry("great", Evidence.CLAIM),
    entry("clean", Evidence.OUTCOME),
    entry("pgd", Evidence.ATTACK),
    entry("pr", Evidence.OUTCOME),
    entry("radius", Evidence.CERTIFICATE),
    entry("radius/by-sex", Evidence.CERTIFICATE, grouping="sex"),
)


def test_the_order_of_evidence() -> None:
    assert reading_order(EVERY, []) == ["radius", "pr", "pgd", "clean", "great", "radius/by-sex"]


def test_what_is_unsound_in_one_model_comes_last() -> None:
    broken = (entry("pgd", Evidence.ATTACK, sound=False), entry("great", Evidence.CLAIM, sound=False))
    assert reading_order((*EVERY, *broken), []) == ["radius", "pr", "clean", "pgd", "great", "radius/by-sex"]


def test_the_gate_that_decided_comes_first() -> None:
    passed, failed = gate("clean", Outcome.PASS), gate("great", Outcome.FAIL)
    assert reading_order(EVERY, [[passed, failed]])[0] == "great"
    assert reading_order(EVERY, [[passed]])[0] == "clean"
    refuted = entry("great", Evidence.CLAIM, sound=False)
    assert reading_order((*EVERY, refuted), [[passed, failed]])[:2] == ["radius", "pr"]
    undecided = gate("pgd", Outcome.UNDECIDED)
    assert reading_order(EVERY, [[passed, undecided], [passed, undecided], [failed]])[0] == "great"


@pytest.mark.parametrize(
    ("share", "expected"),
    [(Estimate(0.9, 0.06, 1.0), True), (Estimate(0.9, 0.04, 1.0), False), (Estimate(0.06), True), (None, False)],
)
def test_refuted_is_what_the_lower_limit_says(share: Estimate | None, expected: bool) -> None:
    assert is_refuted(share) == expected


def test_a_refuted_claim_heads_nothing(attacked_audit: AuditResult) -> None:
    """Table, report, overview (and so the dashboard), plots, MLflow's first metrics."""
    first = "minimal/l2"
    assert attacked_audit.models[0].gates[0].threshold is not None
    assert lenses(attacked_audit)[0] == next(iter(overview_of(attacked_audit, 0).lenses)) == first
    shown = headline(attacked_audit)
    assert shown is not None and shown["title"] == "smallest adversarial perturbation"
    assert [key.rpartition("/")[0] for key in leaderboard(attacked_audit)[0]][2] == first
    assert next(iter(figure_files(attacked_audit))).startswith("figures/minimal")


def test_no_conclusion_rests_on_a_refuted_claim(attacked_audit: AuditResult) -> None:
    words = model_words(attacked_audit.models[0])
    assert not any(line.startswith("GREAT") and "worst class" in line for line in words)
    claim = next(line for line in words if line.startswith("GREAT"))
    assert claim.endswith(
        "attacks refuted this claim for 75 of 300 correctly classified samples, so nothing is concluded from it."
    )
    assert any("attacks refuted this claim in 3 of 3 models" in line for line in fleet_words(attacked_audit))


def test_a_claim_that_no_adequate_attack_tested_heads_nothing_and_is_not_said_to_stand(
    attacked_audit: AuditResult,
) -> None:
    """The report of a network that hides its gradients was headed by its GREAT score, "refuted: 0.0 %"."""
    looked = SignResult("zero-gradient", 90, None, 96, False, 0.0, True, "All were zero.")
    masked = AttackResult("minimal", ("minimal/l2",), "inadequate", ("zero",), (looked,))
    square = AttackResult("square", ("square",), "adequate", (), (replace(looked, sign="weaker-than-noise"),))

    def with_attacks(*attacks: AttackResult, wrong: int = 0) -> AuditResult:
        return replace(
            attacked_audit,
            models=tuple(
                replace(
                    model,
                    gates=(),
                    attacks=attacks,
                    refuted=tuple(
                        replace(claim, refuted=wrong, overall=Estimate(wrong / 300, wrong / 300, 1.0))
                        for claim in model.refuted
                    ),
                )
                for model in attacked_audit.models
            ),
        )

    sound = with_attacks(replace(masked, adequacy="adequate"))
    (claim,) = (claim for claim in sound.models[0].refuted if claim.grouping == "class")
    for attacks in ((masked,), (masked, square)):
        broken = with_attacks(*attacks)
        model = broken.models[0]
        assert lenses(broken)[-1] == claim.series
        assert refuted(model, claim.series) is None
        assert f"{claim.series}/refuted" not in child_content(broken, 0).metrics
        words = [line for line in model_words(model) if line.startswith("GREAT")]
        assert len(words) == 1 and "no attack that could have refuted this claim was adequate" in words[0]
    assert refuted(sound.models[0], claim.series) == claim
    assert f"{claim.series}/refuted" in child_content(sound, 0).metrics
    assert not any("could have refuted" in line for line in model_words(sound.models[0]))
    assert refuted(with_attacks(masked, wrong=9).models[0], claim.series) is not None, "what is refuted is refuted"


def test_an_inadequate_attack_heads_nothing(make_audit: Callable[..., AuditResult]) -> None:
    audit = replace(make_audit(2, 4, series=(CLEAN, PGD)))
    unjudged = replace(audit, models=tuple(replace(model, gates=()) for model in audit.models))
    assert lenses(unjudged)[0] == PGD.key
    masked = (AttackResult("pgd", (PGD.key,), "inadequate"),)
    broken = replace(unjudged, models=(replace(unjudged.models[0], attacks=masked), unjudged.models[1]))
    assert lenses(broken) == list(overview_of(broken, 0).lenses) == ["clean", PGD.key]
    assert not any("PGD" in line for line in model_words(broken.models[0]))


def test_advice_for_who_decides(make_audit: Callable[..., AuditResult]) -> None:
    audit = make_audit(5, 4, series=SERIES)
    failed = gated(audit, gate("clean", Outcome.PASS, 0.9), gate(PGD.key, Outcome.FAIL, 0.05))
    worst = failed.models[0].series[2].worst[0]
    assert len(advice_words(failed)) == 3
    expected = f"Do not ship model_000: {worst} keeps 5.0 % under PGD-20 (Linf 0.1), where at least 30 % is asked."
    assert advice_words(failed)[0] == expected
    open_words = advice_words(gated(audit, gate("clean", Outcome.UNDECIDED)))[0]
    assert open_words.startswith("Do not ship model_000 yet: ")
    assert open_words.endswith(" at least 30 % is asked, and these samples do not decide it.")
    assert advice_words(gated(audit, gate("clean", Outcome.PASS)))[0].startswith("model_000 meets what was asked: ")
    assert advice_words(replace(audit, models=tuple(replace(m, gates=()) for m in audit.models))) == []


def test_advice_rests_on_a_claim_only_where_no_other_gate_decided(make_audit: Callable[..., AuditResult]) -> None:
    """A claim of 0.03 is a smaller number than survival of 90 %, and says less."""
    audit = make_audit(1, 4, series=SERIES)
    both = gated(audit, gate(GREAT.key, Outcome.UNDECIDED, 0.03), gate(PGD.key, Outcome.UNDECIDED, 0.9))
    assert " under PGD-20 (Linf 0.1), where at least 30 % is asked" in advice_words(both)[0]
    assert " by GREAT score" in advice_words(gated(audit, gate(GREAT.key, Outcome.UNDECIDED, 0.03)))[0]


@pytest.mark.parametrize(
    ("adequacy", "why"),
    [
        ("inadequate", "but the attack was inadequate on this model, so that is no evidence"),
        ("unknown", "but nothing could be checked of the attack, so that is no evidence"),
        ("adequate", "but 4 of 96 fell to a probe"),
    ],
)
def test_advice_says_why_a_number_beyond_its_threshold_decides_nothing(
    make_audit: Callable[..., AuditResult], adequacy: str, why: str
) -> None:
    audit = make_audit(2, 4, series=SERIES)
    cleared = replace(
        gate(PGD.key, Outcome.UNDECIDED),
        estimate=Estimate(0.8, 0.7, 0.9),
        reason="lower bound 0.7 clears 0.3, but 4 of 96 fell to a probe",
        objected="4 of 96 fell to a probe",
    )
    attacks = (AttackResult("pgd", (PGD.key,), adequacy),)
    audit = replace(audit, models=tuple(replace(model, attacks=attacks) for model in audit.models))
    sentence = advice_words(gated(audit, gate("clean", Outcome.PASS, 0.9), cleared))[0]
    assert "keeps 80.0 % (70.0 to 90.0 %)" in sentence and sentence.endswith(f"where at least 30 % is asked, {why}.")


def test_advice_names_what_the_fleet_file_overruled(make_audit: Callable[..., AuditResult]) -> None:
    passed = gate(PGD.key, Outcome.PASS, 0.9)
    forced = replace(gate("clean", Outcome.PASS, 0.95), overruled=("inadequate-attack",))
    audit = make_audit(2, 4, series=SERIES)
    assert "overruled" not in advice_words(gated(audit, passed))[0]
    sentence = advice_words(gated(audit, passed, forced))[0]
    assert sentence.endswith("where at least 30 % is asked; the fleet file overruled inadequate-attack.")


@pytest.mark.parametrize(
    ("series", "meaning"),
    [
        (PGD, "the share of samples still right when an attacker changes each pixel by up to 10 % of its range"),
        (
            series_of("apgd30/l2-0.50000"),
            "the share of samples still right when an attacker changes the image by up to 0.5 in L2",
        ),
        (CLEAN, ""),
    ],
)
def test_the_headline_says_what_an_attack_is(
    make_audit: Callable[..., AuditResult], series: Series, meaning: str
) -> None:
    shown = headline(make_audit(2, 4, series=(series,)))
    assert shown is not None and shown["scale"] == "from 0, the worst, to 1, the best" + (meaning and f": {meaning}")


def test_ties_are_named_alike_everywhere(make_audit: Callable[..., AuditResult]) -> None:
    assert tied(("bird",), 1) == "bird" and tied((), 0) == ""
    assert tied(("bird", "cat", "deer"), 7) == "bird and 6 more"
    audit = make_audit(1, 7, series=(CLEAN,))
    model = audit.models[0]
    all_tied = replace(model.series[0], worst=tuple(group.name for group in model.series[0].groups))
    audit = replace(audit, models=(replace(model, series=(all_tied,), gates=()),))
    name = f"{all_tied.worst[0]} and 6 more"
    assert leaderboard(audit)[0]["clean/worst"] == name
    assert f"{name} tie for the worst class" in model_words(audit.models[0])[0]
    series = overview_of(audit, 0).models[0].series[0]
    assert tied(series.worst, series.ties) == name


def test_a_class_called_by_a_number_is_no_amount(make_audit: Callable[..., AuditResult]) -> None:
    audit = make_audit(3, 4, names=("0", "1", "2", "3"), series=SERIES)
    failed = gated(audit, gate("clean", Outcome.PASS, 0.9), gate(PGD.key, Outcome.FAIL, 0.05))
    assert advice_words(failed)[0].startswith("Do not ship model_000: class ")
    shared = [line for line in fleet_words(audit) if "weakest" in line]
    assert shared and all(" class " in line and "class is" not in line for line in shared)
