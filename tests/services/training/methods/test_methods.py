"""Every method's loss against an independent computation on a linear network, whose gradients are written by hand."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from services.errors import ConfigError
from services.training.methods import METHODS, method_from
from services.training.methods.method import Method
from tests.services.training.methods.linear_case import BUDGET, Array, Case, D, K, N, cvar, drawn, raised


def trades(case: Case) -> float:
    return float(np.mean(case.ce(case.x) + 6 * case.kl(case.attacked("kl"))))


def mart(case: Case) -> float:
    at = case.attacked("ce")
    p, own = case.p(at), np.eye(K, dtype=bool)[case.y]
    boosted = -np.log(p[own]) - np.log(1 - np.where(own, 0, p).max(1))
    return float(np.mean(boosted + 5 * case.kl(at) * (1 - case.p(case.x)[own])))


def pair(case: Case, *, clean: bool) -> float:
    at = case.attacked("ce")
    distance = ((case.p(case.x) - case.p(at)) ** 2).sum(1)
    return float(np.mean(case.ce(case.x if clean else at) + distance))


def logit_pair(case: Case) -> float:
    at = case.attacked("ce")
    distance = np.sqrt((((case.x - at) @ case.w.T) ** 2).sum(1))
    return float(np.mean(case.ce(at) + 0.01 * distance))


def at_pr(case: Case) -> float:
    source = torch.Generator().manual_seed(9)
    rows = torch.rand(4, 3, generator=source).tolist()
    budgets = [(0.2 - 0.02 * r, 0.07 + 0.003 * (2 * s - 1), max(1, 1 + int(8 * n))) for r, s, n in rows]
    candidates = []
    for radius, step, steps in [(0.2, 0.07, 3), *budgets]:
        start = torch.empty(N, D, dtype=torch.float64).uniform_(-1, 1, generator=source).numpy()
        candidates.append(case.attacked("ce", radius, start, steps, step))
    chosen = [int(np.argmax([case.way_back(x[i], i) for x in candidates])) for i in range(N)]
    assert len(set(chosen)) > 2
    return float(np.mean([case.ce(candidates[c])[i] for i, c in enumerate(chosen)]))


def bat(case: Case) -> float:
    pairs = [case.boundary_pair(i) for i in range(N)]
    assert {kind for _, _, kind in pairs} == {"never", "start", "crossed"}
    inside, beyond = (np.stack([pair[side] for pair in pairs]) for side in (0, 1))
    leaning = sum(np.sum(case.p(x) * np.log(K * case.p(x)), axis=1) for x in (inside, beyond))
    return float(np.mean(case.ce(inside) + 6 * case.kl(beyond) + leaning))


def awp_trades(case: Case) -> float:
    at, h = case.attacked("kl"), 1e-6

    def loss(of: Case) -> float:
        return float(np.mean(of.ce(of.x) + 6 * of.kl(at)))

    gradient = np.zeros((K, D))
    for place in np.ndindex(K, D):
        ends = []
        for sign in (1, -1):
            other = Case()
            other.w[place] += sign * h
            ends.append(loss(other))
        gradient[place] = (ends[0] - ends[1]) / (2 * h)
    return loss(raised(case, 0.02, gradient))


def evar(case: Case) -> float:
    grid = np.exp(np.linspace(-4, 8, 40_001))[:, None]

    def one(row: Array) -> float:
        top = row.max()
        return float(np.min(top + (np.log(np.exp(grid * (row - top)).mean(1)) - np.log(0.1)) / grid[:, 0]))

    return float(np.mean([one(row) for row in drawn(case)]))


ORACLES: dict[str, tuple[dict[str, Any], Callable[[Case], float]]] = {
    "erm": ({}, lambda case: float(case.ce(case.x).mean())),
    "pgd": ({"budget": BUDGET}, lambda case: float(case.ce(case.attacked("ce")).mean())),
    "kl-pgd": ({"budget": BUDGET}, lambda case: float(case.ce(case.attacked("kl")).mean())),
    "trades": ({"budget": BUDGET}, trades),
    "mart": ({"budget": BUDGET}, mart),
    "alp": ({"budget": BUDGET}, lambda case: pair(case, clean=False)),
    "clp": ({"budget": BUDGET}, lambda case: pair(case, clean=True)),
    "at-pr": ({"budget": BUDGET}, at_pr),
    "awp": ({"budget": BUDGET, "gamma": 0.02}, awp_trades),
    "bat": ({"budget": BUDGET}, bat),
    "cvar": ({"radius": 0.2}, cvar),
    "evar": ({"radius": 0.2}, evar),
    "corruption": ({"radius": 0.2}, lambda case: float(case.ce(np.clip(case.x + 0.2 * case.starts()[0], 0, 1)).mean())),
    "filtered-trades": ({"base": {"budget": BUDGET}, "by": "lead", "margin": 1.0}, trades),
}


@pytest.mark.parametrize("name", ORACLES)
def test_the_loss_is_that_of_an_independent_computation(name: str) -> None:
    fields, oracle = ORACLES[name]
    case = Case()
    loss = method_from({"name": name, **fields}).step(case.network, case.batch()).loss
    assert float(loss.detach()) == pytest.approx(oracle(case), rel=1e-6)


def test_pairing_of_logits_is_that_of_the_public_code() -> None:
    case = Case()
    method = method_from({"name": "alp", "budget": BUDGET, "pairing": "logits", "weight": 0.01})
    assert float(method.step(case.network, case.batch()).loss.detach()) == pytest.approx(logit_pair(case), rel=1e-6)


def test_fields_that_came_later_leave_no_trace_at_their_defaults() -> None:
    """Trials that were trained before there were any keep their keys."""
    assert "pairing" not in method_from("alp").canonical() and "spread" not in method_from("corruption").canonical()
    chosen = method_from({"name": "clp", "pairing": "logits"})
    assert method_from(chosen.canonical()) == chosen


def test_uniform_noise_has_no_spread() -> None:
    with pytest.raises(ConfigError, match=r"no spread for uniform noise, which fills the radius"):
        method_from({"name": "corruption", "spread": 1.0})


@pytest.mark.parametrize("name", METHODS.names())
def test_every_method_gives_a_gradient_and_the_same_loss_twice(name: str) -> None:
    method, case = method_from(name), Case()
    losses = []
    for _ in range(2):
        case.network.zero_grad()
        result = method.step(case.network, case.batch(method.initial_state(K)))
        result.loss.backward()  # type: ignore[no-untyped-call]
        losses.append(float(result.loss.detach()))
    gradients = [p.grad for p in case.network.parameters()]
    assert losses[0] == losses[1]
    assert all(g is not None and torch.isfinite(g).all() and g.abs().sum() > 0 for g in gradients)


def test_canonical_json_gives_the_method_back() -> None:
    for name in METHODS.names():
        method = method_from(name)
        assert method_from(method.canonical()) == method
        assert isinstance(method, Method)


def test_mistakes_are_listed_together_with_their_paths() -> None:
    with pytest.raises(ConfigError) as error:
        method_from({"name": "trades", "beta": -1, "budget": {"steps": 0}, "alpha": 1}, where="sweep.methods[0]")
    wheres = {problem.where for problem in error.value.problems}
    assert wheres == {"sweep.methods[0].beta", "sweep.methods[0].budget.steps", "sweep.methods[0].alpha"}
    with pytest.raises(ConfigError, match="did you mean 'trades'"):
        method_from("trade")
    with pytest.raises(ConfigError, match="random_start"):
        method_from({"name": "trades", "budget": {"random_start": False}})
    with pytest.raises(ConfigError, match="a mapping with a `name`"):
        method_from({"beta": 1})


def test_validating_a_sweep_imports_no_torch() -> None:
    code = (
        "import sys\nfrom services.training.methods import METHODS, method_from\n"
        "from services.training.recipe import Recipe\n"
        "[method_from(name) for name in METHODS.names()]; Recipe()\nsys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
