"""Logits adjusted by the shares of the classes."""

from __future__ import annotations

import numpy as np
import pytest

from services.errors import ConfigError
from services.training.methods import method_from
from tests.services.training.methods.linear_case import BUDGET, RARE, Array, Case, N


def adjusted(case: Case, x: Array, prior: Array) -> Array:
    z = x @ case.w.T + case.b + np.log(prior)
    return np.log(np.exp(z).sum(1)) - z[np.arange(N), case.y]


@pytest.mark.parametrize("base", ["erm", "pgd", "trades"])
@pytest.mark.parametrize("rates", [(), (0.2, 0.2, 0.4, 0.1)])
def test_logits_are_adjusted_by_the_shares_of_the_classes(base: str, rates: tuple[float, ...]) -> None:
    case, prior = Case(), np.array(rates or RARE) ** 0.5  # tau is 0.5; a common factor cancels
    want = {
        "erm": lambda: adjusted(case, case.x, prior),
        "pgd": lambda: adjusted(case, case.attacked("ce"), prior),
        "trades": lambda: adjusted(case, case.x, prior) + 6 * case.kl(case.attacked("kl")),
    }[base]()
    method = method_from({"name": "logit-adjusted", "base": base, "budget": BUDGET, "tau": 0.5, "rates": list(rates)})
    assert float(method.step(case.network, case.batch()).loss.detach()) == pytest.approx(want.mean(), rel=1e-6)


def test_rates_of_another_number_of_classes_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"\(rates\): expected 4 positive numbers, one a class, found 3"):
        method_from({"name": "logit-adjusted", "rates": [1, 1, 1]}).step(Case().network, Case().batch())
