"""What to do next, from the numbers of a record."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.stats import beta

from services.records import AttackResult, AuditResult, Estimate, Evidence, GateResult, ModelResult, Outcome, Threshold
from tests.tracking.bundle.reasons.test_why import confused, pair, with_confusions
from tracking.bundle.reasons.next_steps import next_steps, samples_that_decide

WORST = Threshold("clean", "wcr", "class", ">=", 0.3)


def judged(model: ModelResult, outcome: Outcome, estimate: Estimate, threshold: Threshold = WORST) -> ModelResult:
    gate = GateResult("clean wcr >= 0.3", outcome, estimate, "", threshold)
    return replace(model, outcome=outcome, gates=(gate,))


def clopper_pearson(share: float, n: int) -> tuple[float, float]:
    k = round(share * n)
    return float(beta.ppf(0.025, k, n - k + 1)), float(beta.ppf(0.975, k + 1, n - k))


def test_as_many_samples_as_are_named_decide_where_the_share_stays(small_audit: AuditResult) -> None:
    model = small_audit.models[0]
    for share in (0.2, 0.24, 0.4):
        low, high = clopper_pearson(share, 50)
        needed = samples_that_decide(model, judged(model, Outcome.UNDECIDED, Estimate(share, low, high)).gates[0])
        assert needed is not None
        now, then, place = needed
        assert now == 50 and small_audit.samples.classes[place] in model.series[1].worst
        after = clopper_pearson(share, int(1.15 * then))
        assert after[1] < 0.3 or after[0] > 0.3, "15 % more than named are enough"
        fewer = clopper_pearson(share, int(0.6 * then))
        assert fewer[0] < 0.3 < fewer[1], "and 40 % less are not"


def test_no_number_is_named_that_nobody_collects_or_that_does_not_exist(small_audit: AuditResult) -> None:
    model = small_audit.models[0]
    for estimate in (Estimate(0.3, 0.1, 0.5), Estimate(0.299, 0.1, 0.5), Estimate(0.2), Estimate(None, reason="none")):
        assert samples_that_decide(model, judged(model, Outcome.UNDECIDED, estimate).gates[0]) is None
    whole = judged(model, Outcome.UNDECIDED, Estimate(0.2, 0.1, 0.5), replace(WORST, metric="aggregate"))
    assert samples_that_decide(model, whole.gates[0]) is None


def test_labels_attacks_samples_and_claims_in_this_order(small_audit: AuditResult) -> None:
    first, second, third = with_confusions(small_audit, confused("clean", pair(0, 1, 62), attack=False)).models
    models = (
        judged(first, Outcome.FAIL, Estimate(0.05, 0.01, 0.2)),
        judged(second, Outcome.UNDECIDED, Estimate(0.2, 0.1, 0.4)),
        replace(
            judged(third, Outcome.PASS, Estimate(0.9, 0.8, 1.0)),
            attacks=(AttackResult("pgd20", ("clean",), "inadequate"),),
        ),
    )
    names = ("cat", "dog", *small_audit.samples.classes[2:])
    audit = replace(small_audit, models=models, samples=replace(small_audit.samples, classes=names))
    attack, look, remedy, decide = next_steps(audit)
    assert attack.startswith("Attack model_002 by another attack than pgd20") and "`square`" in attack
    assert look.startswith("model_000: look at the 62 samples of cat that go to dog.")
    assert remedy.startswith("model_000: `classwise repair FLEET_FILE --model model_000 --under clean` tries class")
    assert "the cheapest remedy" in remedy and "`--propose` lists more" in remedy
    odd = replace(models[0], spec=replace(models[0].spec, name="a`b; rm x"))
    assert "--model NAME --under clean`" in next_steps(replace(audit, models=(odd,)))[1]
    assert decide.startswith("model_001: a new audit on about 200 samples of ") and "instead of 50" in decide
    planned = replace(models[1].gates[0], wanted="if the estimates stay, about 90 more samples would decide it")
    early = replace(audit, models=(replace(models[1], gates=(planned,)),))
    assert next_steps(early)[0].endswith("is open; if the estimates stay, about 90 more samples would decide it.")
    assert next_steps(replace(audit, models=(judged(third, Outcome.PASS, Estimate(0.9, 0.8, 1.0)),))) == []
    assert np.all([len(line) < 250 for line in next_steps(audit)])


def test_a_gate_that_a_probe_keeps_open_asks_for_a_stronger_attack(small_audit: AuditResult) -> None:
    model, limit = small_audit.models[0], replace(WORST, measure="pgd20/linf-0.03137")
    for adequacy, estimate, said in (
        ("adequate", Estimate(0.5, 0.32, 0.6), True),
        ("adequate", Estimate(0.29, 0.2, 0.6), False),
        ("unknown", Estimate(0.5, 0.32, 0.6), False),
    ):
        attack = AttackResult("pgd20", (limit.measure,), adequacy)  # type: ignore[arg-type]
        open_one = replace(judged(model, Outcome.UNDECIDED, estimate, limit), attacks=(attack,))
        steps = next_steps(replace(small_audit, models=(open_one,)))
        assert any("a probe broke more samples than the gate can spare" in step for step in steps) is said


def test_no_class_is_looked_at_of_a_model_without_robustness(small_audit: AuditResult) -> None:
    """Its labels and its single classes are not what fails: an attack breaks all of them."""
    (first, *_) = with_confusions(small_audit, confused("clean", pair(0, 1, 62), attack=False)).models
    clean = first.series[1]
    key = "pgd20/linf-0.03137"
    attack = replace(clean.series, key=key, title="PGD-20 accuracy (Linf 8/255)", evidence=Evidence.ATTACK)

    def steps(high: float) -> list[str]:
        left = replace(clean, series=attack, metrics={**clean.metrics, "aggregate": Estimate(high / 2, 0.0, high)})
        under = replace(first, series=(left, clean))
        model = judged(under, Outcome.FAIL, Estimate(0.0, 0.0, 0.01), replace(WORST, measure=key))
        return next_steps(replace(small_audit, models=(model,)))

    assert attack.binary and attack.attack
    (said,) = steps(0.01)
    assert said.startswith("model_000: it has next to no robustness in any class, 0.5 % (0.0 to 1.0 %) under PGD-20")
    assert "`classwise train`" in said
    assert not any("next to no" in step for step in steps(0.2)) and "look at the 62 samples" in steps(0.2)[0]


def test_more_samples_are_not_asked_for_where_something_speaks_against_the_number(
    small_audit: AuditResult,
) -> None:
    open_one = judged(small_audit.models[0], Outcome.UNDECIDED, Estimate(0.4, 0.2, 0.6))
    assert "a new audit on about" in next_steps(replace(small_audit, models=(open_one,)))[0]
    (gate,) = open_one.gates
    barred = replace(open_one, gates=(replace(gate, objected="pgd20: the gradient was zero"),))
    assert next_steps(replace(small_audit, models=(barred,))) == []
