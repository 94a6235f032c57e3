"""What rests on draws: certified radii, shares of verdicts, rare failures, and rows of several seeds."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
from scipy.stats import norm

from benchmarks.binomial import clopper_pearson, true_share_bounds
from benchmarks.coverage.data import LEVELS, SLACK, Floats, Ints
from benchmarks.coverage.judge import Cell, cell
from benchmarks.coverage.metrics import lies_outside
from services.measures.sampling.smoothed import SmoothingRule, certify
from services.numerics.intervals.radius import certified_radius
from services.numerics.intervals.splitting import SplittingPlan, rare_event, summarise
from services.numerics.ranking.seeds import over_seeds
from services.records.estimates import Estimate

SIGMA = 0.25
RADII = (0.25, 0.5)


def cells(runs: int) -> Iterator[Cell]:
    """All of it."""
    for p in (0.4, 0.5, 0.75, 0.841, 0.99, 1.0):
        yield from of_radius(p, 2 * runs, np.random.default_rng([20, int(1000 * p)]))
    for points in (1, 3, 20, 200):
        yield from of_shares(points, 10 * runs, np.random.default_rng([21, points]))
    for p in (0.2, 1e-3, 1e-5):
        yield from of_rare(p, runs, np.random.default_rng([22, int(1e6 * p)]))
    for networks in (2, 3, 5):
        yield from of_seeds(networks, runs, np.random.default_rng([23, networks]))


class Coins:
    """A network under noise as `certify` draws from it: a draw gives class 0 with probability p."""

    def __init__(self, p: float, rng: np.random.Generator) -> None:
        self.p, self.rng = p, rng

    def smoothed_classes(self, sigma: float, rows: Ints, draws: Ints) -> Ints:
        return (self.rng.random(len(rows)) >= self.p).astype(np.int64)


def certificates(
    p: float,
    runs: int,
    alpha: float,
    horizon: int,
    rng: np.random.Generator,
    *,
    at: tuple[float, ...] = RADII,
    width: float | None = None,
) -> tuple[Floats, Ints]:
    """Radii (runs,) with early stopping, and the draws that they took."""
    rule, rows = SmoothingRule(SIGMA, alpha, at, width, horizon), np.arange(runs)
    return certify(Coins(p, rng), rule, rows, np.zeros(runs, dtype=np.int64), first=0)  # type: ignore[arg-type]


def of_radius(p: float, runs: int, rng: np.random.Generator) -> Iterator[Cell]:
    """Radii above the true one, after a fixed number of draws and with early stopping."""
    truth = SIGMA * norm.ppf(p) if p > 0.5 else 0.0
    for level in LEVELS:
        for draws in (1, 2, 3, 5, 50, 1000):
            hits = rng.binomial(draws, p, 10 * runs)
            radius = certified_radius(hits, draws, sigma=SIGMA, alpha=level)
            yield cell("certified radius, fixed draws", f"{draws} draws, p = {p:g}", level, radius > truth + SLACK)
        for width in (None, 0.2):
            radius, _ = certificates(p, runs, level, 1000, rng, width=width)
            setting = f"at most 1,000 draws, p = {p:g}" + (", by width" if width else "")
            yield cell("certified radius, early stopping", setting, level, radius > truth + SLACK)


def of_shares(points: int, runs: int, rng: np.random.Generator) -> Iterator[Cell]:
    """The true share of robust points from verdicts that err as often as they may."""

    for share in (0.0, 0.3, 0.9, 1.0):
        robust = rng.binomial(points, share, runs)
        for level in LEVELS:
            for err in (0.05, 0.2):
                certified = robust - rng.binomial(robust, err)
                wrongly = rng.binomial(points - robust, err)
                certified, rejected = certified + wrongly, points - certified - wrongly
                setting = f"{points} points, share {share:g}, verdicts err in {100 * err:g} %"
                yield cell(
                    "true share of robust points",
                    setting,
                    level,
                    _outside(certified, rejected, points, err, level, share),
                )


def _outside(certified: Ints, rejected: Ints, points: int, alpha: float, level: float, share: float) -> list[bool]:
    @cache
    def missed(yes: int, no: int) -> bool:
        result = true_share_bounds(yes, no, points, alpha=alpha, delta=level)
        return result.low > share + SLACK or result.high < share - SLACK

    return [missed(int(yes), int(no)) for yes, no in zip(certified, rejected, strict=True)]


def of_rare(p: float, runs: int, rng: np.random.Generator) -> Iterator[Cell]:
    """Cox's interval over eight replicates each, of a linear margin in 8 dimensions; all of them run side by side."""
    size, dimensions, each = min(runs, 250), 8, SplittingPlan().replicates
    threshold = -float(norm.ppf(p))
    results = []
    for _ in range(0, runs, size):
        many = SplittingPlan(replicates=each * size)
        event = rare_event(
            lambda u: threshold - u[:, 0].astype(np.float64),
            lambda m: rng.standard_normal((m, dimensions), dtype=np.float32),
            many,
            rng,
        )
        results += list(np.array(event.replicates).reshape(size, each))
    for level in LEVELS:
        plan = SplittingPlan(delta=level)
        events = [summarise(estimates, passes=0, plan=plan) for estimates in results]
        missed = [event.low > p or event.high < p for event in events]
        yield cell("probability of a rare failure (Cox)", f"p = {p:g}", level, missed, exact=False)


def of_seeds(networks: int, runs: int, rng: np.random.Generator) -> Iterator[Cell]:
    """Mean accuracy over seeds: accuracies over seeds are normal, the networks share their 200 samples."""
    mean, spread, n = 0.7, 0.03, 200
    truth = np.clip(rng.normal(mean, spread, (runs, networks)), 0, 1)
    hard = rng.random((runs, 1, n))
    counts = (hard < truth[:, :, None]).sum(axis=2)
    for level in LEVELS:
        limits = {k: clopper_pearson(k, n, level) for k in np.unique(counts).tolist()}
        missed = []
        for row in counts:
            result = over_seeds([Estimate(k / n, *limits[int(k)]) for k in row], delta=level, least=0.0, most=1.0)
            missed.append(lies_outside(mean, result.mean))
        yield cell("mean over seeds (Student)", f"{networks} networks", level, missed, exact=False)
