"""Class-wise adversarial training: radius and beta by class, from the classes' robust accuracies."""

from __future__ import annotations

import numpy as np
import pytest

from services.training.methods import method_from
from tests.services.training.methods.linear_case import BUDGET, Case, record


@pytest.mark.parametrize("base", ["pgd", "trades"])
def test_cfa_sets_radius_and_beta_by_class(base: str) -> None:
    case, robust = Case(), (0.0, 0.25, 0.5, 1.0)
    method = method_from({"name": "cfa", "base": base, "budget": BUDGET})
    share = np.array(robust)[case.y]
    radius, beta = ((0.3 if base == "trades" else 0.5) + share) * 0.2, (0.5 + share) * 6
    if base == "pgd":
        want = case.ce(case.attacked("ce", radius)).mean()
    else:
        want = np.mean((case.ce(case.x) + beta * case.kl(case.attacked("kl", radius))) / (1 + beta))
    loss = method.step(case.network, case.batch({"robust": robust})).loss
    assert float(loss.detach()) == pytest.approx(want, rel=1e-5)


def test_a_radius_base_that_is_given_is_kept() -> None:
    method = method_from({"name": "cfa", "base": "trades", "radius_base": 0.5})
    assert method_from(method.canonical()) == method
    assert '"radius_base": 0.5' in method.canonical()


def test_cfa_without_history_is_its_base() -> None:
    case = Case()
    losses = [
        float(method_from({"name": name, "budget": BUDGET}).step(case.network, case.batch()).loss.detach())
        for name in ("cfa", "pgd")
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_cfa_learns_the_classes_robust_accuracies() -> None:
    method = method_from("cfa")
    assert method.next_state({}, record()) == {"robust": (0.5, 0.1, 0.5, 1.0)}
    assert method_from({"name": "cfa", "warmup": 2}).next_state({}, record()) == {}
