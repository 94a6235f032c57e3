"""Tail risks of a finite sample as weights on its values: CVaR, EVaR and the worst distribution in a KL ball.

All three are `max_q sum_j q_j v_j` over a set of distributions q around the uniform one, and by the envelope theorem
the gradient of the maximum is that of the weighted sum with q held fixed. So each is computed as its maximising q,
exactly (CVaR) or by bisection to machine precision (KL ball), without any inner stochastic descent.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

BISECTIONS = 60
SPAN = 30.0
"""Half-width of the bisection in the natural logarithm of the tilt, whose unit is the range of the values."""


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
    exact = values.double()
    below = exact - exact.amax(1, keepdim=True)
    spread = (-below).amax(1, keepdim=True).clamp(min=torch.finfo(torch.float64).tiny)
    scaled = below / spread
    low = torch.full_like(spread, -SPAN)
    high = torch.full_like(spread, SPAN)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        inside = _divergence(scaled * middle.exp()) <= radius
        low, high = torch.where(inside, middle, low), torch.where(inside, high, middle)
    return torch.softmax(scaled * low.exp(), dim=1).to(values.dtype)


def evar_weights(values: Tensor, tail: float) -> Tensor:
    """The weights whose sum with `values` (n, M) along the rows is EVaR at level 1 - tail.

    `EVaR = inf_{t > 0} log(mean_j exp(t v_j) / tail) / t`, which is the largest mean over distributions with
    `KL(q || uniform) <= log(1 / tail)` (Ahmadi-Javid 2012, theorem 3.3); so CVaR <= EVaR <= max.
    """
    return kl_ball_weights(values, math.log(1 / tail))


def _divergence(tilted: Tensor) -> Tensor:
    logs = torch.log_softmax(tilted, dim=1)
    weighted = torch.where(logs > -700, logs.exp() * logs, 0.0)
    return weighted.sum(1, keepdim=True) + math.log(tilted.shape[1])
