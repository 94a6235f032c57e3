"""Given weights of the classes."""

from __future__ import annotations

import numpy as np
import pytest

from services.errors import ConfigError
from services.training.methods import method_from
from tests.services.training.methods.linear_case import BUDGET, Case


@pytest.mark.parametrize("base", ["erm", "pgd", "trades"])
def test_given_weights_of_the_classes_multiply_the_loss_of_the_base(base: str) -> None:
    case, weights = Case(), (0.5, 2.0, 0.0, 1.5)
    method = method_from({"name": "weighted", "base": base, "budget": BUDGET, "weights": list(weights)})
    of_base = {
        "erm": lambda: case.ce(case.x),
        "pgd": lambda: case.ce(case.attacked("ce")),
        "trades": lambda: case.ce(case.x) + 6 * case.kl(case.attacked("kl")),
    }
    loss = float(method.step(case.network, case.batch()).loss.detach())
    assert loss == pytest.approx(np.mean(np.array(weights)[case.y] * of_base[base]()), rel=1e-6)
    plain = method_from({"name": "weighted", "base": base, "budget": BUDGET})
    assert float(plain.step(case.network, case.batch()).loss.detach()) == pytest.approx(np.mean(of_base[base]()))


def test_weights_of_another_number_of_classes_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"\(weights\): expected 4 weights, one a class, found 3"):
        method_from({"name": "weighted", "weights": [1, 1, 1]}).step(Case().network, Case().batch())
