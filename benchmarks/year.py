"""A year of nightly audits by simulation: false "worse", how soon a drop is found, and what a ratchet loses.

``python -m benchmarks.year [--years 40] [--write FILE]``. 20 models x 10 classes x 4 series of 0/1 scores, compared
with one accepted audit every night as `jobs.comparison` does it: McNemar's exact test on the same samples (every night
another version), Fisher's on further fresh samples (the same version, whose nights add up), Holm within a night, LOND's
levels over the nights. Beside it what 0.1.0 did: the full level every night. A night is found by its smallest p-value,
Holm's first step. Fails when a promise is missed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom, hypergeom

from benchmarks.coverage.judge import percent
from services.numerics.evidence.streams import lond_level
from services.numerics.intervals.means import clopper_pearson
from services.numerics.paired import mean_difference

DELTA, NIGHTS, WEEK = 0.05, 365, 7
MODELS, CLASSES, SERIES = 20, 10, 4
UNSTABLE = 0.1
"""Share of samples on which equally trained versions differ: right half of the time."""
MEAN, DROP = 0.9, 0.02
MOST_FALSE, LEAST_FOUND = 0.10, 0.8
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def levels(nights: int) -> Floats:
    """Of each night, while nothing was found."""
    return np.array([lond_level(DELTA, [False] * t) for t in range(nights)])


def _families(n: int) -> Ints:
    """Samples of each comparison of one model and series: ten classes and the whole."""
    return np.array([n] * CLASSES + [n * CLASSES])


def _smallest(worse: Floats, better: Floats) -> float:
    """Holm's first step over all comparisons and both directions."""
    return float(min(worse.min(), better.min()) * 2 * worse.size)


def new_versions(n: int, drop: float, rng: np.random.Generator) -> Callable[[], tuple[float, float]]:
    """A night: a version of every model trained anew, on the same samples; one model falls by `drop` in all series."""
    accepted = rng.binomial(int(UNSTABLE * n), 0.5, (MODELS, SERIES, CLASSES))
    wrong = int(UNSTABLE * n) - accepted

    def night() -> tuple[float, float]:
        up, down = rng.binomial(wrong, 0.5), rng.binomial(accepted, 0.5)
        down[0] += rng.binomial(round(0.9 * n), drop, down[0].shape)
        up, down = (np.concatenate([each, each.sum(axis=2, keepdims=True)], axis=2) for each in (up, down))
        worse, better = binom.cdf(up, up + down, 0.5), binom.cdf(down, up + down, 0.5)
        return _smallest(worse, better), float(worse[0].min() * 2 * worse.size)

    return night


def fresh_samples(n: int, drop: float, rng: np.random.Generator) -> Callable[[], tuple[float, float]]:
    """A night: the same versions on further samples, whose counts add up; means fall by `drop` for one model."""
    shape, sizes = (MODELS, SERIES, CLASSES), _families(n)
    before = rng.binomial(n, MEAN, shape)
    means = np.full(shape, MEAN)
    means[0] -= drop
    total, nights = np.zeros(shape, dtype=np.int64), 0

    def whole(counts: Ints) -> Ints:
        return np.concatenate([counts, counts.sum(axis=2, keepdims=True)], axis=2)

    def night() -> tuple[float, float]:
        nonlocal total, nights
        total, nights = total + rng.binomial(n, means), nights + 1
        was, now, m = whole(before), whole(total), nights * sizes
        law = hypergeom(np.broadcast_to(sizes + m, was.shape), was + now, np.broadcast_to(m, was.shape))
        worse, better = law.cdf(now), law.sf(now - 1)
        return _smallest(worse, better), float(worse[0].min() * 2 * worse.size)

    return night


def year(night: Callable[[], tuple[float, float]], nights: int = NIGHTS) -> tuple[Floats, Floats]:
    """(nights,) the adjusted p-value of each night, of any flag and of the first model being worse."""
    found = [night() for _ in range(nights)]
    return np.array([each for each, _ in found]), np.array([each for _, each in found])


def with_drops(rng: np.random.Generator, share: float = 0.01) -> tuple[float, float, float]:
    """A year of new versions, drops in a share of the nights: false nights, flagged ones, the share of drops found."""
    still, dropped = new_versions(1000, 0.0, rng), new_versions(1000, DROP, rng)
    flagged: list[bool] = []
    real = rng.random(NIGHTS) < share
    for drop in real:
        p, _ = dropped() if drop else still()
        flagged.append(p <= lond_level(DELTA, flagged))
    hits = np.array(flagged)
    return float((hits & ~real).sum()), float(hits.sum()), float((hits & real).sum() / max(1, real.sum()))


def promoted(reserve: bool, rng: np.random.Generator) -> bool:
    """Whether in a year of new versions, all with a worst class at .78, any passes a gate at .80 and is promoted.

    Args:
        reserve: 200 of the 1,000 samples are kept apart, and asked about every version that passes.
    """
    uses = 0
    for _ in range(NIGHTS):
        seen = 800 if reserve else 1000
        if clopper_pearson(rng.binomial(seen, 0.78), seen, DELTA)[0] < 0.8:
            continue
        level, uses = lond_level(DELTA, [False] * uses), uses + 1
        if not reserve or clopper_pearson(rng.binomial(200, 0.78), 200, level)[0] >= 0.8:
            return True
    return False


def ratchet(first: bool, rng: np.random.Generator, nights: int = 40, loss: float = 0.003) -> float:
    """What is lost before a gate with a margin of .01 fails, when each pass is accepted and each night loses a little.

    Args:
        first: a gate against the first accepted audit beside the last, with the margin .015.
    """
    rows = rng.random(10_000)
    origin = last = (rows < 0.93).astype(float)
    for t in range(1, nights + 1):
        now = (rows < 0.93 - loss * t).astype(float)
        gates = [(last, 0.01), *([(origin, 0.015)] if first else [])]
        if any((mean_difference(old, now, bound=1.0, alpha=DELTA).low or 0.0) < -margin for old, margin in gates):
            return loss * (t - 1)  # this night's version was not accepted
        last = now
    return loss * nights


def rows(years: int) -> list[tuple[str, float, float, float | None]]:
    """Title, share by LOND's levels, share as 0.1.0 did it, and what is promised (at most or at least)."""
    made, spent = [], levels(NIGHTS)
    for n in (100, 1000):
        found = [year(new_versions(n, 0.0, np.random.default_rng([80, n, k])))[0] for k in range(years)]
        ours, before = (np.mean([(p <= level).any() for p in found]) for level in (spent, DELTA))
        made.append((f'years with a false "worse" or "better", new versions, n = {n}', ours, before, MOST_FALSE))
    fresh = [year(fresh_samples(1000, 0.0, np.random.default_rng([81, k])), 60)[0] for k in range(years // 4)]
    ours, before = (np.mean([(p <= level).any() for p in fresh]) for level in (spent[:60], DELTA))
    made.append(("60 nights with a false flag, fresh samples, n = 1000", float(ours), float(before), MOST_FALSE))
    for name, kind, start in (
        ("new versions", new_versions, 0),
        ("new versions after 300 nights", new_versions, 300),
        ("fresh samples", fresh_samples, 0),
    ):
        week = levels(start + WEEK)[start:]
        dropped = [year(kind(1000, DROP, np.random.default_rng([82, k])), WEEK)[1] for k in range(years)]
        ours, before = (np.mean([(p <= level).any() for p in dropped]) for level in (week, DELTA))
        made.append((f"drops of 2 points found within a week, {name}", float(ours), float(before), -LEAST_FOUND))
    mixed = [with_drops(np.random.default_rng([84, k])) for k in range(years)]
    false, flagged = (sum(each[i] for each in mixed) for i in (0, 1))
    share, soon, none = false / max(1.0, flagged), float(np.mean([each[2] for each in mixed])), float("nan")
    made.append(("false nights among the flagged, drops in 1 % of nights", share, none, DELTA))
    made.append(("drops in 1 % of nights found the same night", soon, none, -LEAST_FOUND))
    lucky = [np.mean([promoted(kept, np.random.default_rng([85, k])) for k in range(years)]) for kept in (True, False)]
    made.append(
        ("years in which a worst class at .78 is promoted over .80", float(lucky[0]), float(lucky[1]), MOST_FALSE)
    )
    return made


def main() -> int:
    """Simulate, print, and say whether what is promised was kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--years", type=int, default=40)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    found = rows(options.years)
    lines = [["simulated", "%", "full level every night, %"], ["---"] * 3]
    lines += [[title, percent(ours), "–" if np.isnan(before) else percent(before)] for title, ours, before, _ in found]
    lost = {first: [ratchet(first, np.random.default_rng([83, k])) for k in range(3)] for first in (True, False)}
    worst = {first: max(each) for first, each in lost.items()}
    points = [f"{100 * worst[first]:.1f}" for first in (True, False)]
    lines.append(["points lost by .3 a night until a gate fails, at most", *points])
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    print(text)
    if options.write:
        options.write.write_text(text + "\n")
    missed = [title for title, ours, _, limit in found if (ours > limit if limit > 0 else ours < -limit)]
    missed += ["ratchet"] if worst[True] >= 0.02 else []
    print(f"missed: {missed}" if missed else "all kept")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
