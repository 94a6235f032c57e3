"""Class weights of the likelihood ball of FAAL."""

from __future__ import annotations

import numpy as np
import pytest

from services.training.methods import method_from
from tests.services.training.methods.linear_case import BUDGET, Case, K, N


@pytest.mark.parametrize(
    ("tau", "by", "base"),
    [
        (0.5, "loss", "pgd"),
        (0.5, "margin", "pgd"),
        (0.0, "loss", "pgd"),
        (3.0, "loss", "pgd"),
        (0.5, "margin", "trades"),
    ],
)
def test_faal_weighs_the_worst_classes(tau: float, by: str, base: str) -> None:
    from scipy.optimize import minimize

    case = Case()
    case.y = np.array([0, 0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 3])
    at = case.attacked("ce" if base == "pgd" else "kl")
    p, own = case.p(at), np.eye(K, dtype=bool)[case.y]
    losses = case.ce(at) if base == "pgd" else case.ce(case.x) + 6 * case.kl(at)
    scores = losses if by == "loss" else np.where(own, 0, p).max(1) - p[own]
    means, judged = (np.array([v[case.y == k].mean() for k in range(K)]) for v in (losses, scores))
    q = minimize(
        lambda q: -q @ judged,
        np.full(K, 1 / K),
        bounds=[(1e-9, 1)] * K,
        constraints=[
            {"type": "eq", "fun": lambda q: q.sum() - 1},
            {"type": "ineq", "fun": lambda q: tau + np.mean(np.log(q * K))},
        ],
        options={"ftol": 1e-13, "maxiter": 500},
    ).x
    method = method_from({"name": "faal", "base": base, "budget": BUDGET, "tau": tau, "by": by})
    loss = float(method.step(case.network, case.batch()).loss.detach())
    assert loss == pytest.approx(float(q @ means), rel=1e-3)


def test_faal_ignores_classes_that_a_batch_lacks() -> None:
    case = Case()
    case.y = np.zeros(N, int)
    loss = method_from({"name": "faal", "budget": BUDGET}).step(case.network, case.batch()).loss
    assert float(loss.detach()) == pytest.approx(case.ce(case.attacked("ce")).mean(), rel=1e-6)
