"""Signs of masked gradients from the series that an audit happens to have."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest

from jobs.audit.judging.adequacy import masking_facts, masking_findings, masking_notes
from jobs.audit.plan import Context, ModelPlan, plan_model
from services.measures.autoattack import AutoAttackSurvival
from services.measures.base import Measure
from services.measures.cw import Cw
from services.measures.great import Great
from services.measures.minimal import Minimal
from services.measures.pgd import Pgd
from services.measures.probabilistic import Pr, ProbAcc
from services.measures.radius import Radius
from services.measures.rare import Rare
from services.measures.square import Square
from services.records import ModelSpec, SampleSpec
from tracking.bundle.scores import Scores

N = 100
ONES = np.ones(N)
HALF = (np.arange(N) < 50).astype(float)
BALL = "linf-0.03137"


def signs(measures: list[Measure], **columns: Any) -> list[tuple[str, str, int]]:
    findings = masking_findings(plan_of(measures), scores_of(measures, columns))
    return [(key, finding.sign.value, finding.samples) for key, finding in findings]


def plan_of(measures: list[Measure]) -> ModelPlan:
    context = Context(SampleSpec("npz:x"), "digest", N, "/cache", 100, 10, 0)
    return plan_model(ModelSpec("m", "torchscript:m.pt"), "weights", tuple(measures), context)


def scores_of(measures: list[Measure], columns: dict[str, Any]) -> Scores:
    """Attacks that break nothing on correct samples, then what the test changes."""
    scores: Scores = {}
    for measure in measures:
        keys = [series.key for series in measure.series()]
        scores |= {**dict.fromkeys(keys, ONES), f"{keys[0]}:correct": ONES, f"{keys[0]}:zero_gradient": 0 * ONES}
    return {**scores, **columns}


def test_an_audit_without_attacks_has_no_findings() -> None:
    assert signs([Great()]) == []
    assert masking_facts(()) == {} and masking_notes(()) == ()


def test_healthy_attacks_have_no_findings() -> None:
    measures = [Pgd(epsilons=(0.01, 8 / 255)), Cw(), Square(), AutoAttackSurvival(), Minimal()]
    pgd = {f"pgd20/{BALL}": HALF, f"cw20/{BALL}": HALF, f"autoattack/{BALL}": 0 * ONES}
    assert signs(measures, **pgd, **{f"pr/uniform-{8 / 255:.5f}": ONES}) == []


def test_autoattack_beating_pgd_is_no_sign() -> None:
    assert signs([Pgd(), AutoAttackSurvival()], **{f"autoattack/{BALL}": 0 * ONES}) == []


def test_zero_gradients_are_told_once_a_measure() -> None:
    zero = {"pgd20/linf-0.01000:zero_gradient": ONES, "minimal/l2:zero_gradient": HALF}
    result = signs([Pgd(epsilons=(0.01, 8 / 255)), Minimal()], **zero)
    assert result == [("pgd20/linf-0.01000", "zero-gradient", 100), ("minimal/l2", "zero-gradient", 50)]


@pytest.mark.parametrize("kind", ["uniform", "gaussian", "laplace"])
def test_noise_in_the_same_ball(kind: Literal["uniform", "gaussian", "laplace"]) -> None:
    noise, draws = np.where(np.arange(N) < 10, 0.98, 1.0), Pr(noise=kind, radii=(8 / 255,))
    (series,) = draws.series()
    assert signs([Pgd(), draws], **{series.key: noise}) == [(f"pgd20/{BALL}", "weaker-than-noise", 10)]
    assert signs([Cw(), Pgd(norm="L2", epsilons=8 / 255), draws], **{series.key: noise}) == [
        (f"cw20/{BALL}", "weaker-than-noise", 10)
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
    assert signs([Pgd(), Square()], **{f"square500/{BALL}": HALF}) == [(f"pgd20/{BALL}", "weaker-than-black-box", 50)]
    assert signs([Pgd(epsilons=0.01), Square()], **{f"square500/{BALL}": HALF}) == []


def test_the_same_attack_with_fewer_steps() -> None:
    both = [Pgd(steps=10), Pgd(steps=20)]
    assert signs(both, **{f"pgd10/{BALL}": HALF}) == [(f"pgd20/{BALL}", "weaker-than-shorter", 50)]
    assert signs([Cw(steps=10), Pgd()], **{f"cw10/{BALL}": HALF}) == [], "another loss is another attack"


def test_a_ball_that_holds_any_image() -> None:
    measures: list[Measure] = [Pgd(epsilons=(0.1, 0.5))]
    assert signs(measures) == [("pgd20/linf-0.50000", "survives-unbounded", 100)]
    assert signs(measures, **{"pgd20/linf-0.50000": 0 * ONES}) == []


def test_notes_and_facts() -> None:
    measures: list[Measure] = [Pgd(), Square()]
    findings = masking_findings(plan_of(measures), scores_of(measures, {f"square500/{BALL}": HALF}))
    assert masking_notes(findings) == (
        f"pgd20/{BALL}: For 50 of 100 correctly classified samples (50.0%) the gradient attack failed where a "
        "black-box attack in the same ball succeeded.",
    )
    assert masking_facts(findings) == {
        "masking": [{"series": f"pgd20/{BALL}", "sign": "weaker-than-black-box", "samples": 50, "share": 0.5}]
    }
