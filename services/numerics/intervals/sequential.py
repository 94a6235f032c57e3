"""Sequential tests and confidence sequences for a failure probability, valid at every draw and any stopping time.

After n draws with k failures of probability p, the *evidence* against a hypothesis is a likelihood ratio against kappa,
averaged over a prior on the other side of kappa (a truncated beta mixture; Robbins 1970, Howard et al. 2021):

    E_below(n, k) = int_0^kappa q^k (1-q)^(n-k) dPi(q) / (kappa^k (1-kappa)^(n-k)),  Pi = Beta(a, 1) cut to (0, kappa)
                  = a kappa^-a B(a+k, 1+n-k) I_kappa(a+k, 1+n-k) / (kappa^k (1-kappa)^(n-k))

and E_above with Pi = Beta(a, 1) cut to (kappa, 1). For each q < kappa one factor of the ratio has the expectation
p q / kappa + (1-p) (1-q) / (1-kappa), which is linear in p, 1 at p = kappa and falling: E_below is a non-negative
supermartingale under every p >= kappa, starting at 1. Ville: P(E_below >= 1/alpha at *any* n) <= alpha. So stopping
when E_below >= 1/alpha (certify p < kappa) or E_above >= 1/alpha (certify p > kappa) errs with probability at most
alpha each way, however often one looks. Only one of the two can be wrong for a given p, so they need not share alpha.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, betaincc, betaln, xlog1py, xlogy

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PRIOR_BELOW = 0.5
PRIOR_ABOVE = 0.25


def log_evidence_below(
    draws: ArrayLike, failures: ArrayLike, kappa: ArrayLike, *, prior: float = PRIOR_BELOW
) -> Floats:
    """log E_below: evidence against p >= kappa, that is, for robustness; -inf where there is none. Broadcasts."""
    n, k, kappa = (np.asarray(v) for v in (draws, failures, kappa))
    with np.errstate(divide="ignore"):
        mass = np.log(betainc(prior + k, 1.0 + n - k, kappa))
    scale = np.log(prior) - prior * np.log(kappa)
    return np.asarray(scale + mass + betaln(prior + k, 1.0 + n - k) - xlogy(k, kappa) - xlog1py(n - k, -kappa))


def log_evidence_above(
    draws: ArrayLike, failures: ArrayLike, kappa: ArrayLike, *, prior: float = PRIOR_ABOVE
) -> Floats:
    """log E_above: evidence against p <= kappa; -inf where there is none. Broadcasts."""
    n, k, kappa = (np.asarray(v) for v in (draws, failures, kappa))
    with np.errstate(divide="ignore"):
        mass = np.log(betaincc(prior + k, 1.0 + n - k, kappa))
    scale = np.log(prior) - np.log1p(-(kappa**prior))
    return np.asarray(scale + mass + betaln(prior + k, 1.0 + n - k) - xlogy(k, kappa) - xlog1py(n - k, -kappa))


def upper_sequence(draws: ArrayLike, failures: ArrayLike, alpha: float) -> Floats:
    """One-sided upper confidence sequence for p: P(p <= U_n for all n) >= 1 - alpha. In [k/n, 1]; 1 without draws.

    U_n = sup{kappa : E_below(n, k; kappa) < 1/alpha}, by bisection. The evidence falls with kappa wherever it matters:
    the mirrored prior Beta(1, a) has an increasing hazard, which makes its mean likelihood ratio monotone. So one U_n
    certifies any number of kappas jointly.
    """
    n, k = np.broadcast_arrays(np.asarray(draws), np.asarray(failures))
    low, high = k / np.maximum(n, 1.0), np.ones(n.shape)
    threshold = -np.log(alpha)
    for _ in range(52):
        middle = 0.5 * (low + high)
        rejected = log_evidence_below(n, k, middle) >= threshold
        low, high = np.where(rejected, low, middle), np.where(rejected, middle, high)
    return high


def lower_sequence(draws: ArrayLike, failures: ArrayLike, alpha: float) -> Floats:
    """One-sided lower confidence sequence for p: P(p >= L_n for all n) >= 1 - alpha; the mirror of `upper_sequence`."""
    n = np.asarray(draws)
    return 1.0 - upper_sequence(n, n - np.asarray(failures), alpha)


@dataclass(frozen=True, eq=False)
class Boundary:
    """When a monitored test stops, as a function of the failures k = 0..K-1.

    Attributes:
        kappa, alpha: certify p < kappa or p > kappa, each wrongly with probability at most alpha.
        horizon: the most draws; without a verdict by then a sample is undecided.
        accept_at: (K,) the first n at which k failures certify p < kappa; horizon + 1 when none does.
        reject_until: (K,) the last n at which k failures certify p > kappa; below k when none does. The last entry
            is at least the horizon, so no path leaves the table.
    """

    kappa: float
    alpha: float
    horizon: int
    accept_at: Ints
    reject_until: Ints

    def decide(self, draws: NDArray[Any], failures: NDArray[Any]) -> NDArray[np.int8]:
        """1 certified below kappa, -1 certified above, 0 undecided; for each pair (draws, failures)."""
        k = np.minimum(failures, len(self.accept_at) - 1)
        accept, reject = draws >= self.accept_at[k], draws <= self.reject_until[k]
        return np.asarray(np.where(accept, 1, np.where(reject, -1, 0)), dtype=np.int8)

    def next_block(self, draws: NDArray[Any], failures: NDArray[Any]) -> Ints:
        """Draws to take before the next look, at least 1: double, but never past the earliest possible acceptance.

        A function of a sample's own counts, so a sample's path does not depend on its neighbours.
        """
        k = np.minimum(failures, len(self.accept_at) - 1)
        block = np.minimum(np.maximum(draws, self.quickest), self.accept_at[k] - draws)
        return np.asarray(np.maximum(np.minimum(block, self.horizon - draws), 1))

    @property
    def quickest(self) -> int:
        """The least n at which any path is decided."""
        counts = np.arange(len(self.reject_until))
        straight = counts[(counts <= self.reject_until) & (counts > 0)]
        return int(min([self.accept_at[0], *straight[:1]]))


@lru_cache(maxsize=64)
def mixture_boundary(kappa: float, alpha: float, horizon: int) -> Boundary:
    """The stopping boundary of the truncated beta mixtures, by bisection over n for each k (both are monotone in n)."""
    size = 16
    while True:
        k = np.arange(size)
        reject = last_true(lambda n, k=k: log_evidence_above(n, k, kappa) >= -np.log(alpha), k, horizon)
        if reject[-1] >= horizon or size > horizon:
            break
        size *= 2
    keep = slice(0, int(np.argmax(reject >= horizon)) + 1 if (reject >= horizon).any() else size)
    accept = last_true(lambda n: log_evidence_below(n, k, kappa) < -np.log(alpha), k, horizon) + 1
    return Boundary(kappa, alpha, horizon, np.maximum(accept, 1)[keep], reject[keep])


def last_true(holds: Any, first: Ints, horizon: int) -> Ints:
    """The last n in [first, horizon] at which a condition that holds up to some n still holds; first - 1 if none."""
    low, high = first - 1, np.full(first.shape, horizon)
    while (low < high).any():
        middle = (low + high + 1) // 2
        yes = holds(np.maximum(middle, first)) & (middle >= first)
        low, high = np.where(yes, middle, low), np.where(yes, high, middle - 1)
    return low
