"""Fair robust learning: weights and radii of classes that break their constraint."""

from __future__ import annotations

import numpy as np
import pytest

from services.errors import ConfigError
from services.training.counts import ClassCounts
from services.training.methods import method_from
from tests.services.training.methods.linear_case import BUDGET, Case, K, record


@pytest.mark.parametrize("variant", [{}, {"reweight": False}, {"remargin": False}])
def test_frl_moves_weights_and_radii_of_classes_that_break_their_constraint(variant: dict[str, bool]) -> None:
    """Two updates by hand: the second one's multipliers are cut at 0 and scaled to the limit."""
    method = method_from({"name": "frl", "budget": BUDGET, "rate": 2.0, "limit": 0.5, "beta": 3.0, **variant})
    state = method.next_state(method.initial_state(K), record())
    n, clean, robust = np.array([10, 10, 0, 10]), np.array([9, 9, 0, 9]), np.array([5, 1, 0, 10])
    state = method.next_state(state, record(epoch=38))
    margin = {"clean": np.zeros(K), "boundary": np.zeros(K), "margin": np.zeros(K)}
    for rate in (2.0, 1.0):
        for kind, errors, speed in (("clean", n - clean, rate), ("boundary", clean - robust, 2 * rate)):
            gaps = np.where(n > 0, errors / np.maximum(n, 1) - errors.sum() / n.sum() - 0.1, 0)
            moved = np.maximum(margin[kind] + speed * gaps, 0)
            margin[kind] = moved * min(1, 0.5 / moved.sum()) if moved.sum() else moved
        margin["margin"] = margin["margin"] + 0.1 * gaps
    assert {name: pytest.approx(tuple(values)) for name, values in margin.items()} == state
    assert sum(state["boundary"]) == pytest.approx(0.5) and min(state["boundary"]) == 0
    case, own = Case(), np.ones(K) / K
    u, v = (own + margin[kind] - margin[kind].mean() for kind in ("clean", "boundary"))
    u, v = (own, own) if variant.get("reweight") is False else (u, v)
    factor = np.clip(np.exp(2 * margin["margin"]), 0.98, 3)
    factor = np.ones(K) if variant.get("remargin") is False else factor
    at = case.attacked("kl", radius=0.2 * factor[case.y])
    want = (u[case.y] * case.ce(case.x) + 3 * v[case.y] * case.kl(at)).sum() / (u[case.y] + v[case.y]).sum()
    assert float(method.step(case.network, case.batch(state)).loss.detach()) == pytest.approx(want, rel=1e-5)


def test_frl_demands_clean_and_attacked_images_of_a_held_out_split() -> None:
    method = method_from("frl")
    for held in (None, ClassCounts((1,) * K, clean=(1,) * K)):
        with pytest.raises(ConfigError, match="method frl: expected clean and attacked images of a held-out split"):
            method.next_state(method.initial_state(K), record(validation=held))
