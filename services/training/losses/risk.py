"""Tail risks of a finite sample as weights on its values: CVaR, EVaR and the worst distribution in either KL ball.

All of them are `max_q sum_j q_j v_j` over a set of distributions q around the uniform one, and by the envelope theorem
the gradient of the maximum is that of the weighted sum with q held fixed. So each is computed as its maximising q,
exactly (CVaR) or by bisection to machine precision (KL balls), without any inner stochastic descent.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

BISECTIONS = 60
SPAN = 30.0
"""Half-width of the bisection in the natural logarithm of a tilt or a gap, whose unit is the range of the values."""


def cvar_weights(values: Tensor, tail: float) -> Tensor:
    """The weights whose sum with `values` (n, M) along the rows is CVaR at level 1 - tail.

    `CVaR = min_a a + mean_j (v_j - a)_+ / tail`; at the optimum a is the (1 - tail) empirical quantile, which gives the
    r-th largest of M values (r = 0, 1, ...) the weight `clip(tail M - r, 0, 1) / (tail M)`: the mean of the worst
    `tail M` values, the last one counted in part. Robey et al. 2022, eq. 4.3, solved exactly.
    """
    mass = tail * values.shape[1]
    ranks = torch.arange(values.shape[1], dtype=values.dtype, device=values.device)
    sorted_weights = (mass - ranks).clamp(0, 1) / mass
    order = values.argsort(dim=1, descending=True, stable=True)
    return torch.zeros_like(values).scatter(1, order, sorted_weights.expand_as(values))


@torch.no_grad()
def kl_ball_weights(values: Tensor, radius: float) -> Tensor:
    """The distribution q (n, M) that maximises `sum_j q_j v_j` subject to `KL(q || uniform) <= radius`.

    It is `q_j ~ exp(t v_j)`; KL grows with t, from 0 to log(M / multiplicity of the largest), and t is found by
    bisection. A radius beyond that puts all weight on the largest values; constant values give the uniform one.
    """
    scaled = _scaled(values)
    tilt = _largest(lambda t: _divergence(scaled * t.exp()) <= radius, scaled)
    return torch.softmax(scaled * tilt.exp(), dim=1).to(values.dtype)


@torch.no_grad()
def likelihood_ball_weights(values: Tensor, radius: float) -> Tensor:
    """The distribution q (n, M) that maximises `sum_j q_j v_j` subject to `KL(uniform || q) <= radius`.

    The stationary points of its Lagrangian are `q_j ~ 1 / (max v + g - v_j)`; KL falls with the gap g, from infinity
    to 0, and g is found by bisection. So every q_j is positive; constant values give the uniform distribution.
    """
    below = -_scaled(values)

    def logs(narrowing: Tensor) -> Tensor:
        return torch.log_softmax(-torch.log(below + torch.exp(-narrowing)), dim=1)

    def inside(narrowing: Tensor) -> Tensor:
        return -logs(narrowing).mean(1, keepdim=True) - math.log(values.shape[1]) <= radius

    return logs(_largest(inside, below)).exp().to(values.dtype)


def evar_weights(values: Tensor, tail: float) -> Tensor:
    """The weights whose sum with `values` (n, M) along the rows is EVaR at level 1 - tail.

    `EVaR = inf_{t > 0} log(mean_j exp(t v_j) / tail) / t`, which is the largest mean over distributions with
    `KL(q || uniform) <= log(1 / tail)` (Ahmadi-Javid 2012, theorem 3.3); so CVaR <= EVaR <= max.
    """
    return kl_ball_weights(values, math.log(1 / tail))


def _scaled(values: Tensor) -> Tensor:
    """Values (n, M) in double precision, shifted and scaled by row to [-1, 0]; constant rows are 0."""
    exact = values.double()
    below = exact - exact.amax(1, keepdim=True)
    return below / (-below).amax(1, keepdim=True).clamp(min=torch.finfo(torch.float64).tiny)


def _largest(inside: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
    """The largest number (n, 1) in [-SPAN, SPAN] at which `inside` holds, which it stops to do as the number grows."""
    low, high = torch.full_like(rows[:, :1], -SPAN), torch.full_like(rows[:, :1], SPAN)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        kept = inside(middle)
        low, high = torch.where(kept, middle, low), torch.where(kept, high, middle)
    return low


def _divergence(tilted: Tensor) -> Tensor:
    logs = torch.log_softmax(tilted, dim=1)
    weighted = torch.where(logs > -700, logs.exp() * logs, 0.0)
    return weighted.sum(1, keepdim=True) + math.log(tilted.shape[1])
