"""Probability of a rare failure by adaptive multilevel splitting, with its uncertainty.

For u ~ N(0, I) and a margin m(u), estimates p = P(m(u) <= 0) = prod_l P(m < t_l | m < t_{l-1}) with levels t_l at the
`quantile` of the surviving particles (subset simulation, Au & Beck 2001; adaptive multilevel splitting, Cerou & Guyader
2007; for networks: Webb et al. 2019, arXiv 1811.07209). Particles are moved within a level by preconditioned
Crank-Nicolson steps u' = sqrt(1 - b^2) u + b N(0, I), which leave N(0, I) invariant in any dimension, accepted when
m(u') is below the level; b is adapted to the acceptance rate.

The uncertainty comes from independent replicates, so it includes the dependence between particles that share ancestors.
It is an estimate with an interval, not a certificate: a failure region that no particle comes near is not seen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

Latents = NDArray[np.float32]
Margin = Callable[[Latents], NDArray[np.float64]]
Normals = Callable[[int], Latents]

_TARGET_ACCEPTANCE = 0.3


@dataclass(frozen=True, slots=True)
class RareEvent:
    """An estimated failure probability.

    Attributes:
        probability: mean of the replicates' estimates; None when no replicate reached the failure region above the
            floor, and then `high` is the floor.
        low, high: interval from the replicates (log-normal, Cox), for the level asked.
        relative_sd: standard error of `probability` divided by it; None when undefined.
        passes: evaluations of the margin.
        replicates: estimates of the independent runs, 0 for one that ended at the floor.
    """

    probability: float | None
    low: float
    high: float
    relative_sd: float | None
    passes: int
    replicates: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class SplittingPlan:
    """How the estimator spends its passes: R replicates of N particles, `moves` steps a level, levels at `quantile`.

    About R N (1 + moves log(1/p) / log(1/quantile)) passes. Below `floor` a replicate gives up.
    """

    particles: int = 64
    replicates: int = 8
    quantile: float = 0.5
    moves: int = 2
    floor: float = 1e-8
    delta: float = 0.05

    @property
    def survivors(self) -> int:
        """Particles that survive a level. The level is the best margin killed, which avoids a bias of 1/k."""
        return max(1, round(self.quantile * self.particles))


def rare_event(margin: Margin, normals: Normals, plan: SplittingPlan, rng: np.random.Generator) -> RareEvent:
    """Estimate P(margin(u) <= 0), u ~ N(0, I).

    Args:
        margin: (m, D) latents to (m,) margins; NaN counts as failed.
        normals: m to fresh standard normal (m, D); consecutive calls are independent. Sets the dimension.
        plan: the budget.
        rng: for resampling only.
    """
    state = Population.start(margin, normals, plan)
    while state.split(rng):
        for _ in range(plan.moves):
            state.move(margin, normals)
    return summarise(state.estimates(), passes=state.passes, plan=plan)


class Population:
    """All replicates, kept in step: latents (R, N, D), margins (R, N), each replicate with its own level."""

    def __init__(self, latents: Latents, margins: NDArray[np.float64], plan: SplittingPlan) -> None:
        self.latents, self.margins, self.plan = latents, margins, plan
        self.passes = margins.size
        self.log_p = np.zeros(plan.replicates)
        self.active = np.ones(plan.replicates, dtype=bool)
        self.level = np.full(plan.replicates, np.inf)
        self.step = np.full(plan.replicates, 0.5)

    @classmethod
    def start(cls, margin: Margin, normals: Normals, plan: SplittingPlan) -> Population:
        latents = normals(plan.replicates * plan.particles)
        margins = as_margins(margin(latents)).reshape(plan.replicates, plan.particles)
        return cls(latents.reshape(*margins.shape, latents.shape[1]), margins, plan)

    def split(self, rng: np.random.Generator) -> bool:
        """Lower the level of every active replicate and resample its survivors; False once all have ended."""
        for r in np.flatnonzero(self.active):
            level = float(np.partition(self.margins[r], self.plan.survivors)[self.plan.survivors])
            alive = np.flatnonzero(self.margins[r] < level if level > 0.0 else self.margins[r] <= 0.0)
            self.log_p[r] += np.log(len(alive) / self.plan.particles) if len(alive) else -np.inf
            self.active[r] = level > 0.0 and self.log_p[r] > np.log(self.plan.floor)
            if level > 0.0 and not self.active[r]:
                self.log_p[r] = -np.inf
            if self.active[r]:
                chosen = systematic(alive, self.plan.particles, rng)
                self.latents[r], self.margins[r], self.level[r] = (
                    self.latents[r][chosen],
                    self.margins[r][chosen],
                    level,
                )
        return bool(self.active.any())

    def move(self, margin: Margin, normals: Normals) -> None:
        """One Crank-Nicolson step of every particle of the active replicates."""
        runs = np.flatnonzero(self.active)
        fresh = normals(len(runs) * self.plan.particles)
        shape = (len(runs), self.plan.particles, fresh.shape[1])
        b = self.step[runs, None, None].astype(np.float32)
        proposed = np.sqrt(1.0 - b * b) * self.latents[runs] + b * fresh.reshape(shape)
        margins = as_margins(margin(proposed.reshape(fresh.shape))).reshape(shape[:2])
        self.passes += margins.size
        accepted = margins < self.level[runs, None]
        self.latents[runs] = np.where(accepted[:, :, None], proposed, self.latents[runs])
        self.margins[runs] = np.where(accepted, margins, self.margins[runs])
        rate = accepted.mean(axis=1)
        self.step[runs] = np.clip(self.step[runs] * np.exp(rate - _TARGET_ACCEPTANCE), 0.02, 0.98)

    def estimates(self) -> NDArray[np.float64]:
        return np.exp(self.log_p)


def as_margins(margins: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.where(np.isnan(margins), -np.inf, margins), dtype=np.float64)


def systematic(alive: NDArray[np.int64], count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Resample `count` of the survivors with the least possible variation of their multiplicities."""
    positions = (np.arange(count) + rng.random()) * (len(alive) / count)
    return rng.permutation(alive)[np.minimum(positions.astype(np.int64), len(alive) - 1)]


def summarise(estimates: NDArray[np.float64], *, passes: int, plan: SplittingPlan) -> RareEvent:
    """Mean, relative standard error and interval of independent replicates.

    The interval is Cox's for the mean of a log-normal, with Student's quantile:
    exp(mean + s^2/2 +- t sqrt(s^2/R + s^4/(2 (R-1)))) of the replicates' logarithms. Replicates that ended at the floor
    enter as floor / 2 there.
    """
    count, values = len(estimates), tuple(float(v) for v in estimates)
    if not (estimates > 0).any():
        return RareEvent(None, 0.0, plan.floor, None, passes, values)
    mean, logs = float(estimates.mean()), np.log(np.maximum(estimates, plan.floor / 2))
    s2 = float(logs.var(ddof=1))
    half = float(stdtrit(count - 1, 1 - plan.delta / 2)) * np.sqrt(s2 / count + s2 * s2 / (2 * (count - 1)))
    centre = float(logs.mean()) + s2 / 2
    error = float(estimates.std(ddof=1)) / np.sqrt(count) / mean
    return RareEvent(
        mean, float(np.exp(centre - half)), min(1.0, float(np.exp(centre + half))), float(error), passes, values
    )
