"""Tests that are looked at after every draw: how often they err, exactly and by simulation, and what they find when.

A boundary's error, power and mean number of draws follow exactly from the distribution of the walk of failures
(`benchmarks.spending`). The simulation runs the loop that the measures run, `sequential_verdicts`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

import numpy as np
from scipy.stats import binom

from benchmarks.binomial import monitored_error
from benchmarks.coverage.data import LEVELS, SLACK, Ints
from benchmarks.coverage.joined import confidence_sequence
from benchmarks.coverage.judge import Cell, cell, percent
from benchmarks.coverage.sampling import SIGMA, certificates
from benchmarks.spending import Characteristics, characteristics, spending_boundary
from services.measures.sampling.verdicts import sequential_verdicts
from services.numerics.intervals import betting
from services.numerics.intervals.radius import certified_radius, probability_at
from services.numerics.intervals.sequential import Boundary, mixture_boundary

KAPPAS = (0.01, 0.05, 0.2)
ALPHA = 0.05
"""Of the power tables."""
POWER = 0.95
"""Of the fixed test beside."""
LOOKS = (5, 20, 60, 100, 160, 260, 420, 700, 1200, 2000)


def horizon(kappa: float) -> int:
    """Draws after which the measures give up."""
    return ceil(100.0 / kappa)


def cells(runs: int) -> Iterator[Cell]:
    """Sizes by simulation."""
    for kappa in KAPPAS:
        for level in LEVELS:
            boundary = mixture_boundary(kappa, level, horizon(kappa))
            yield from of_boundary("verdict", boundary, runs, np.random.default_rng([30, int(1e4 * kappa)]))
    for level in LEVELS:
        yield from of_boundary("alpha-spending", spending_boundary(0.05, level, LOOKS), runs, np.random.default_rng(31))
    for p in (0.0, 0.01, 0.3, 0.97, 1.0):
        yield from of_sequence(p, runs, np.random.default_rng([32, int(100 * p)]))


def of_boundary(name: str, boundary: Boundary, runs: int, rng: np.random.Generator) -> Iterator[Cell]:
    """Wrong verdicts at p = kappa, where both are hardest to avoid: stopping at the first, and each side alone."""
    setting, level = f"p = kappa = {boundary.kappa:g}", boundary.alpha
    verdicts = sequential_verdicts(lambda rows, draws: rng.random(len(rows)) < boundary.kappa, runs, boundary)
    yield cell(f'{name} "below" at p = kappa', setting, level, verdicts.verdict > 0)
    yield cell(f'{name} "above" at p = kappa', setting, level, verdicts.verdict < 0)


def of_sequence(p: float, runs: int, rng: np.random.Generator) -> Iterator[Cell]:
    """The confidence sequence of a failure probability, looked at after every one of 300 draws."""
    failures = np.cumsum(rng.random((runs, 300)) < p, axis=1)
    draws = np.broadcast_to(np.arange(1, 301), failures.shape)
    codes, place = np.unique(draws * 1000 + failures, return_inverse=True)
    for level in LEVELS:
        low, high = confidence_sequence(codes // 1000, codes % 1000, level)
        off = ((low > p + SLACK) | (high < p - SLACK))[place.reshape(failures.shape)]
        yield cell("confidence sequence of a probability, every draw", f"p = {p:g}", level, off.any(axis=1))


# --- exact sizes and power ----------------------------------------------------------------------------------------


def sizes(kappas: tuple[float, ...] = KAPPAS) -> list[list[str]]:
    """Rows of exact errors in per cent: our verdicts, spending, and the published procedure under the same looks."""
    rows = []
    for kappa in kappas:
        for alpha in LEVELS:
            ours = characteristics(mixture_boundary(kappa, alpha, horizon(kappa)), kappa)
            published = monitored_error(kappa, alpha, horizon(kappa))
            rows.append([f"{kappa:g}", f"{100 * alpha:g} %", *_both(ours), f"{percent(published.either)} %"])
    return rows


def broken_sizes(kappas: tuple[float, ...] = KAPPAS) -> list[str]:
    """Boundaries whose exact error at p = kappa is above alpha, on either side."""
    made = [mixture_boundary(kappa, alpha, horizon(kappa)) for kappa in kappas for alpha in LEVELS]
    made += [spending_boundary(0.05, alpha, LOOKS) for alpha in LEVELS]
    result = ((boundary, characteristics(boundary, boundary.kappa)) for boundary in made)
    return [
        f"kappa {boundary.kappa:g}, alpha {boundary.alpha:g}: {each}"
        for boundary, each in result
        if max(each.accept, each.reject) > boundary.alpha + 1e-12
    ]


def _both(found: Characteristics) -> list[str]:
    return [f"{percent(found.accept)} %", f"{percent(found.reject)} %"]


def powers(kappas: tuple[float, ...] = KAPPAS) -> list[list[str]]:
    """Rows of what the verdicts find at named alternatives, beside the exact test of one look with `POWER`."""
    rows = []
    for kappa in kappas:
        boundary = mixture_boundary(kappa, ALPHA, horizon(kappa))
        for name, p in alternatives(kappa):
            error = characteristics(boundary, p)
            power = error.accept if p < kappa else error.reject
            fixed = fixed_draws(kappa, p, ALPHA, POWER)
            rows.append(
                [
                    f"{kappa:g}",
                    name,
                    f"{100 * power:.1f} %",
                    f"{error.expected_draws:,.0f}",
                    f"{fixed:,}",
                    f"{error.expected_draws / fixed:.2f}",
                ]
            )
    return rows


def alternatives(kappa: float) -> list[tuple[str, float]]:
    """Failure probabilities that samples have: none, far below, below, above, far above, nearly always."""
    return [("0", 0.0), ("kappa / 10", kappa / 10), ("kappa / 2", kappa / 2), ("2 kappa", 2 * kappa), ("0.9", 0.9)]


def fixed_draws(kappa: float, p: float, alpha: float, power: float, most: int = 1000) -> int:
    """Least n at which the exact level-alpha test of p's side of kappa finds it with this power; `most` is a guess."""
    n = np.arange(1, most)
    if p < kappa:
        critical = binom.ppf(alpha, n, kappa)
        critical -= binom.cdf(critical, n, kappa) > alpha
        result = np.where(critical >= 0, binom.cdf(critical, n, p), 0.0)
    else:
        result = binom.sf(binom.isf(alpha, n, kappa), n, p)
    enough = result >= power
    return int(n[np.argmax(enough)]) if enough.any() else fixed_draws(kappa, p, alpha, power, 10 * most)


@dataclass(frozen=True)
class Stopping:
    """A simulated test that stops early: how often it decides rightly, and after how many draws on average."""

    power: float
    draws: float


def radius_powers(runs: int, most: int = 10_000) -> list[list[str]]:
    """Rows: "radius >= 0.25" certified with early stopping against the fixed procedure of as many draws at most."""
    rows = []
    need = float(probability_at(0.25, SIGMA))
    for p in (0.99, 0.95, 0.9, 0.85):
        rng = np.random.default_rng([33, int(100 * p)])
        radius, draws = certificates(p, runs, 0.001, most, rng, at=(0.25,))
        fixed = certified_radius(rng.binomial(most, p, runs), most, sigma=SIGMA, alpha=0.001)
        sequential = Stopping(float(np.mean(radius >= 0.25)), float(draws.mean()))
        row = f"{100 * np.mean(fixed >= 0.25):.1f} %"
        enough = fixed_draws(1 - need, 1 - p, 0.001, POWER)
        rows.append(
            [f"{p:g}", f"{100 * sequential.power:.1f} %", f"{sequential.draws:,.0f}", row, f"{most:,}", f"{enough:,}"]
        )
    return rows


def betting_powers(runs: int, most: int = 600, step: int = 5) -> list[list[str]]:
    """Rows: "mean > 0.8" by betting on 0/1 scores, looked at every 5 samples, against the exact test of one look."""
    rows = []
    for mean in (1.0, 0.95, 0.9, 0.85):
        values = (np.random.default_rng([34, int(100 * mean)]).random((runs, most)) < mean).astype(np.float64)
        stop = first_rejection(values, 0.8, ALPHA, step)
        rows.append(
            [
                f"{mean:g}",
                f"{100 * np.mean(stop <= most):.1f} %",
                f"{np.minimum(stop, most).mean():,.0f}",
                f"{fixed_draws(0.2, 1 - mean, ALPHA, POWER):,}",
            ]
        )
    return rows


def first_rejection(values: np.ndarray, null: float, alpha: float, step: int) -> Ints:
    """(runs,) the first look at which the capital against "mean <= null" reaches 1 / alpha; beyond the last if none."""
    runs, most = values.shape
    bets = betting.bet_sizes(values, np.ones(values.shape, dtype=bool), alpha, anytime=True)
    stop = np.full(runs, most + 1)
    for n in range(most, 0, -step):
        reached = betting.log_capital(values[:, :n], bets[:, :n], np.full(runs, null)) >= -np.log(alpha)
        stop[reached] = n
    return stop


def change_powers(runs: int) -> list[list[str]]:
    """Rows: how often a class that is right in 95 % and loses a tenth of these is flagged, among 14 comparisons."""
    from benchmarks.coverage.changes import family
    from services.numerics.change import decide

    rows = []
    for n in (50, 100, 200, 400):
        worse, better = family(n, runs, np.random.default_rng([35, n]), fall=True)
        flags = [decide(down, up, ALPHA) for down, up in zip(worse, better, strict=True)]
        exact, other = (np.mean([run[place][0] == "worse" for run in flags]) for place in (5, 12))
        rows.append([f"{n}", f"{100 * exact:.1f} %", f"{100 * other:.1f} %"])
    return rows
