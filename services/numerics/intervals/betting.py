"""Bounds on a mean by betting: the hedged capital process of WSR (arXiv 2010.09686, Theorem 3).

For values x_t in [0, 1] with mean mu, the capital ``K_t(m) = prod_{i <= t} (1 + lambda_i(m) (x_i - m))`` of a gambler
who bets that the mean exceeds m is a non-negative martingale when m = mu, as each bet lambda_i depends on the past
only. By Ville's inequality it ever reaches 1/alpha with probability at most alpha. So ``L = sup {m : max_t K_t(m) >=
1/alpha}`` is a lower bound with confidence 1 - alpha, *simultaneously for all t*: with bets that know no horizon it
may be looked at after every sample.

Bets are ``lambda_t(m) = min(sqrt(2 log(1/alpha) / (v_{t-1} h_t)), c / m)``, v the running variance, ``h_t = n`` for a
fixed n and ``t log(t + 1)`` without a horizon (WSR eqs. 24 and 26). Each factor falls in m: below the truncation its
slope is
-lambda, beyond it ``1 - c + c x / m``. So the capital falls in m, the rejected set is an interval [0, L], and bisection
finds its end; the end returned is the rejected side, so numerical error widens the bound.
"""

from __future__ import annotations

import numpy as np

from services.numerics.arguments import Bools, Floats

TRUNCATION = 0.75
"""c: the largest share of its capital that a bet puts at risk (WSR use 1/2 and 3/4)."""

_STEPS = 34
"""Halvings of [0, 1]: the bound is at most 6e-11 wider than the exact one."""


def bet_sizes(values: Floats, mask: Bools, alpha: float, *, anytime: bool = False) -> Floats:
    """Predictable bets before truncation, (G, n): row g bets on values[g, mask[g]] in column order.

    ``v_t = (1/4 + sum_{i <= t} (x_i - mu_i)**2) / (t + 1)`` with ``mu_t = (1/2 + sum_{i <= t} x_i) / (t + 1)``.
    """
    drawn = np.cumsum(mask, axis=1)
    mean = (0.5 + np.cumsum(np.where(mask, values, 0.0), axis=1)) / (drawn + 1)
    spread = np.cumsum(np.where(mask, (values - mean) ** 2, 0.0), axis=1)
    variance = np.empty_like(spread)
    variance[:, 0] = 0.25
    variance[:, 1:] = (0.25 + spread[:, :-1]) / (drawn[:, :-1] + 1)
    turn = np.maximum(drawn, 1)
    horizon = turn * np.log(turn + 1.0) if anytime else np.maximum(drawn[:, -1:], 1)
    return np.where(mask, np.sqrt(-2.0 * np.log(alpha) / (variance * horizon)), 0.0)


def log_capital(values: Floats, bets: Floats, candidate: Floats) -> Floats:
    """(G,) the highest log capital over time, at candidate means (G,) in [0, 1]; at least 0, the capital at the start.

    Masked columns have bet 0 and so factor 1.
    """
    mean = candidate[:, None]
    with np.errstate(divide="ignore"):
        stake = np.minimum(bets, TRUNCATION / mean)
    path = np.cumsum(np.log1p(stake * (values - mean)), axis=1)
    return np.asarray(np.maximum(path.max(axis=1), 0.0))


def lower_bound(values: Floats, mask: Bools, alpha: float, *, anytime: bool = False) -> Floats:
    """(G,) one-sided lower bounds on the means of rows of values (G, n) in [0, 1], each with confidence 1 - alpha.

    Samples of a row must be independent with one mean, in an order that does not depend on their values. With
    `anytime`, the guarantee holds at all sample sizes jointly.
    """
    if values.shape[1] == 0:
        return np.zeros(values.shape[0])
    bets = bet_sizes(values, mask, alpha, anytime=anytime)
    target = -np.log(alpha)
    low, high = np.zeros(values.shape[0]), np.ones(values.shape[0])
    for _ in range(_STEPS):
        middle = 0.5 * (low + high)
        rejected = log_capital(values, bets, middle) >= target
        low, high = np.where(rejected, middle, low), np.where(rejected, high, middle)
    return low


def log_p_value(values: Floats, mask: Bools, null: Floats, alpha: float) -> Floats:
    """(G,) log p-values of "the row's mean is at most `null`" (G,): minus the highest log capital, Ville's inequality.

    `alpha` only tunes the bets; the p-value is valid whatever it is.
    """
    if values.shape[1] == 0:
        return np.zeros(values.shape[0])
    return -log_capital(values, bet_sizes(values, mask, alpha), null)
