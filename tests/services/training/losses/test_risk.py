"""CVaR, EVaR and the KL ball against closed forms, against scipy, and as invariants."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from services.training.losses.risk import cvar_weights, evar_weights, kl_ball_weights, likelihood_ball_weights

# Multiples of 1/8: a difference below the resolution of float32 is a tie to the code and not to the oracle.
VALUES = st.lists(st.integers(-160, 160).map(lambda eighths: eighths / 8), min_size=2, max_size=12)


def total(weights: torch.Tensor, values: torch.Tensor) -> float:
    return float((weights * values).sum())


def cvar(values: list[float], tail: float) -> float:
    row = torch.tensor([values], dtype=torch.float64)
    return total(cvar_weights(row, tail), row)


def evar(values: list[float], tail: float) -> float:
    row = torch.tensor([values], dtype=torch.float64)
    return total(evar_weights(row, tail), row)


def normal_scores(count: int) -> list[float]:
    return stats.norm.ppf((np.arange(count) + 0.5) / count).tolist()


def test_cvar_of_a_constant_loss_is_that_loss() -> None:
    assert cvar([5.0] * 20, 0.1) == pytest.approx(5.0, abs=1e-12)


def test_evar_of_a_constant_loss_is_that_loss() -> None:
    assert evar([5.0] * 20, 0.1) == pytest.approx(5.0, abs=1e-12)


def test_cvar_is_the_mean_of_the_worst_draws() -> None:
    assert cvar([float(k) for k in range(20)], 0.1) == pytest.approx(18.5)


def test_cvar_counts_the_last_draw_in_part() -> None:
    assert cvar([0.0, 1.0, 2.0, 3.0], 0.375) == pytest.approx((3 + 0.5 * 2) / 1.5)


def test_a_tail_smaller_than_one_draw_is_the_worst_draw() -> None:
    assert cvar([0.0, 7.0, 2.0], 0.01) == pytest.approx(7.0)


@pytest.mark.parametrize("tail", [0.05, 0.1, 0.5])
def test_gaussian_closed_forms(tail: float) -> None:
    scores = normal_scores(100_001)
    assert cvar(scores, tail) == pytest.approx(stats.norm.pdf(stats.norm.ppf(tail)) / tail, abs=2e-3)
    assert evar(scores, tail) == pytest.approx(math.sqrt(-2 * math.log(tail)), abs=6e-3)


@settings(max_examples=30, deadline=None)
@given(values=VALUES, tail=st.floats(0.02, 0.98))
def test_cvar_is_the_minimum_over_the_threshold(values: list[float], tail: float) -> None:
    objective = [a + np.maximum(np.array(values) - a, 0).mean() / tail for a in values]
    assert cvar(values, tail) == pytest.approx(min(objective), abs=1e-6)


@settings(max_examples=30, deadline=None)
@given(values=VALUES, tail=st.floats(0.02, 0.98))
def test_evar_is_the_minimum_over_the_tilt(values: list[float], tail: float) -> None:
    row = np.array(values)

    def bound(log_t: float) -> float:
        t = math.exp(log_t)
        return float(np.logaddexp.reduce(t * row) - math.log(len(row)) - math.log(tail)) / t

    result = min(
        optimize.minimize_scalar(bound, bounds=(low, low + 6), method="bounded", options={"xatol": 1e-10}).fun
        for low in range(-12, 12, 4)
    )
    assert evar(values, tail) == pytest.approx(result, abs=1e-4)
    assert evar(values, tail) <= result + 1e-6


@settings(max_examples=30, deadline=None)
@given(values=VALUES, tail=st.floats(0.02, 0.98))
def test_mean_cvar_evar_and_maximum_are_in_order(values: list[float], tail: float) -> None:
    chain = [np.mean(values), cvar(values, tail), evar(values, tail), max(values)]
    assert all(a <= b + 1e-6 for a, b in pairwise(chain))


@settings(max_examples=30, deadline=None)
@given(values=VALUES, radius=st.floats(0, 3))
def test_the_ball_is_kept_and_met_where_it_binds(values: list[float], radius: float) -> None:
    q = kl_ball_weights(torch.tensor([values], dtype=torch.float64), radius)[0].numpy()
    spent = float(np.sum(np.where(q > 0, q * np.log(np.maximum(q, 1e-300) * len(q)), 0)))
    assert q.sum() == pytest.approx(1)
    assert spent <= radius + 1e-9
    if max(values) - min(values) > 1e-3:
        assert spent == pytest.approx(min(radius, math.log(len(q) / values.count(max(values)))), abs=0.05)


@pytest.mark.parametrize(
    ("ball", "spent"),
    [
        (kl_ball_weights, lambda q: np.sum(q * np.log(q * 5))),
        (likelihood_ball_weights, lambda q: -np.mean(np.log(q * 5))),
    ],
)
def test_the_worst_distribution_beats_every_other_in_the_ball(ball: Any, spent: Any) -> None:
    values, radius = np.array([0.3, -0.2, 1.4, 0.9, 0.1]), 0.4
    result = optimize.minimize(
        lambda q: -q @ values,
        np.full(5, 0.2),
        bounds=[(1e-9, 1)] * 5,
        constraints=[
            {"type": "eq", "fun": lambda q: q.sum() - 1},
            {"type": "ineq", "fun": lambda q: radius - spent(q)},
        ],
        options={"ftol": 1e-13, "maxiter": 500},
    )
    row = torch.from_numpy(values)[None]
    assert total(ball(row, radius), row) == pytest.approx(-result.fun, abs=1e-6)


@pytest.mark.parametrize("radius", [0.0, 0.1, 0.5, 2.0])
def test_the_likelihood_ball_of_two_values_in_closed_form(radius: float) -> None:
    q = likelihood_ball_weights(torch.tensor([[-1.0, 3.0]], dtype=torch.float64), radius)[0]
    want = (1 + math.sqrt(1 - math.exp(-2 * radius))) / 2
    assert q.tolist() == pytest.approx([1 - want, want], abs=1e-7)


@settings(max_examples=30, deadline=None)
@given(values=VALUES, radius=st.floats(0, 3))
def test_the_likelihood_ball_is_met_and_favours_larger_values(values: list[float], radius: float) -> None:
    q = likelihood_ball_weights(torch.tensor([values], dtype=torch.float64), radius)[0].numpy()
    spent = float(-np.mean(np.log(len(q) * q)))
    assert q.sum() == pytest.approx(1) and (q > 0).all()
    assert all(q[i] >= q[j] - 1e-12 for i, a in enumerate(values) for j, b in enumerate(values) if a >= b)
    assert spent == pytest.approx(radius if len(set(values)) > 1 else 0, abs=1e-9)


def test_the_gradient_is_that_of_the_risk_itself() -> None:
    values = torch.tensor([[0.2, 1.0, 0.7, -0.4]], dtype=torch.float64)
    for weights in (cvar_weights(values, 0.4), evar_weights(values, 0.4)):
        make = cvar if float(weights.min()) == 0 else evar
        for j in range(4):
            up, down = values[0].tolist(), values[0].tolist()
            up[j], down[j] = up[j] + 1e-5, down[j] - 1e-5
            assert (make(up, 0.4) - make(down, 0.4)) / 2e-5 == pytest.approx(float(weights[0, j]), abs=1e-4)
