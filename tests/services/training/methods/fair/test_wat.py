"""Worst-class adversarial training by Hedge."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from services.errors import ConfigError
from services.training.methods import method_from
from tests.services.training.methods.linear_case import BUDGET, Case, K, record


def test_wat_plays_hedge_on_held_out_losses_of_the_classes_and_their_mean() -> None:
    method = method_from({"name": "wat", "budget": BUDGET, "eta": 0.5})
    state = method.next_state(method.initial_state(K), record(held_losses=(8.0, 40.0, 0.0, 1.0)))
    state = method.next_state(state, record(held_losses=(2.0, 0.0, 0.0, 4.0)))
    assert state == {"costs": pytest.approx((1.0, 4.0, 0.0, 0.5, 49 / 30 + 6 / 30))}
    case = Case()
    weights = np.exp(0.5 * np.array(state["costs"]))
    weights = K * weights / weights.sum()
    per_sample = case.ce(case.x) + 6 * case.kl(case.attacked("kl"))
    loss = method.step(case.network, case.batch(state)).loss
    want = np.mean((weights[case.y] + weights[K]) * per_sample)
    assert float(loss.detach()) == pytest.approx(want, rel=1e-6)


@pytest.mark.parametrize("base", ["pgd", "trades"])
def test_wat_costs_the_loss_of_its_base(base: str) -> None:
    case, method = Case(), method_from({"name": "wat", "base": base, "budget": BUDGET})
    want = case.ce(case.attacked("ce")) if base == "pgd" else case.ce(case.x) + 6 * case.kl(case.attacked("kl"))
    losses = method.held_losses(case.network.eval(), case.batch())
    assert losses is not None and losses.detach().numpy() == pytest.approx(want, rel=1e-6)


@pytest.mark.parametrize("change", [{"validation": None, "held_losses": (1.0,) * K}, {"held_losses": None}])
def test_wat_demands_held_out_losses(change: dict[str, Any]) -> None:
    method = method_from("wat")
    with pytest.raises(ConfigError, match="held-out"):
        method.next_state(method.initial_state(K), record(**change))
