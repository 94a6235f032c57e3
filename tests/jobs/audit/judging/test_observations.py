"""Signs of a failing attack from the series that an audit happens to have, and the record of each attack."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest

from jobs.audit.judging.observations import attack_notes, attack_results, observed_attacks
from jobs.audit.plan import Context, ModelPlan, plan_model
from jobs.audit.probes import ProbeSeen
from services.measures.autoattack import AutoAttackSurvival
from services.measures.cw import Cw
from services.measures.great import Great
from services.measures.measure import Measure
from services.measures.minimal import Minimal
from services.measures.pgd import Pgd
from services.measures.probabilistic import Pr, ProbAcc
from services.measures.radius import Radius
from services.measures.rare import Rare
from services.measures.square import Square
from services.numerics.evidence.adequacy import Sign, SignCount
from services.records import ModelSpec, SampleSpec
from tracking.bundle.scores import Scores

N = 100
ONES = np.ones(N)
HALF = (np.arange(N) < 50).astype(float)
BALL = "linf-0.03137"


def signs(measures: list[Measure], **columns: Any) -> list[tuple[str, str, int]]:
    """Attack, sign and samples against, of what is shown."""
    found = observed_attacks(plan_of(measures), scores_of(measures, columns), {})
    return [(each.attack, shown.count.sign.value, shown.count.against) for each in found for shown in each.findings]


def plan_of(measures: list[Measure]) -> ModelPlan:
    context = Context(SampleSpec("npz:x"), "digest", N, "/cache", 100, 10, 0)
    return plan_model(ModelSpec("m", "torchscript:m.pt"), "weights", tuple(measures), context)


def scores_of(measures: list[Measure], columns: dict[str, Any]) -> Scores:
    """Attacks that break nothing on correct samples, each of a class of its own, then what the test changes."""
    scores: Scores = {"label": np.arange(N)}
    for measure in measures:
        keys = [series.key for series in measure.series()]
        scores |= {**dict.fromkeys(keys, ONES), f"{keys[0]}:correct": ONES, f"{keys[0]}:zero_gradient": 0 * ONES}
        scores[f"{keys[0]}:censored"] = 0 * ONES
    return {**scores, **columns}


def test_an_audit_without_attacks_has_no_findings() -> None:
    assert observed_attacks(plan_of([Great()]), scores_of([Great()], {}), {}) == ()
    assert attack_notes(()) == ()


def test_healthy_attacks_have_no_findings() -> None:
    measures = [Pgd(epsilons=(0.01, 8 / 255)), Cw(), Square(), AutoAttackSurvival(), Minimal()]
    pgd = {f"pgd20/{BALL}": HALF, f"cw20/{BALL}": HALF, f"autoattack/{BALL}": 0 * ONES}
    assert signs(measures, **pgd, **{f"pr/uniform-{8 / 255:.5f}": ONES}) == []


def test_autoattack_beating_pgd_is_no_sign() -> None:
    assert signs([Pgd(), AutoAttackSurvival()], **{f"autoattack/{BALL}": 0 * ONES}) == []


def test_zero_gradients_are_told_once_a_measure() -> None:
    zero = {"pgd20/linf-0.01000:zero_gradient": ONES, "minimal/l2:zero_gradient": HALF}
    found = signs([Pgd(epsilons=(0.01, 8 / 255)), Minimal()], **zero)
    assert found == [("pgd20", "zero-gradient", 100), ("minimal", "zero-gradient", 50)]


@pytest.mark.parametrize("kind", ["uniform", "gaussian", "laplace"])
def test_noise_in_the_same_ball(kind: Literal["uniform", "gaussian", "laplace"]) -> None:
    noise, draws = np.where(np.arange(N) < 10, 0.98, 1.0), Pr(noise=kind, radii=(8 / 255,))
    (series,) = draws.series()
    assert signs([Pgd(), draws], **{series.key: noise}) == [("pgd20", "weaker-than-noise", 10)]
    assert signs([Cw(), Pgd(norm="L2", epsilons=8 / 255), draws], **{series.key: noise}) == [
        ("cw20", "weaker-than-noise", 10)
    ]


@pytest.mark.parametrize(
    "measure",
    [
        Pr(radii=(16 / 255,)),
        Pr(perturbation="rotation", radii=(8 / 255,)),
        Radius(sigma=8 / 255),
        ProbAcc(radii=(8 / 255,)),
        Rare(radii=(8 / 255,)),
    ],
    ids=lambda measure: str(measure.name),
)
def test_noise_elsewhere_and_other_numbers_of_noise_say_nothing(measure: Measure) -> None:
    assert signs([Pgd(), measure], **{series.key: 0 * ONES for series in measure.series()}) == []


def test_black_box_in_the_same_ball() -> None:
    assert signs([Pgd(), Square()], **{f"square500/{BALL}": HALF}) == [("pgd20", "weaker-than-black-box", 50)]
    assert signs([Pgd(epsilons=0.01), Square()], **{f"square500/{BALL}": HALF}) == []


def test_the_same_attack_with_fewer_steps() -> None:
    both = [Pgd(steps=10), Pgd(steps=20)]
    assert signs(both, **{f"pgd10/{BALL}": HALF}) == [("pgd20", "weaker-than-shorter", 50)]


def test_the_same_steps_under_another_loss() -> None:
    both = [Cw(), Pgd()]
    assert signs(both, **{f"cw20/{BALL}": HALF}) == [("pgd20", "weaker-than-other-loss", 50)]
    assert signs(both, **{f"pgd20/{BALL}": HALF}) == [("cw20", "weaker-than-other-loss", 50)]
    assert signs([Cw(steps=30), Pgd()], **{f"cw30/{BALL}": HALF}) == [], "more steps may break more"
    assert signs([Cw(norm="L2"), Pgd()], **{f"cw20/l2-{8 / 255:.5f}": HALF}) == []


def test_square_within_autoattack() -> None:
    """Its authors allow Square to gain 0.2 % over the gradient attacks."""
    key, codes = f"autoattack/{BALL}:broken_by", np.full(N, -1)
    codes[:4] = 4
    assert signs([AutoAttackSurvival()], **{key: codes}) == [("autoattack", "square-gain", 4)]
    codes[1:] = 1
    assert signs([AutoAttackSurvival()], **{key: codes}) == [], "one sample is chance"


def test_everything_censored() -> None:
    assert signs([Minimal()], **{"minimal/l2:censored": ONES}) == [("minimal", "all-censored", 100)]
    assert signs([Minimal()], **{"minimal/l2:censored": HALF}) == []


def test_a_ball_that_holds_any_image() -> None:
    measures: list[Measure] = [Pgd(epsilons=(0.1, 0.5))]
    assert signs(measures) == [("pgd20", "survives-unbounded", 100)]
    assert signs(measures, **{"pgd20/linf-0.50000": 0 * ONES}) == []


def test_what_a_probe_saw_counts_as_well() -> None:
    plan = plan_of([Pgd()])
    seen = ProbeSeen(64, (SignCount(Sign.TRANSFER, 20, 64, 1, probe=True),))
    (attack,) = observed_attacks(plan, scores_of([Pgd()], {}), {plan.tables[0].key: seen})
    assert [finding.count for finding in attack.findings] == list(seen.counts)
    (result,) = attack_results([attack], plan, {plan.tables[0].key: seen})
    assert (result.adequacy, result.probed) == ("inadequate", 64)
    assert [sign.sign for sign in result.signs if sign.shown] == ["weaker-than-transfer"]


def test_the_record_of_an_attack() -> None:
    """Every sign that was looked for is in it, with Holm's p-value, and a note where one shows."""
    measures: list[Measure] = [Pgd(), Square()]
    plan, scores = plan_of(measures), scores_of(measures, {f"square500/{BALL}": HALF})
    results = attack_results(observed_attacks(plan, scores, {}), plan, {})
    assert [(result.name, result.series, result.adequacy) for result in results] == [
        ("pgd20", (f"pgd20/{BALL}",), "inadequate"),
        ("square500", (f"square500/{BALL}",), "unknown"),
    ]
    zeros, scores_alone = results[0].signs
    assert (zeros.sign, zeros.against, zeros.favour, zeros.counted, zeros.shown) == (
        "zero-gradient",
        0,
        None,
        100,
        False,
    )
    assert (scores_alone.sign, scores_alone.against, scores_alone.favour) == ("weaker-than-black-box", 50, 0)
    assert scores_alone.shown and scores_alone.p_value == pytest.approx(0.5**50 / 0.8)
    (note,) = attack_notes(results)
    assert note.startswith("pgd20 was inadequate on this model") and scores_alone.sentence in note
