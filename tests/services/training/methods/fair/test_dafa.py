"""Distance-aware fair adversarial training."""

from __future__ import annotations

import numpy as np
import pytest

from services.training.counts import ClassCounts
from services.training.methods import method_from
from tests.services.training.methods.linear_case import BUDGET, Case, K, record


@pytest.mark.parametrize("base", ["pgd", "trades"])
def test_dafa_weighs_loss_radius_and_step_by_class(base: str) -> None:
    case, weights = Case(), (0.7, 1.6, 1.0, 1.2)
    w = np.array(weights)[case.y]
    method = method_from({"name": "dafa", "base": base, "budget": BUDGET})
    at = case.attacked("ce" if base == "pgd" else "kl", 0.2 * w, step=0.07 * w[:, None])
    want = w * case.ce(at) if base == "pgd" else w * case.ce(case.x) + 6 * case.kl(at)
    loss = method.step(case.network, case.batch({"weights": weights})).loss
    assert float(loss.detach()) == pytest.approx(want.mean(), rel=1e-5)


def test_dafa_moves_weight_between_classes_that_resemble_each_other() -> None:
    """Weights by a loop over pairs, from probabilities of a training set."""
    rng = np.random.default_rng(2)
    labels = np.repeat(np.arange(K), (30, 10, 20, 40))
    p = rng.dirichlet(np.ones(K), len(labels)) * 0.5
    p[np.arange(len(labels)), labels] += 0.5
    mean = np.stack([p[labels == k].mean(0) for k in range(K)])
    want = np.ones(K)
    for i in range(K):
        for j in range(K):
            if i != j:
                want[i] += (1.5 if mean[i, i] < mean[j, j] else -1.5) * mean[i, j] * mean[j, j]
    assert want.min() < 0.9 and want.max() > 1.1
    sums = tuple(np.stack([p[labels == k].sum(0) for k in range(K)]).flatten().tolist())
    counts = ClassCounts((30, 10, 20, 40), confidence=sums)
    method = method_from({"name": "dafa", "scale": 1.5, "warmup": 0.5})
    assert [method.steers_by_confidence(epoch, 7) for epoch in range(7)] == [epoch == 3 for epoch in range(7)]
    state = method.next_state(method.initial_state(K), record(train=counts))
    assert state == {"weights": pytest.approx(tuple(want))}
    assert method.next_state(state, record()) == state
